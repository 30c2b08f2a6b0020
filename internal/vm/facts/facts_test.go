package facts

import (
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/sysfs/sysfstest"
)

const (
	gpuFolder  = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
	diskFolder = "sys/devices/pci0000:00/0000:00:02.0/0000:02:00.0"
)

// tree is the root of a machine with a GPU and an NVMe disk. More files replace those; a content that begins with -> is a link, and
// "-" takes a file away.
func tree(more map[string]string) fstest.MapFS {
	files := map[string]string{
		"sys/bus/pci/devices/0000:01:00.0": "->../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0",
		gpuFolder + "/class":               "0x030200\n", gpuFolder + "/vendor": "0x10de\n", gpuFolder + "/device": "0x20b5\n",
		gpuFolder + "/driver":              "->../../../../bus/pci/drivers/nvidia",
		gpuFolder + "/iommu_group":         "->../../../../kernel/iommu_groups/7",
		gpuFolder + "/driver_override":     "(null)\n",
		gpuFolder + "/resource":            "0x00000000c6000000 0x00000000c6ffffff 0x0000000000040200\n0x0000021000000000 0x0000022fffffffff 0x000000000014220c\n0x0 0x0 0x0\n0x0000000000000000 0x0000000001ffffff 0x000000002014220c\n",
		gpuFolder + "/reset_method":        "flr bus\n",
		"sys/bus/pci/devices/0000:02:00.0": "->../../../devices/pci0000:00/0000:00:02.0/0000:02:00.0",
		diskFolder + "/class":              "0x010802\n", diskFolder + "/vendor": "0x144d\n", diskFolder + "/device": "0xa80a\n",
		diskFolder + "/reset": "",
		"proc/cmdline":        "root=/dev/sda secret=swordfish intel_iommu=on vfio-pci.ids=10de:20b5\n",
		"proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t NVIDIA A100\nGPU UUID: \t GPU-a\nDevice Minor: \t 3\n",
		"proc/self/ns/pid": "->pid:[4026531836]",
	}
	for name, content := range more {
		files[name] = content
	}
	return sysfstest.Tree(files)
}

func read(t *testing.T, more map[string]string) *Host {
	t.Helper()
	h, err := Read(tree(more))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func address(t *testing.T, text string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func device(t *testing.T, h *Host, at string) Device {
	t.Helper()
	d, found := h.Find(address(t, at))
	if !found {
		t.Fatalf("no device %s", at)
	}
	return d
}

func TestRead(t *testing.T) {
	h := read(t, map[string]string{
		"proc/812/fd/4": "->/dev/nvidia3", "proc/812/comm": "python3\n", "proc/812/cgroup": "0::/docker/" + strings.Repeat("ab", 32) + "\n",
		"proc/813/fd/1": "->/dev/null", "proc/self/fd/4": "->/dev/nvidia3",
		"proc/driver/nvidia/capabilities/gpu3/mig/gi1/access": "", "proc/driver/nvidia/capabilities/gpu3/mig/gi2/access": "",
	})
	d := device(t, h, "0000:01:00.0")
	if d.Driver != "nvidia" || d.Override != "" || d.Group != 7 || d.Model != "NVIDIA A100" || d.UUID != "GPU-a" || d.Instances != 2 {
		t.Errorf("%+v", d)
	}
	want := []BAR{{0, 16 << 20, true, false, true}, {1, 128 << 30, true, true, true}, {3, 32 << 20, true, true, false}}
	if !reflect.DeepEqual(d.BARs, want) {
		t.Errorf("regions %+v", d.BARs)
	}
	if !reflect.DeepEqual(d.Resets, []string{"flr", "bus"}) || !reflect.DeepEqual(d.Nodes, []string{"nvidia3", "vfio/7"}) {
		t.Errorf("resets %v, nodes %v", d.Resets, d.Nodes)
	}
	if holder := (Holder{812, "python3", "nvidia3", "abababababab"}); len(d.Holders) != 1 || d.Holders[0] != holder {
		t.Errorf("holders %+v", d.Holders)
	}
	if where, reserved := h.Reserved(d); !reserved || !strings.Contains(where, "vfio-pci.ids") {
		t.Errorf("reserved: %v %s", reserved, where)
	}
	if !reflect.DeepEqual(h.Parameters, []string{"intel_iommu=on", "vfio-pci.ids=10de:20b5"}) {
		t.Errorf("parameters %v", h.Parameters)
	}
	if disk := device(t, h, "0000:02:00.0"); disk.Group != NoGroup || !disk.ResetKnown || len(disk.Resets) != 1 {
		t.Errorf("disk %+v", disk)
	}
}

// Disks and default routes are found through what lies on them.
func TestUses(t *testing.T) {
	const mount = "36 1 %s / %s rw - ext4 %s rw\n"
	line := func(number, at, source string) string {
		return strings.NewReplacer("%s / %s", number+" / "+at, "- ext4 %s", "- ext4 "+source).Replace(mount)
	}
	block := "->../../devices/pci0000:00/0000:00:02.0/0000:02:00.0/nvme/nvme0/nvme0n1"
	for name, test := range map[string]struct {
		files map[string]string
		want  []Use
	}{
		"mounted":      {map[string]string{"proc/1/mountinfo": line("259:1", "/", "/dev/root"), "sys/class/block/nvme0n1": block, "sys/devices/pci0000:00/0000:00:02.0/0000:02:00.0/nvme/nvme0/nvme0n1/dev": "259:1\n"}, []Use{{"disk", "nvme0n1", "/"}}},
		"by its name":  {map[string]string{"proc/self/mountinfo": line("0:40", "/data", "/dev/nvme0n1"), "sys/class/block/nvme0n1": block}, []Use{{"disk", "nvme0n1", "/data"}}},
		"below a RAID": {map[string]string{"proc/1/mountinfo": line("9:0", "/", "/dev/md0"), "sys/class/block/md0": "->../../devices/virtual/block/md0", "sys/devices/virtual/block/md0/slaves/nvme0n1": "->x", "sys/class/block/nvme0n1": block}, []Use{{"disk", "md0", "/"}}},
		"by its mapping": {map[string]string{
			"proc/1/mountinfo": line("0:31", "/", "/dev/mapper/luks-1"), "sys/class/block/dm-0": "->../../devices/virtual/block/dm-0",
			"sys/devices/virtual/block/dm-0/dm/name": "luks-1\n", "sys/devices/virtual/block/dm-0/slaves/nvme0n1": "->x", "sys/class/block/nvme0n1": block,
		}, []Use{{"disk", "dm-0", "/"}}},
		"of two paths":  {map[string]string{"proc/1/mountinfo": line("259:1", "/", "/dev/nvme0n1"), "sys/class/block/nvme0n1": "->../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1", "sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0": "->../../../pci0000:00/0000:00:02.0/0000:02:00.0/nvme/nvme0"}, []Use{{"disk", "nvme0n1", "/"}}},
		"swap":          {map[string]string{"proc/swaps": "Filename Type\n/dev/nvme0n1 partition 1 0 -2\n", "sys/class/block/nvme0n1": block}, []Use{{"disk", "nvme0n1", "swap"}}},
		"perhaps ZFS":   {map[string]string{"proc/1/mountinfo": "36 1 0:40 / /tank rw - zfs tank rw\n", "sys/class/block/nvme0n1": block}, []Use{{"disk", "nvme0n1", "perhaps in a pool of ZFS"}}},
		"not mounted":   {map[string]string{"proc/1/mountinfo": line("0:22", "/proc", "proc"), "sys/class/block/nvme0n1": block}, nil},
		"circle":        {map[string]string{"proc/1/mountinfo": line("9:0", "/", "/dev/md0"), "sys/class/block/md0": "->../../devices/virtual/block/md0", "sys/devices/virtual/block/md0/slaves/md0": "->x"}, nil},
		"route":         {map[string]string{"proc/1/net/route": "eth0\t00000000\t0102030A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n", "sys/class/net/eth0": "->../../devices/pci0000:00/0000:00:02.0/0000:02:00.0/net/eth0"}, []Use{{"route", "eth0", ""}}},
		"below a bond":  {map[string]string{"proc/self/net/ipv6_route": strings.Repeat("0", 32) + " 00 " + strings.Repeat("0", 32) + " 00 " + strings.Repeat("0", 32) + " 00000064 00000001 00000000 00000003 bond0\n", "sys/class/net/bond0": "->../../devices/virtual/net/bond0", "sys/devices/virtual/net/bond0/lower_eth0": "->x", "sys/class/net/eth0": "->../../devices/pci0000:00/0000:00:02.0/0000:02:00.0/net/eth0"}, []Use{{"route", "bond0", ""}}},
		"half a route":  {map[string]string{"proc/1/net/route": "eth0\t00000080\t0102030A\t0003\t0\t0\t0\t00000080\t0\t0\t0\n", "sys/class/net/eth0": "->../../devices/pci0000:00/0000:00:02.0/0000:02:00.0/net/eth0"}, []Use{{"route", "eth0", ""}}},
		"hidden route":  {map[string]string{"proc/1/net/route": "br-ex\t00000000\t0102030A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n", "sys/class/net/br-ex": "->../../devices/virtual/net/br-ex", "sys/devices/virtual/net/br-ex/mtu": "1500\n", "sys/class/net/eth0": "->../../devices/pci0000:00/0000:00:02.0/0000:02:00.0/net/eth0"}, []Use{{"route", "br-ex", ""}}},
		"raw volume":    {map[string]string{"proc/1/mountinfo": line("0:22", "/proc", "proc"), "sys/class/block/nvme0n1": block, "sys/devices/pci0000:00/0000:00:02.0/0000:02:00.0/nvme/nvme0/nvme0n1/holders/dm-3": "->x"}, []Use{{"disk", "nvme0n1", "below dm-3"}}},
		"other network": {map[string]string{"proc/1/net/route": "eth0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n", "sys/class/net/eth0": "->../../devices/pci0000:00/0000:00:02.0/0000:02:00.0/net/eth0"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := device(t, read(t, test.files), "0000:02:00.0").Uses; !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// On machines without ACPI the PCI tree lies deeper.
func TestDeeperTree(t *testing.T) {
	const folder = "sys/devices/platform/40000000.pcie/pci0001:00/0001:00:00.0"
	h := read(t, map[string]string{
		"sys/bus/pci/devices/0001:00:00.0": "->../../../devices/platform/40000000.pcie/pci0001:00/0001:00:00.0",
		folder + "/class":                  "0x020000\n", folder + "/vendor": "0x15b3\n", folder + "/device": "0x1\n",
		folder + "/driver": "->../../../../../bus/pci/drivers/mlx5_core",
	})
	if d := device(t, h, "0001:00:00.0"); d.Driver != "mlx5_core" {
		t.Errorf("%+v", d)
	}
}

// What the machine tells of itself.
func TestMachine(t *testing.T) {
	h := read(t, map[string]string{
		"proc/cpuinfo": "vendor_id : AuthenticAMD\nflags : fpu svm\naddress sizes : 48 bits physical\n",
		"proc/meminfo": "MemFree: 1 kB\nMemTotal:  2048 kB\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":   "8\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "3\n",
		"sys/kernel/mm/hugepages/hugepages-0kB/nr_hugepages":      "8\n",
		"sys/kernel/mm/hugepages/other/nr_hugepages":              "8\n",
		"sys/kernel/mm/hugepages/1024kB/nr_hugepages":             "8\n",
		"proc/sys/kernel/osrelease":                               "6.12.0\n",
		"lib/modules/6.12.0/modules.builtin":                      "kernel/vfio.ko\n",
		"lib/modules/6.12.0/modules.dep":                          "kernel/vfio-pci.ko.xz: kernel/vfio.ko\nkernel/other.ko:\n",
		"sys/module/nvidia/taint":                                 "OE\n",
		"etc/modprobe.d/a.conf":                                   "# options vfio-pci ids=1:2\noptions  vfio-pci ids=10de:20b5\nblacklist\noptions other a=b\n",
		"etc/modprobe.d/a.bak":                                    "blacklist nouveau\n",
	})
	if want := (CPU{Vendor: "AuthenticAMD", Virtualization: Yes, AddressBits: 48}); h.CPU != want {
		t.Errorf("processor %+v", h.CPU)
	}
	if want := (Memory{Total: 2 << 20, Huge: []HugePages{{2 << 20, 8, 3}}}); !reflect.DeepEqual(h.Memory, want) {
		t.Errorf("memory %+v", h.Memory)
	}
	if want := map[string]Module{
		"vfio": {Loaded: true, Builtin: true, Available: true}, "vfio_pci": {Available: true, File: "kernel/vfio-pci.ko.xz"},
		"nvidia": {Loaded: true, Available: true, Foreign: true},
	}; !reflect.DeepEqual(h.Modules, want) {
		t.Errorf("modules %+v", h.Modules)
	}
	if want := []string{"options vfio-pci ids=10de:20b5"}; !reflect.DeepEqual(h.Rules, want) {
		t.Errorf("rules %q", h.Rules)
	}
	for flags, want := range map[string]Answer{"vmx": Yes, "fpu": No} {
		if got := read(t, map[string]string{"proc/cpuinfo": "vendor_id : GenuineIntel\nflags : " + flags + "\n"}).CPU.Virtualization; got != want {
			t.Errorf("%s: virtualisation %q", flags, got)
		}
	}
	if got := read(t, map[string]string{"proc/cpuinfo": "vendor_id : other\nflags : fpu\n"}).CPU.Virtualization; got != Unknown {
		t.Errorf("a processor of nobody: virtualisation %q", got)
	}
}

// A device node that sysfs tells is the device's, and names that are no paths are nobody's.
func TestNodes(t *testing.T) {
	const card = gpuFolder + "/drm/card0"
	h := read(t, map[string]string{
		"sys/dev/char/226:0":                  "->../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/drm/card0",
		card + "/uevent":                      "MAJOR=226\nDEVNAME=dri/card0\nDEVNAME=../etc\n",
		"sys/dev/char/1:3":                    "->../../devices/virtual/mem/null",
		"sys/devices/virtual/mem/null/uevent": "DEVNAME=null\n",
		"proc/9/fd/1":                         "->/dev/dri/card0", "proc/9/comm": "Xorg\n",
	})
	gpu := device(t, h, "0000:01:00.0")
	if want := []string{"dri/card0", "nvidia3", "vfio/7"}; !reflect.DeepEqual(gpu.Nodes, want) {
		t.Errorf("nodes %q", gpu.Nodes)
	}
	if want := []Holder{{9, "Xorg", "dri/card0", ""}}; !reflect.DeepEqual(gpu.Holders, want) {
		t.Errorf("holders %+v", gpu.Holders)
	}
}

// A machine without any of the folders has no facts, and no error.
func TestEmpty(t *testing.T) {
	h, err := Read(fstest.MapFS{})
	if err != nil || len(h.Devices) != 0 || h.KVM != No || h.IOMMU.TablesKnown || h.Locked != Unlimited {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestVGPU(t *testing.T) {
	h := read(t, map[string]string{
		gpuFolder + "/nvidia/current_vgpu_type":                             "0\n",
		gpuFolder + "/nvidia/creatable_vgpu_types":                          "ID    : vGPU Name\n1428 : NVIDIA H200X-141C\n",
		diskFolder + "/mdev_supported_types/nvidia-471/name":                "GRID A\nB\n",
		diskFolder + "/mdev_supported_types/nvidia-471/available_instances": "3\n",
		diskFolder + "/mdev_supported_types/nvidia-471/description":         "framebuffer=4096M, max_instance=20\n",
		diskFolder + "/mdev_supported_types/nvidia-471/devices/some uuid":   "->x",
	})
	if v := device(t, h, "0000:01:00.0").VGPU; v == nil || v.Interface != "vendor-vfio" || v.Current != "" || !reflect.DeepEqual(v.Types, []VGPUType{{ID: "1428", Name: "NVIDIA H200X-141C", Available: -1}}) {
		t.Errorf("%+v", v)
	}
	if v := device(t, h, "0000:02:00.0").VGPU; v == nil || v.Interface != "mdev" || v.Types[0].Available != 3 || v.Types[0].Most != 20 || v.Types[0].Made != 1 || !reflect.DeepEqual(v.Mdevs, []string{"some uuid"}) {
		t.Errorf("%+v", v)
	}
}

// config is a port's configuration space: the heads of extended capabilities, and what ACS can and does.
func config(can, does byte) []byte {
	c := make([]byte, configBytes)
	copy(c, []byte{0x86, 0x80, 0x34, 0x12, 0, 0, 0x10, 0})
	c[firstCapability], c[0x40], c[0x41] = 0x40, capExpress, 0x60
	c[0x60], c[0x61], c[0x62] = 0x09, 0, 0xaa // the vendor's own, which is not kept
	copy(c[0x100:], []byte{0x03, 0x00, 0x81, 0x14, 1, 2, 3, 4, 5, 6, 7, 8})
	copy(c[0x148:], []byte{0x0d, 0x00, 0x01, 0x00, can, 0, does, 0})
	return c
}

func TestPorts(t *testing.T) {
	for name, test := range map[string]struct {
		config []byte
		want   Port
	}{
		"apart":         {config(0x5f, 0x1d), Port{Readable: true, HasACS: true, Apart: true}},
		"switched off":  {config(0x5f, 0), Port{Readable: true, HasACS: true}},
		"cannot all":    {config(0x01, 0x01), Port{Readable: true}},
		"for all users": {config(0x5f, 0x1d)[:64], Port{}},
		"none":          {make([]byte, configBytes), Port{Readable: true}},
		"gone":          {[]byte(strings.Repeat("\xff", configBytes)), Port{Readable: true}},
		"a circle":      {append(append(make([]byte, 0x100), 0x03, 0, 0x01, 0x10), make([]byte, configBytes-0x104)...), Port{Readable: true}},
	} {
		if got := portOf(string(test.config)); *got != test.want {
			t.Errorf("%s: %+v, want %+v", name, *got, test.want)
		}
		kept := keptConfig(test.config)
		if got := portOf(string(kept)); *got != test.want {
			t.Errorf("%s, kept: %+v, want %+v", name, *got, test.want)
		}
		if strings.Contains(string(kept), "\x01\x02\x03\x04\x05") || len(kept) > 0x62 && kept[0x62] == 0xaa {
			t.Errorf("%s: a serial number or the vendor's own is kept", name)
		}
	}
}

// What is kept of a file is kept whole when it is kept again, and holds no secret and no address.
func TestKeep(t *testing.T) {
	secrets := []string{"swordfish", "10.1.2.3", "0102030A", "alice", "GenuineXeon", "00:11:22", "0102:030"}
	for name, content := range map[string]string{
		"proc/cmdline":                          "root=UUID=swordfish quiet iommu=pt token=swordfish\n",
		"proc/cpuinfo":                          "vendor_id : GenuineIntel\nmodel name : GenuineXeon\nflags : vmx fpu\naddress sizes : 46 bits physical, 48 bits virtual\n\nvendor_id : x\n",
		"proc/interrupts":                       "  24:  1 2 IR-PCI-MSI-0000:01:00.0 0-edge swordfish\n",
		"proc/1/mountinfo":                      "36 1 8:1 / /home/alice rw - ext4 /dev/sda1 rw\n37 1 0:5 / /proc rw - proc proc rw\n",
		"proc/1/net/route":                      "eth0\t00000000\t0102030A\t0003\t0\t0\t0\t00000000\t0\t0\t0\neth0\t0102030A\t0\t0001\t0\t0\t0\t00FFFFFF\n",
		"proc/1/net/if_inet6":                   "0102030A00000000001101020304050a 02 40 00 80 eth0\n",
		"proc/7/cgroup":                         "0::/user/alice/" + strings.Repeat("ab", 32) + "\n",
		"proc/self/status":                      "Name: swordfish\nCapEff:\t00\n",
		"etc/modprobe.d/a.conf":                 "options wifi key=swordfish\nsoftdep nvidia pre: vfio-pci\n",
		"lib/modules/6.1/modules.dep":           "kernel/a/vfio-pci.ko: kernel/a/vfio.ko\nkernel/a/swordfish.ko:\n",
		"sys/dev/char/226:0/uevent":             "MAJOR=226\nDEVNAME=dri/card0\nSERIAL=swordfish\n",
		gpuFolder + "/resource":                 "0x1 0xff 0x200\n0x0 0x0 0x0\n",
		"proc/driver/nvidia/gpus/x/information": "Model: A\nVideo BIOS: swordfish\nDevice Minor: 0\n",
		"proc/driver/nvidia/version":            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (swordfish@alice)\nGCC version: swordfish\n",
		"proc/cgroups":                          "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t2\t0102030A\t1\nrdma\t3\t0102030A\t1\n",
		gpuFolder + "/ports/1/gids/0":           "fe80:0000:0000:0000:0102:030A:0102:030A\n",
		gpuFolder + "/ports/1/gids/1":           "0000:0000:0000:0000:0000:ffff:0102:030A\n",
		gpuFolder + "/ports/1/gids/2":           "0000:0000:0000:0000:0000:0000:0000:0000\n",
		gpuFolder + "/ports/1/gids/3":           "swordfish 0102:030A\n",
	} {
		kept, wanted := Keep(name, content)
		if !wanted {
			t.Errorf("%s: nothing is kept", name)
		}
		if again, _ := Keep(name, kept); again != kept {
			t.Errorf("%s: kept again %q differs from %q", name, again, kept)
		}
		for _, secret := range secrets {
			if strings.Contains(kept, secret) {
				t.Errorf("%s keeps %s", name, secret)
			}
		}
	}
}

// Of an address its kind is kept, and the same kind is read of what is kept.
func FuzzGID(f *testing.F) {
	for _, seed := range []string{"fe80:0000:0000:0000:0102:0304:0506:0708\n", "0000:0000:0000:0000:0000:ffff:c0a8:0117\n", "0000:0000:0000:0000:0000:0000:0000:0000\n", "", "fe80", "\n", "::1", "FE80:0000:0000:0000:0102:0304:0506:070G"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kept, wanted := Keep(gpuFolder+"/ports/1/gids/0", text)
		if again, _ := Keep(gpuFolder+"/ports/1/gids/0", kept); again != kept {
			t.Errorf("%q is kept as %q, and that as %q", text, kept, again)
		}
		if wanted && GIDOf(kept) != GIDOf(text) || !wanted && GIDOf(text) != GIDNone {
			t.Errorf("%q is %s, and kept as %q", text, GIDOf(text), kept)
		}
	})
}

// Of mounts, routes and links exactly what is read is kept.
func TestKeptLines(t *testing.T) {
	zero := strings.Repeat("0", 32)
	for _, test := range []struct{ name, content, want string }{
		{"proc/1/mountinfo", "36 1 0:40 / /tank/alice rw - zfs tank/alice rw\n37 1 0:5 / /proc rw - proc proc rw\n38 1 0:30 / / rw - btrfs /dev/sda2 rw\n39 1 8:1 / /boot rw - ext4 systemd rw\n",
			"0 0 0:0 / /elsewhere rw - zfs none rw\n0 0 0:0 / / rw - any /dev/sda2 rw\n0 0 8:1 / /boot rw - any none rw\n"},
		{"proc/1/net/ipv6_route", zero + " 00 " + zero + " 00 fe800000000000000000000000000001 00000400 1 0 3 eth0\n" + zero + " 00 " + zero + " 00 " + zero + " ffffffff 1 0 200200 lo\nfe80" + zero[4:] + " 40 " + zero + " 00 " + zero + " 100 1 0 1 eth1\n" + zero + " 40 " + zero + " 00 " + zero + " 100 1 0 1 eth2\n",
			zero + " 00 " + zero + " 00 " + zero + " 00000000 00000000 00000000 00000003 eth0\n"},
		{"proc/1/net/route", "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\neth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\neth1\t0000010A\t0102030A\t0003\t0\t0\t0\t000000FF\t0\t0\t0\n",
			"eth1\t00000001\t00000000\t0001\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n"},
		{"proc/1/net/if_inet6", "fe800000000000000000000000000001 02 40 20 80 eth1\n20010db8000000000000000000000001 02 40 00 80     eth1\n20010db8000000000000000000000002 02 40 00 80     eth1\n",
			zero + " 00 00 00 80 eth1\n"},
		{diskFolder + "/mdev_supported_types/nvidia-471/description", "num_heads=4, framebuffer=4096M, max_instance=20\n", "max_instance=20\n"},
		{diskFolder + "/mdev_supported_types/nvidia-471/description", "swordfish\n", ""},
	} {
		if got, _ := Keep(test.name, test.content); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	for _, test := range []struct {
		name, target string
		want         bool
	}{
		{"sys/dev/char/226:0", "../../devices/pci0000:00/0000:01:00.0/drm/card0", true}, {"sys/dev/char/1:3", "../../devices/virtual/mem/null", false},
		{"proc/7/fd/3", "/dev/nvidia0", true}, {"proc/7/fd/4", "/home/alice/diary", false}, {"proc/self/ns/pid", "pid:[1]", true},
		{"sys/class/fd/nvme0n1", "../../devices/x", true},
	} {
		if got := KeepLink(test.name, test.target); got != test.want {
			t.Errorf("%s -> %s: kept %v", test.name, test.target, got)
		}
	}
}

func TestRemapping(t *testing.T) {
	for text, want := range map[string]Answer{"": Unknown, "24: 1 PCI-MSI 0-edge": No, "0: 1 IO-APIC 2-edge\n24: 1 IR-PCI-MSI-0000:01:00.0": Yes, "1: GICv3": Unknown} {
		if got := remapping(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestLocked(t *testing.T) {
	const limits = "Limit Soft Hard\nMax locked memory         65536 131072 bytes\n"
	for _, test := range []struct {
		limits, status string
		want           int64
	}{
		{limits, "CapEff:\t0000000000000000\n", 65536}, {limits, "CapEff:\t0000000000004000\n", Unlimited},
		{"Max locked memory unlimited unlimited bytes\n", "", Unlimited}, {"", "", Unlimited},
	} {
		if got := locked(test.limits, test.status); got != test.want {
			t.Errorf("%q %q: %d, want %d", test.limits, test.status, got, test.want)
		}
	}
}
