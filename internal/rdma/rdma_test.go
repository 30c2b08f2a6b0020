package rdma

import (
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/sysfs/sysfstest"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Where the functions of the host in these tests are: a GPU and a card behind one switch, a card on a root port of its own with a
// virtual function, and a card without RDMA.
const (
	behind  = "sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/"
	gpuAt   = behind + "0000:12:00.0/0000:13:00.0"
	cardAt  = behind + "0000:12:01.0/0000:14:00.0"
	aloneAt = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0"
	partAt  = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.1"
)

// hostWith is the root of that host. More files replace its own; a content that begins with -> is a link, and "-" takes a file away.
func hostWith(more map[string]string) fstest.MapFS {
	files := map[string]string{
		"sys/class/infiniband/mlx5_0":               "->../../" + strings.TrimPrefix(cardAt, "sys/") + "/infiniband/mlx5_0",
		cardAt + "/infiniband/mlx5_0/node_guid":     "b83f:d203:0000:0001\n",
		cardAt + "/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n", cardAt + "/infiniband/mlx5_0/ports/1/link_layer": "Ethernet\n",
		cardAt + "/infiniband/mlx5_0/ports/1/rate":   "400 Gb/sec (4X NDR)\n",
		cardAt + "/infiniband/mlx5_0/ports/1/gids/0": "fe80:0000:0000:0000:ba3f:d2ff:fe00:0001\n",
		cardAt + "/infiniband/mlx5_0/ports/1/gids/1": "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
		cardAt + "/infiniband/mlx5_0/ports/1/gids/2": "0000:0000:0000:0000:0000:0000:0000:0000\n",
		cardAt + "/net/ens1/address":                 "02:00:00:00:00:01\n",
		"sys/class/net/ens1":                         "->../../" + strings.TrimPrefix(cardAt, "sys/") + "/net/ens1",
		"sys/class/infiniband_verbs/uverbs0/ibdev":   "mlx5_0\n", "sys/class/infiniband_verbs/uverbs0/dev": "231:192\n",
		"sys/class/infiniband_verbs/abi_version": "6\n",

		"sys/class/infiniband/mlx5_1":                    "->../../" + strings.TrimPrefix(aloneAt, "sys/") + "/infiniband/mlx5_1",
		aloneAt + "/infiniband/mlx5_1/node_guid":         "b83f:d203:0000:0002\n",
		aloneAt + "/infiniband/mlx5_1/ports/1/state":     "4: ACTIVE\n",
		aloneAt + "/sriov_numvfs":                        "1\n",
		aloneAt + "/sriov_totalvfs":                      "8\n",
		"sys/class/infiniband_verbs/uverbs1/ibdev":       "mlx5_1\n",
		"sys/class/infiniband_verbs/uverbs1/dev":         "231:193\n",
		"sys/class/infiniband/mlx5_2":                    "->../../" + strings.TrimPrefix(partAt, "sys/") + "/infiniband/mlx5_2",
		partAt + "/infiniband/mlx5_2/node_guid":          "0000:0000:0000:0000\n",
		partAt + "/infiniband/mlx5_2/ports/1/state":      "1: DOWN\n",
		partAt + "/infiniband/mlx5_2/ports/1/link_layer": "InfiniBand\n",
		"sys/class/infiniband_verbs/uverbs2/ibdev":       "mlx5_2\n",
		"sys/class/infiniband_verbs/uverbs2/dev":         "231:194\n",
		partAt + "/physfn":                               "->../0000:81:00.0",

		"sys/module/ib_core/parameters/netns_mode": "Y\n",
		"sys/class/misc/rdma_cm/dev":               "10:58\n",
		"sys/fs/cgroup/cgroup.controllers":         "cpu memory rdma\n",
		"sys/bus/pci/drivers/mlx5_core/module":     "->../../../../module/mlx5_core",
		cardAt + "/driver":                         "->../../../../../../bus/pci/drivers/mlx5_core",
	}
	for at, class := range map[string]string{gpuAt: "0x030200", cardAt: "0x020000", aloneAt: "0x020700", partAt: "0x020700"} {
		address := at[strings.LastIndex(at, "/")+1:]
		files["sys/bus/pci/devices/"+address] = "->../../../" + strings.TrimPrefix(at, "sys/")
		files[at+"/class"], files[at+"/vendor"], files[at+"/device"] = class+"\n", "0x15b3\n", "0x1021\n"
	}
	maps.Copy(files, more)
	return sysfstest.Tree(files)
}

func read(t *testing.T, more map[string]string) *Host {
	t.Helper()
	root := hostWith(more)
	host, err := facts.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	return Read(root, host)
}

func (h *Host) find(t *testing.T, name string) *Adapter {
	t.Helper()
	i := slices.IndexFunc(h.Adapters, func(a Adapter) bool { return a.Name == name })
	if i < 0 {
		t.Fatalf("no adapter %q among %d", name, len(h.Adapters))
	}
	return &h.Adapters[i]
}

func gpus(t *testing.T) []pci.Device {
	t.Helper()
	root, err := fs.Sub(hostWith(nil), "sys")
	if err != nil {
		t.Fatal(err)
	}
	d, err := pci.Read(root, "0000:13:00.0")
	if err != nil {
		t.Fatal(err)
	}
	return []pci.Device{d}
}

func TestRead(t *testing.T) {
	h := read(t, nil)
	if len(h.Adapters) != 3 || h.Mode != ModeShared || h.Limits != facts.Yes || h.Manager == nil || *h.Manager != (Node{"rdma_cm", 10, 58}) {
		t.Errorf("the host is %+v", h)
	}
	a := h.find(t, "mlx5_0")
	want := Port{Number: 1, Link: Ethernet, State: Active, Mbps: 400000, GIDs: GIDs{Known: true, Any: 2, Routable: 1}}
	if len(a.Ports) != 1 || a.Ports[0] != want || a.Netdev() != "ens1" || a.Driver != "mlx5_core" || a.Module != "mlx5_core" {
		t.Errorf("the card is %+v", a)
	}
	if a.Verbs == nil || *a.Verbs != (Node{"uverbs0", 231, 192}) || a.PCI.OuterSwitch() != "0000:11:00.0" || a.Down() || a.Virtual() {
		t.Errorf("the card is %+v", a)
	}
	if f := h.find(t, "mlx5_2"); !f.Virtual() || f.Physical.String() != "0000:81:00.0" || !f.NoGUID || !f.Down() || f.Link() != InfiniBand || f.Netdev() != "" {
		t.Errorf("the function is %+v", f)
	}
	if p := h.find(t, "mlx5_1"); p.VFs != 1 || p.VFsTotal != 8 || p.NoGUID || p.Ports[0].GIDs.Known {
		t.Errorf("the physical function is %+v", p)
	}
}

// A soft adapter is where its network device is, also through a bond; one of a device on no card is on none.
func TestSoftAdapterIsPlacedByItsNetdev(t *testing.T) {
	soft := func(name, parent string) map[string]string {
		return map[string]string{
			"sys/class/infiniband/" + name:                       "->../../devices/virtual/infiniband/" + name,
			"sys/devices/virtual/infiniband/" + name + "/parent": parent + "\n",
			"sys/class/net/bond0":                                "->../../devices/virtual/net/bond0",
			"sys/class/net/bond0/lower_loop":                     "->../bond0", // a circle ends
			"sys/class/net/bond0/lower_ens1":                     "->../ens1",
			"sys/class/net/dummy0":                               "->../../devices/virtual/net/dummy0",
			"sys/class/net/bond0/lower_dummy0":                   "->../dummy0",
		}
	}
	// A file system that does not follow a link to a folder has its entries by its name, as a recording does.
	for parent, want := range map[string]string{"ens1": "0000:14:00.0", "dummy0": "", "../../net/ens1": "", "gone": "", "": "", "..": ""} {
		h := read(t, soft("rxe0", parent))
		a := h.find(t, "rxe0")
		got := ""
		if a.OnPCI {
			got = a.PCI.Address.String()
		}
		if got != want {
			t.Errorf("an adapter of %q is at %q, want %q", parent, got, want)
		}
	}
	if a := read(t, soft("rxe0", "ens1")).find(t, "rxe0"); a.Netdev() != "ens1" || a.Key() != "soft-rxe0" || a.PCI.OuterSwitch() == "" {
		t.Errorf("the soft adapter is %+v", a)
	}
}

// What the kernel does not make, and what is gone, leaves unknown what it concerns.
func TestNonsense(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		told  func(h *Host) any
		want  any
	}{
		"a link to elsewhere":       {map[string]string{"sys/class/infiniband/mlx5_0": "->../../../etc"}, func(h *Host) any { return len(h.Adapters) }, 2},
		"an absolute link":          {map[string]string{"sys/class/infiniband/mlx5_0": "->/sys/devices/x/infiniband/mlx5_0"}, func(h *Host) any { return len(h.Adapters) }, 2},
		"no link":                   {map[string]string{"sys/class/infiniband/mlx5_0": "text"}, func(h *Host) any { return len(h.Adapters) }, 2},
		"a node without a number":   {map[string]string{"sys/class/infiniband_verbs/uverbs0/dev": "231\n"}, func(h *Host) any { return h.Adapters[0].Verbs == nil }, true},
		"a node of a huge number":   {map[string]string{"sys/class/infiniband_verbs/uverbs0/dev": "231:99999999999\n"}, func(h *Host) any { return h.Adapters[0].Verbs == nil }, true},
		"an adapter without a node": {map[string]string{"sys/class/infiniband_verbs/uverbs0/ibdev": "\n"}, func(h *Host) any { return h.Adapters[0].Verbs == nil }, true},
		"a port that is no number":  {map[string]string{cardAt + "/infiniband/mlx5_0/ports/x y/state": "4: ACTIVE\n"}, func(h *Host) any { return len(h.Adapters[0].Ports) }, 1},
		"a state without a number":  {map[string]string{cardAt + "/infiniband/mlx5_0/ports/1/state": "ACTIVE\n"}, func(h *Host) any { return h.Adapters[0].Down() }, false},
		"a rate of nonsense":        {map[string]string{cardAt + "/infiniband/mlx5_0/ports/1/rate": "-3 Gb/sec\n"}, func(h *Host) any { return h.Adapters[0].Ports[0].Mbps }, 0},
		"an address of nonsense":    {map[string]string{cardAt + "/infiniband/mlx5_0/ports/1/gids/0": "fe80::1\n"}, func(h *Host) any { return h.Adapters[0].Ports[0].GIDs }, GIDs{true, 1, 1}},
		"another word for the mode": {map[string]string{"sys/module/ib_core/parameters/netns_mode": "1\n"}, func(h *Host) any { return h.Mode }, ModeUnknown},
		"no mode":                   {map[string]string{"sys/module/ib_core/parameters/netns_mode": "-"}, func(h *Host) any { return h.Mode }, ModeUnknown},
		"no connection manager":     {map[string]string{"sys/class/misc/rdma_cm/dev": "-"}, func(h *Host) any { return h.Manager == nil }, true},
		"no controller":             {map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpu\n"}, func(h *Host) any { return h.Limits }, facts.No},
		"nothing told of cgroups":   {map[string]string{"sys/fs/cgroup/cgroup.controllers": "-"}, func(h *Host) any { return h.Limits }, facts.Unknown},
		"cgroups of version 1":      {map[string]string{"sys/fs/cgroup/cgroup.controllers": "-", "proc/cgroups": "#a\tb\tc\td\nrdma\t9\t3\t1\n"}, func(h *Host) any { return h.Limits }, facts.Yes},
		"a controller that is off":  {map[string]string{"sys/fs/cgroup/cgroup.controllers": "-", "proc/cgroups": "rdma\t9\t3\t0\n"}, func(h *Host) any { return h.Limits }, facts.No},
		"one of version 2 only":     {map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpu", "proc/cgroups": "rdma\t0\t3\t1\n"}, func(h *Host) any { return h.Limits }, facts.No},
		"an open driver":            {map[string]string{"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (me@host)\nGCC 12\n"}, func(h *Host) any { return []any{h.OpenModule, h.Driver} }, []any{true, "550.54.15"}},
		"a closed driver":           {map[string]string{"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat\n"}, func(h *Host) any { return []any{h.OpenModule, h.Driver} }, []any{false, "535.104.05"}},
		"another driver's version":  {map[string]string{"proc/driver/nvidia/version": "Open Kernel Module 1.2\n"}, func(h *Host) any { return []any{h.OpenModule, h.Driver} }, []any{false, ""}},
		"a driver with a path":      {map[string]string{cardAt + "/driver": "->../../.."}, func(h *Host) any { return h.Adapters[0].Module }, ""},
		"more ports than there are": {manyPorts(), func(h *Host) any { return len(h.Adapters[0].Ports) }, mostPorts},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.told(read(t, test.files)); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func manyPorts() map[string]string {
	files := map[string]string{}
	for _, digit := range "123456789" {
		for _, other := range "0123456789" {
			files[cardAt+"/infiniband/mlx5_0/ports/"+string(digit)+string(other)+"/state"] = "4: ACTIVE\n"
		}
	}
	return files
}
