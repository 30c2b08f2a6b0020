package doctor

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	proprietary = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
	openModule  = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build  (dvs-builder)\n"
	gpuOf       = "sys/devices/pci0000:3a/0000:3b:00.0/"
	secondOf    = "sys/devices/pci0000:5d/0000:5e:00.0/"
)

// roomy is a machine on which swap and suspension are possible, but for what is changed.
func roomy(change map[string]string) map[string]string {
	files := map[string]string{
		"proc/driver/nvidia/version": openModule, "proc/sys/kernel/osrelease": "6.14.0-1015\n", "dev/nvidia-uvm": "",
		migration[1:]:       "Y\n",
		"proc/meminfo":      "MemTotal:       268435456 kB\nMemFree:        1 kB\nMemAvailable:   209715200 kB\nSwapTotal:             0 kB\n",
		"proc/self/cgroup":  "0::/user.slice/user-1000.slice\n",
		gpuOf + "vendor":    "0x10de\n",
		gpuOf + "device":    "0x2330\n",
		gpuOf + "class":     "0x030200\n",
		secondOf + "vendor": "0x10de\n", secondOf + "device": "0x15f8\n", secondOf + "class": "0x030200\n",
	}
	maps.Copy(files, change)
	return files
}

// linkDevices makes the links by which the kernel lists PCI functions.
func linkDevices(t *testing.T, root string) {
	t.Helper()
	list := filepath.Join(root, "sys/bus/pci/devices")
	if err := os.MkdirAll(list, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{gpuOf, secondOf} {
		name := filepath.Base(folder)
		if err := os.Symlink(filepath.Join("../../..", strings.TrimPrefix(folder, "sys/")), filepath.Join(list, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// Each fact is told by its id; what has to be done, only where an agent allows swap.
func TestSwap(t *testing.T) {
	const group, folder = "sys/fs/cgroup/user.slice/user-1000.slice/memory.max", "sys/fs/cgroup/user.slice/memory.max"
	for name, c := range map[string]struct {
		change  map[string]string
		allowed uint64
		id      ID
		status  Status
		found   string
		next    string
	}{
		"possible":                 {nil, 0, "swap", OK, "possible, and off", ""},
		"allowed":                  {nil, 64 << 30, "swap", OK, "may take 64Gi of host memory", ""},
		"an old GPU":               {map[string]string{gpuOf + "device": "0x17c2\n"}, 1 << 30, "swap", OK, "not on 0000:3b:00.0, older than Pascal", ""},
		"old GPUs":                 {map[string]string{gpuOf + "device": "0x1db4\n", secondOf + "vendor": "0x1002"}, 0, "swap", OK, "possible, and off", ""},
		"none but old GPUs":        {map[string]string{gpuOf + "device": "0x13c0\n", secondOf + "device": "0x102d\n"}, 0, "swap", OK, "no GPU here is as new as Pascal", ""},
		"none but old, allowed":    {map[string]string{gpuOf + "device": "0x13c0\n", secondOf + "device": "0x102d\n"}, 1, "swap", Warn, "no GPU here is as new as Pascal", "take swapMemory out"},
		"WSL":                      {map[string]string{"proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2"}, 1, "swap", Warn, "in WSL", "take swapMemory out"},
		"HMM is off":               {nil, 1, "swap.eviction", OK, "is off", ""},
		"HMM":                      {map[string]string{migration[1:]: "N\n"}, 1, "swap.eviction", Warn, "driver 595.71.05 and Linux 6.14.0-1015", "turn it off"},
		"HMM, and no swap":         {map[string]string{migration[1:]: "N\n"}, 0, "swap.eviction", OK, "issues/1223", ""},
		"modules without HMM":      {map[string]string{migration[1:]: "N\n", "proc/driver/nvidia/version": proprietary}, 1, "swap.eviction", OK, "proprietary", ""},
		"memory":                   {nil, 64 << 30, "swap.memory", OK, "256Gi, 200Gi of it available", ""},
		"more than there is":       {nil, 256 << 30, "swap.memory", Warn, "may take 256Gi", "lower swapMemory"},
		"a limit":                  {map[string]string{group: "8589934592\n", folder: "max\n"}, 0, "swap.memory", OK, "may have 8Gi together (/" + group + ")", ""},
		"a limit above":            {map[string]string{group: "8589934592\n", folder: "4294967296\n"}, 0, "swap.memory", OK, "may have 4Gi together (/" + folder + ")", ""},
		"the host swaps":           {map[string]string{"proc/meminfo": "MemTotal: 1024 kB\nMemAvailable: 1024 kB\nSwapTotal: 2048 kB\n"}, 0, "swap.memory", OK, "swap space of 2Mi", ""},
		"no facts of memory":       {map[string]string{"proc/meminfo": "MemTotal: x kB\n"}, 1, "swap.memory", OK, "unknown", ""},
		"suspension":               {nil, 0, "suspend", OK, "possible, and off: no agent here has host memory for it; not for shares with memory that several", ""},
		"suspension, allowed":      {map[string]string{"proc/driver/nvidia/version": strings.ReplaceAll(openModule, "595.71.05", "610.43.02")}, 1, "suspend", OK, "allowed", ""},
		"a driver without":         {map[string]string{"proc/driver/nvidia/version": proprietary}, 1, "suspend", OK, "driver 550.54.15 has no checkpoints", ""},
		"suspension and instances": {map[string]string{"proc/driver/nvidia/capabilities/gpu0/mig/gi1/access": ""}, 1, "suspend", OK, "not in MIG instances", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := machine(t, roomy(c.change))
			h.SwapMemory = c.allowed
			linkDevices(t, h.Root)
			checks := h.movers()
			at := slices.IndexFunc(checks, func(one Check) bool { return one.ID == c.id })
			if at < 0 {
				t.Fatalf("no check %s: %+v", c.id, checks)
			}
			want(t, checks[at], c.status, c.found, c.next)
		})
	}
}

// Without the device node of managed memory there is no swap, and a machine without the driver has nothing to check.
func TestSwapWithoutItsNode(t *testing.T) {
	files := roomy(nil)
	delete(files, "dev/nvidia-uvm")
	h := machine(t, files)
	h.SwapMemory = 1
	want(t, h.movers()[0], Warn, "no /dev/nvidia-uvm", "nvidia-modprobe -u")
	h.Simgpu = "/run/divvy/simgpu/gpus"
	if checks := h.movers(); len(checks) != 0 {
		t.Errorf("of a simulated machine: %+v", checks)
	}
	if checks := machine(t, nil).movers(); len(checks) != 0 {
		t.Errorf("without a driver: %+v", checks)
	}
}

func TestSuspendOnOtherProcessors(t *testing.T) {
	f := swapFacts{release: "580.95.05", processor: "arm64", allowed: 1}
	want(t, f.suspend(), OK, "not possible: drivers have no checkpoints of processes on arm64", "")
}

func TestBeforePascal(t *testing.T) {
	for id, old := range map[uint16]bool{
		0x1380: true /* GTX 750 Ti */, 0x102d: true /* K80 */, 0x13f2: true /* M60 */, 0x17fd: true, /* M40 */
		0x15f8: false /* P100 */, 0x1b38: false /* P40 */, 0x1db4: false /* V100 */, 0x1eb8: false /* T4 */, 0x2bb5: false, /* B200's generation */
	} {
		if beforePascal(id) != old {
			t.Errorf("%#x: %v", id, !old)
		}
	}
}

// The smallest limit counts, of the cgroup and those above, in both versions and in a container that sees its own alone.
func TestLimitOfMemory(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		bytes uint64
		file  string
	}{
		"nothing":              {nil, 0, ""},
		"no limit":             {map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 0, ""},
		"a container":          {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4096\n"}, 4096, "/sys/fs/cgroup/memory.max"},
		"version 1":            {map[string]string{"proc/self/cgroup": "4:cpu,cpuacct:/a\n3:memory:/a/b\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "8192\n"}, 8192, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"},
		"version 1, unlimited": {map[string]string{"proc/self/cgroup": "3:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, 0, ""},
		"a path not seen here": {map[string]string{"proc/self/cgroup": "3:memory:/docker/c1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "16384\n"}, 16384, "/sys/fs/cgroup/memory/memory.limit_in_bytes"},
		"a path upwards":       {map[string]string{"proc/self/cgroup": "0::/../../x\n", "sys/fs/cgroup/memory.max": "1\n"}, 1, "/sys/fs/cgroup/memory.max"},
		"no lines":             {map[string]string{"proc/self/cgroup": "0:\nnothing\n"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := LimitOfMemory(machine(t, c.files).Root); got != (MemoryLimit{c.bytes, c.file}) {
				t.Errorf("got %+v, want %d of %s", got, c.bytes, c.file)
			}
		})
	}
}

func TestCharge(t *testing.T) {
	root := machine(t, map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "8589934592\n"}).Root
	want(t, Charge(root, 16<<30), Warn, "16Gi can be in host memory, and programs here may have 8Gi", "at least 16Gi")
	want(t, Charge(root, 4<<30), OK, "4Gi can be in host memory, of the 8Gi", "")
	want(t, Charge(machine(t, nil).Root, 4<<30), OK, "not limited here", "")
}
