package hostfile_test

import (
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/rdma"
	"github.com/divvy-gpu/divvy/internal/sysfs/sysfstest"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// A recording tells of devices what its machine does, also through links to folders. What it cannot hold is left out.
func TestRecordingTellsTheSame(t *testing.T) {
	const disk = "sys/devices/pci0000:00/0000:00:02.0/0000:02:00.0"
	machine := fstest.MapFS{}
	for name, content := range map[string]string{
		"sys/bus/pci/devices/0000:02:00.0": "->../../../devices/pci0000:00/0000:00:02.0/0000:02:00.0",
		disk + "/class":                    "0x010802\n", disk + "/vendor": "0x144d\n", disk + "/device": "0xa80a\n",
		"proc/1/mountinfo":                                   "36 1 253:0 / / rw - ext4 /dev/mapper/vg-root rw\n37 1 259:1 / /boot rw - ext4 /dev/root rw\n",
		"sys/class/block/dm-0":                               "->../../devices/virtual/block/dm-0",
		"sys/devices/virtual/block/dm-0/dev":                 "253:0\n",
		"sys/devices/virtual/block/dm-0/slaves/nvme0n1":      "->../../../../nvme0n1",
		"sys/class/block/nvme0n1":                            "->../../devices/pci0000:00/0000:00:02.0/0000:02:00.0/nvme/nvme0/nvme0n1",
		disk + "/nvme/nvme0/nvme0n1/dev":                     "259:1\n",
		"sys/class/net/bond0":                                "->../../devices/virtual/net/bond0",
		"sys/devices/virtual/net/bond0/lower_eth0":           "->../eth0",
		"sys/class/net/eth0":                                 "->../../devices/pci0000:00/0000:00:02.0/0000:02:00.0/net/eth0",
		disk + "/net/eth0/mtu":                               "1500\n",
		"proc/self/ns/pid":                                   "->pid:[4026531836]",
		"proc/1/net/dev":                                     "Inter-|   Receive\n face |bytes\n bond0: 7 0\n  eth0: 7 0\n",
		"proc/1/net/route":                                   "bond0\t00000000\t0102030A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n",
		"sys/class/graphics/fb0":                             "->../../devices/pci0000:00/0000:00:02.0/0000:02:00.0/graphics/fb0",
		disk + "/graphics/fb0/name":                          "EFI VGA\n",
		"dev/kvm":                                            "",
		"sys/class/infiniband/mlx5_0":                        "->../../devices/pci0000:00/0000:00:02.0/0000:02:00.0/infiniband/mlx5_0",
		disk + "/infiniband/mlx5_0/node_guid":                "0000:0000:0000:0000\n",
		disk + "/infiniband/mlx5_0/ports/1/state":            "4: ACTIVE\n",
		disk + "/infiniband/mlx5_0/ports/1/gids/0":           "fe80:0000:0000:0000:ba3f:d2ff:fe00:0001\n",
		disk + "/infiniband/mlx5_0/ports/1/gids/1":           "0000:0000:0000:0000:0000:ffff:c0a8:0117\n",
		disk + "/infiniband/mlx5_0/ports/1/gids/2":           "0000:0000:0000:0000:0000:0000:0000:0000\n",
		"sys/class/infiniband/rxe0":                          "->../../devices/virtual/infiniband/rxe0",
		"sys/devices/virtual/infiniband/rxe0/parent":         "bond0\n",
		"sys/class/infiniband_verbs/uverbs0":                 "->../../devices/virtual/infiniband_verbs/uverbs0",
		"sys/devices/virtual/infiniband_verbs/uverbs0/dev":   "231:192\n",
		"sys/devices/virtual/infiniband_verbs/uverbs0/ibdev": "mlx5_0\n",
		"sys/class/misc/rdma_cm":                             "->../../devices/virtual/misc/rdma_cm",
		"sys/devices/virtual/misc/rdma_cm/dev":               "10:58\n",
		"sys/module/ib_core/parameters/netns_mode":           "N\n",
		"proc/cgroups":                                       "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t77\t1\nrdma\t9\t77\t1\n",
		"proc/driver/nvidia/version":                         "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (me@builder)\n",
	} {
		sysfstest.Set(machine, name, content)
	}
	want, err := facts.Read(machine)
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Devices) != 1 || len(want.Devices[0].Uses) != 3 || len(want.Framebuffers) != 1 {
		t.Fatalf("the machine is %+v", want)
	}
	cards := rdma.Read(machine, want)
	if len(cards.Adapters) != 2 || cards.Adapters[0].Name != "mlx5_0" || !cards.Adapters[1].OnPCI || cards.Manager == nil || !cards.OpenModule {
		t.Fatalf("the adapters are %+v", cards)
	}
	machine["sys/class/infiniband/odd one"] = &fstest.MapFile{Data: []byte("../../devices/virtual/infiniband/odd one"), Mode: fs.ModeSymlink | 0o777}
	machine[disk+"/driver"] = &fstest.MapFile{Data: []byte("../../../../bus/pci/drivers/a\nb"), Mode: fs.ModeSymlink | 0o777}
	first := recorded(t, machine)
	again, err := hostfile.Parse(strings.NewReader(first), "machine.host")
	if err != nil {
		t.Fatal(err)
	}
	got, err := facts.Read(again.Root())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got := rdma.Read(again.Root(), got); !reflect.DeepEqual(got, cards) {
		t.Errorf("got the adapters %+v\nwant %+v", got, cards)
	}
	for _, secret := range []string{"c0a8", "ba3f", "builder", "odd one", "\\t77"} {
		if strings.Contains(first, secret) {
			t.Errorf("the recording has %s", secret)
		}
	}
	if second := recorded(t, again.Root()); second != first {
		t.Errorf("recorded again it is\n%s\nfirst it was\n%s", second, first)
	}
}

// recorded is the text of a recording of a machine.
func recorded(t *testing.T, machine fs.FS) string {
	t.Helper()
	host, err := hostfile.CaptureMachine(machine, nil)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := host.Format(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// watched is a machine that tells itself who has device nodes open.
type watched struct{ fstest.MapFS }

func (watched) Openers([]string) ([]facts.Opener, []string, error) {
	return []facts.Opener{{PID: 812, Node: "nvidia3"}}, []string{"one is not seen"}, nil
}

// A recording has who holds a device by whatever name, as the machine told it.
func TestRecordingHasOpeners(t *testing.T) {
	const gpu = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
	machine := watched{fstest.MapFS{
		"sys/bus/pci/devices/0000:01:00.0": {Data: []byte("../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0"), Mode: fs.ModeSymlink | 0o777},
		gpu + "/class":                     {Data: []byte("0x030200\n")}, gpu + "/vendor": {Data: []byte("0x10de\n")}, gpu + "/device": {Data: []byte("0x20b5\n")},
		"proc/driver/nvidia/gpus/0000:01:00.0/information": {Data: []byte("Device Minor: \t 3\n")},
		"proc/812/comm": {Data: []byte("python3\n")},
	}}
	want := []facts.Holder{{PID: 812, Name: "python3", Node: "nvidia3"}}
	host, err := facts.Read(machine)
	if err != nil || len(host.Devices) != 1 || !reflect.DeepEqual(host.Devices[0].Holders, want) || !slices.Contains(host.Blind, "one is not seen") {
		t.Fatalf("the machine is %+v, %v", host, err)
	}
	again, err := hostfile.Parse(strings.NewReader(recorded(t, machine)), "machine.host")
	if err != nil {
		t.Fatal(err)
	}
	if host, err = facts.Read(again.Root()); err != nil || len(host.Devices) != 1 || !reflect.DeepEqual(host.Devices[0].Holders, want) {
		t.Errorf("the recording is %+v, %v", host, err)
	}
}
