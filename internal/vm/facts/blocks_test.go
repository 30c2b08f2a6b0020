package facts

import (
	"errors"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"testing"
)

// subsystem is where a disk of NVMe lies that several controllers may reach.
const subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0"

// reached is a disk of NVMe of several controllers, with a part.
func reached(more map[string]string) map[string]string {
	for name, content := range map[string]string{
		"sys/class/block/nvme0n1":                  "->../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1",
		"sys/class/block/nvme0n1p1":                "->../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/nvme0n1p1",
		"sys/dev/block/259:0":                      "->../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1",
		"sys/dev/block/259:1":                      "->../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/nvme0n1p1",
		subsystem + "/nvme0":                       "->../../../pci0000:00/0000:00:02.0/0000:02:00.0/nvme/nvme0",
		subsystem + "/nvme0n1/uevent":              "MAJOR=259\nDEVNAME=nvme0n1\n",
		subsystem + "/nvme0n1/nvme0n1p1/uevent":    "MAJOR=259\nDEVNAME=nvme0n1p1\n",
		subsystem + "/nvme0n1/nvme0n1p1/partition": "1\n",
	} {
		if _, there := more[name]; !there {
			more[name] = content
		}
	}
	return more
}

// Whoever has a disk or a part of it open raw holds the function that it lies on, also if several controllers reach it.
func TestRawHolders(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"below its function": {
			"sys/dev/block/259:0": "->../../devices/pci0000:00/0000:00:02.0/0000:02:00.0/nvme/nvme0/nvme0n1", diskFolder + "/nvme/nvme0/nvme0n1/uevent": "DEVNAME=nvme0n1\n",
			"proc/812/fd/4": "->/dev/nvme0n1",
		},
		"of a subsystem":           reached(map[string]string{"proc/812/fd/4": "->/dev/nvme0n1"}),
		"a part, of one subsystem": reached(map[string]string{"proc/812/fd/4": "->/dev/nvme0n1p1"}),
	} {
		files["proc/812/comm"] = "ceph-osd\n"
		if d := device(t, read(t, files), "0000:02:00.0"); len(d.Holders) != 1 || d.Holders[0].PID != 812 || d.Holders[0].Name != "ceph-osd" {
			t.Errorf("%s: holders %+v of nodes %q", name, d.Holders, d.Nodes)
		}
	}
}

// A disk is in use below a loop device and below a mounted part, also if several controllers reach it.
func TestLowerDisks(t *testing.T) {
	const loop = "sys/devices/virtual/block/loop0"
	mounted := "36 1 7:0 / /mnt rw - ext4 /dev/loop0 rw\n"
	on := func(backing string, more ...string) map[string]string {
		files := reached(map[string]string{"sys/class/block/loop0": "->../../devices/virtual/block/loop0", loop + "/loop/backing_file": backing + "\n", loop + "/dev": "7:0\n"})
		for _, mounts := range more {
			files["proc/1/mountinfo"] = mounts
		}
		return files
	}
	onMapping := on("/dev/mapper/vm-1")
	onMapping["sys/class/block/dm-3"] = "->../../devices/virtual/block/dm-3"
	onMapping["sys/devices/virtual/block/dm-3/dm/name"] = "vm-1\n"
	onMapping["sys/devices/virtual/block/dm-3/slaves/nvme0n1"] = "->x"
	for name, test := range map[string]struct {
		files map[string]string
		want  []Use
	}{
		"loop, mounted":       {on("/dev/nvme0n1", mounted), []Use{{"disk", "loop0", "/mnt"}}},
		"loop, not mounted":   {on("/dev/nvme0n1"), []Use{{"disk", "nvme0n1", "below loop0"}}},
		"a container's node":  {on("/nvme0n1p1 (deleted)"), []Use{{"disk", "nvme0n1p1", "below loop0"}}},
		"on a file":           {on("/var/images/nvme0n1"), nil},
		"on itself":           {on("/dev/loop0"), nil},
		"on a mapping":        {onMapping, []Use{{"disk", "dm-3", "below loop0"}}},
		"a part of many":      {reached(map[string]string{"proc/1/mountinfo": "36 1 259:1 / /data rw - ext4 /dev/nvme0n1p1 rw\n"}), []Use{{"disk", "nvme0n1p1", "/data"}}},
		"a volume of many":    {reached(map[string]string{subsystem + "/nvme0n1/holders/dm-3": "->x"}), []Use{{"disk", "nvme0n1", "below dm-3"}}},
		"a subsystem of none": {map[string]string{"sys/class/block/nvme0n1": "->../../devices/virtual/nvme-subsystem"}, nil},
	} {
		if got := device(t, read(t, test.files), "0000:02:00.0").Uses; !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// asked is a machine that tells who has disks for himself alone.
type asked struct {
	shut
	taken bool
	err   error
	nodes []string
}

func (a *asked) Alone(node string) (bool, error) {
	a.nodes = append(a.nodes, node)
	return a.taken, a.err
}

// The kernel is asked about whole disks of which no use and no holder is known.
func TestAlone(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		taken bool
		err   error
		asked []string
		uses  int
	}{
		"held":       {reached(map[string]string{}), true, nil, []string{"nvme0n1"}, 1},
		"free":       {reached(map[string]string{}), false, fs.ErrNotExist, []string{"nvme0n1"}, 0},
		"mounted":    {reached(map[string]string{"proc/1/mountinfo": "36 1 259:1 / /data rw - ext4 /dev/nvme0n1p1 rw\n"}), true, nil, nil, 1},
		"a process":  {reached(map[string]string{"proc/812/fd/4": "->/dev/nvme0n1"}), true, nil, nil, 0},
		"too late":   {reached(map[string]string{}), false, os.ErrDeadlineExceeded, []string{"nvme0n1"}, 0},
		"of no card": {map[string]string{"sys/class/block/ram0": "->../../devices/virtual/block/ram0", "sys/devices/virtual/block/ram0/uevent": "DEVNAME=ram0\n"}, true, nil, nil, 0},
	} {
		root := &asked{shut: shut{FS: tree(test.files)}, taken: test.taken, err: test.err}
		h, err := Read(root)
		if err != nil {
			t.Fatal(err)
		}
		if d := device(t, h, "0000:02:00.0"); len(d.Uses) != test.uses || !reflect.DeepEqual(root.nodes, test.asked) {
			t.Errorf("%s: uses %+v, asked about %q", name, d.Uses, root.nodes)
		}
		root.nodes = nil
		if _, err := Look(root); err != nil || root.nodes != nil {
			t.Errorf("%s: a look asked about %q, %v", name, root.nodes, err)
		}
		if late := slices.Contains(h.Unread, "dev/nvme0n1"); late != errors.Is(test.err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: unread %q", name, h.Unread)
		}
	}
}
