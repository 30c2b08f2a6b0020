package facts

import (
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Names and contents that the kernel does not make, and files that are gone, leave what they concern unknown, and nothing else.
func TestHostile(t *testing.T) {
	const gpuLink = "sys/bus/pci/devices/0000:01:00.0"
	for name, test := range map[string]struct {
		files map[string]string
		// told is what is read of what the files concern, want what it must be.
		told func(h *Host, gpu Device) any
		want any
	}{
		"newline in a driver":     {map[string]string{gpuFolder + "/driver": "->../../../../bus/pci/drivers/a\nb"}, func(_ *Host, gpu Device) any { return gpu.Driver }, "a\nb"},
		"a group that is no name": {map[string]string{gpuFolder + "/iommu_group": "->../../../../kernel/iommu_groups/-7"}, func(_ *Host, gpu Device) any { return gpu.Group }, NoGroup},
		"a huge group":            {map[string]string{gpuFolder + "/iommu_group": "->../../../../kernel/iommu_groups/99999999999"}, func(_ *Host, gpu Device) any { return gpu.Group }, NoGroup},
		"no class any more":       {map[string]string{gpuFolder + "/class": "-"}, leftOut, []string{"1 devices", gpuLink}},
		"a vendor that is none":   {map[string]string{gpuFolder + "/vendor": "yes\n"}, leftOut, []string{"1 devices", gpuLink}},
		"a link to elsewhere":     {map[string]string{gpuLink: "->../../../../etc"}, leftOut, []string{"1 devices", gpuLink}},
		"a device with spaces":    {map[string]string{"sys/bus/pci/devices/a b\nc": "->../../../devices/x"}, leftOut, []string{"2 devices", "sys/bus/pci/devices/a b\nc"}},
		"regions of nonsense":     {map[string]string{gpuFolder + "/resource": "0x0 0xffffffffffffffff 0x200\n- - -\n0x0 0x0 0x200\n0x2 0x1 0x200\n1 2\n0x1000 0x1fff 0x200\n"}, func(_ *Host, gpu Device) any { return len(gpu.BARs) }, 0},
		"negative functions":      {map[string]string{gpuFolder + "/sriov_numvfs": "-1\n", gpuFolder + "/sriov_totalvfs": "many\n"}, func(_ *Host, gpu Device) any { return []int{gpu.VFs, gpu.VFsTotal} }, []int{0, 0}},
		"minor of nonsense":       {map[string]string{"proc/driver/nvidia/gpus/0000:01:00.0/information": "Device Minor: ../../etc\n"}, func(_ *Host, gpu Device) any { return gpu.Nodes }, []string{"vfio/7"}},
		"CPU of nonsense":         {map[string]string{"proc/cpuinfo": "address sizes : 4096 bits physical\nflags\n"}, func(h *Host, _ Device) any { return h.CPU }, CPU{}},
		"release with a path":     {map[string]string{"proc/sys/kernel/osrelease": "a/b\n", "lib/modules/a/b/modules.dep": "kernel/vfio-pci.ko:\n"}, func(h *Host, _ Device) any { return h.ModulesKnown }, false},
		"interface with a path": {map[string]string{
			"proc/1/net/route":     "a/eth0\t00000000\t00000000\t0003\t0\t0\t0\t00000000\n",
			"sys/class/net/a/eth0": "->../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/net/eth0",
		}, func(_ *Host, gpu Device) any { return len(gpu.Uses) }, 0},
		"short mountinfo":      {map[string]string{"proc/1/mountinfo": "\n - \n1 2 3\n1 2 3 - a b\n1 2 8:0 / / - \n"}, func(_ *Host, gpu Device) any { return len(gpu.Uses) }, 0},
		"a processor's limits": {map[string]string{"proc/self/limits": "Max locked memory\n", "proc/self/status": "CapEff: none\n"}, func(h *Host, _ Device) any { return h.Locked }, Unlimited},
	} {
		t.Run(name, func(t *testing.T) {
			h := read(t, test.files)
			if disk := device(t, h, "0000:02:00.0"); disk.Vendor != 0x144d || len(disk.Uses) > 0 {
				t.Errorf("the other device is %+v", disk)
			}
			gpu, _ := h.Find(address(t, "0000:01:00.0"))
			if got := test.told(h, gpu); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// leftOut tells how many devices there are, and what could not be read.
func leftOut(h *Host, _ Device) any {
	return append([]string{fmt.Sprintf("%d devices", len(h.Devices))}, h.Unread...)
}

// shut is a tree of which some files may not be read, and some links are gone.
type shut struct {
	fs.FS
	names []string
}

func (s shut) Open(name string) (fs.File, error) {
	if slices.Contains(s.names, name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return s.FS.Open(name)
}

func (s shut) ReadLink(name string) (string, error) {
	if slices.Contains(s.names, name) {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrNotExist}
	}
	return fs.ReadLink(s.FS, name)
}

func (s shut) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(s.FS, name) }

// A device that vanishes while the machine is read is not there, and is not told as unread.
func TestVanishes(t *testing.T) {
	h, err := Read(shut{tree(nil), []string{"sys/bus/pci/devices/0000:01:00.0"}})
	if err != nil || len(h.Devices) != 1 || len(h.Unread) > 0 {
		t.Errorf("%+v, %v", h, err)
	}
}

// What may not be read is told, and so is a view without the machine's processes.
func TestBlind(t *testing.T) {
	h, err := Read(shut{tree(map[string]string{
		"proc/1/mountinfo": "x", "proc/9/fd/1": "->/dev/nvidia3", "dev/kvm": "", "proc/self/ns/pid": "->pid:[4026532000]",
	}), []string{"proc/1/mountinfo", "proc/9/fd", "dev/kvm"}})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(h.Unread, []string{"proc/1/mountinfo"}) || h.KVM != Unknown {
		t.Errorf("unread %q, KVM %q", h.Unread, h.KVM)
	}
	if len(h.Blind) != 2 || !strings.Contains(h.Blind[0], "of 1 process may") || !strings.Contains(h.Blind[1], "namespace") {
		t.Errorf("blind %q", h.Blind)
	}
	if h = read(t, nil); len(h.Blind) > 0 {
		t.Errorf("root of the machine is blind: %q", h.Blind)
	}
}

// A /proc that hides other users' processes is told to whom it hides them, also by a recording.
func TestHiddenProcesses(t *testing.T) {
	const (
		invisible = "22 1 0:21 / /proc rw,nosuid - proc proc rw,hidepid=invisible\n"
		plain     = "22 1 0:21 / /proc rw,nosuid - proc proc rw\n"
		elsewhere = "23 1 0:22 / /chroot/proc rw - proc proc rw,hidepid=2\n"
		user      = "CapEff:\t0000000000000000\n"
		root      = "CapEff:\t000001ffffffffff\n"
	)
	for name, c := range map[string]struct {
		mounts, status string
		blind          bool
	}{
		"a user":            {plain + invisible, user, true},
		"by the older name": {"22 1 0:21 / /proc rw - proc proc rw,hidepid=2\n", user, true},
		"root":              {invisible, root, false},
		"names alone":       {"22 1 0:21 / /proc rw - proc proc rw,hidepid=1\n", user, false},
		"another folder":    {plain + elsewhere, user, false},
	} {
		kept, _ := Keep("proc/self/mountinfo", c.mounts)
		for how, mounts := range map[string]string{"": c.mounts, " in a recording": kept} {
			files := tree(map[string]string{"proc/self/mountinfo": mounts, "proc/self/status": c.status})
			if blind := Hidden(files); (len(blind) == 1 && strings.Contains(blind[0], "hidepid")) != c.blind || len(blind) > 1 {
				t.Errorf("%s%s: blind %q", name, how, blind)
			}
		}
	}
}
