package doctor

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// swapFacts are what decides whether programs can have more memory than their GPU: by swap, whose memory the driver moves,
// and by suspension, which is the driver's checkpoint.
type swapFacts struct {
	// release is the driver's, open is true for NVIDIA's open kernel modules.
	release string
	open    bool
	// kernel is the release of Linux, processor is as Go names it.
	kernel, processor string
	// migrates is what the parameter says by which host memory comes to GPUs that use it (HMM): Y, N or "" where there is none.
	migrates string
	// gpus counts NVIDIA's, and old are the addresses of those before Pascal.
	gpus int
	old  []string
	// node tells that the device node of managed memory is there.
	node bool
	// instances tells that GPUs have MIG instances.
	instances bool
	// total and available are of host memory, reserve is the host's own swap space, in bytes.
	total, available, reserve uint64
	// programs is the limit of this process's cgroup.
	programs MemoryLimit
	// allowed is as [Host.SwapMemory].
	allowed uint64
}

// movers are the checks of swap and suspension. A machine without NVIDIA's kernel module has nothing to check, and of a
// simulated one the kernel's files tell nothing.
func (h Host) movers() []Check {
	release := driver.Finder{Root: h.Root}.Module()
	if release == "" || h.Simgpu != "" || h.MachinesOnly {
		return nil
	}
	return h.swapFacts(release).checks()
}

func (h Host) swapFacts(release string) swapFacts {
	text := func(name string) string {
		content, err := os.ReadFile(filepath.Join(h.Root, name))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(content))
	}
	f := swapFacts{
		release: release, open: strings.Contains(text("/proc/driver/nvidia/version"), "Open Kernel Module"),
		kernel: text("/proc/sys/kernel/osrelease"), processor: goruntime.GOARCH, migrates: hostMigrates(text(migration)),
		programs: LimitOfMemory(h.Root), allowed: h.SwapMemory,
	}
	_, err := os.Lstat(filepath.Join(h.Root, "/dev/nvidia-uvm"))
	f.node = err == nil
	instances, _ := filepath.Glob(filepath.Join(h.Root, "/proc/driver/nvidia/capabilities/gpu*/mig/gi*")) // the pattern is right
	f.instances = len(instances) > 0
	memory := text("/proc/meminfo")
	f.total, f.available, f.reserve = kibibytes(memory, "MemTotal"), kibibytes(memory, "MemAvailable"), kibibytes(memory, "SwapTotal")
	f.gpus, f.old = gpusOf(os.DirFS(filepath.Join("/", h.Root, "sys")))
	return f
}

// gpusOf counts NVIDIA's GPUs, and names those before Pascal.
func gpusOf(sys fs.FS) (count int, old []string) {
	const display, nvidia = 0x03, 0x10de
	devices, err := pci.Scan(sys)
	if err != nil {
		return 0, nil // of no GPU is known how old it is
	}
	for _, d := range devices {
		if d.Vendor != nvidia || d.Class>>16 != display {
			continue
		}
		count++
		if beforePascal(d.ID) {
			old = append(old, d.Address.String())
		}
	}
	return count, old
}

// beforePascal tells whether a GPU is older than the first whose managed memory comes and goes by page faults. PCI numbers of
// GP100, the first, begin at 15f0 (the public list of PCI IDs); those of a part of Maxwell lie behind it.
func beforePascal(id uint16) bool {
	const gp100, maxwell, gp102 = 0x15f0, 0x1600, 0x1b00
	return id < gp100 || id >= maxwell && id < gp102
}

// hostMigrates turns the module's parameter, which disables, around.
func hostMigrates(disabled string) string {
	return map[string]string{"Y": "N", "N": "Y", "1": "N", "0": "Y"}[disabled]
}

// kibibytes finds a line such as "MemTotal:  2048 kB", in bytes; 0 where there is none.
func kibibytes(text, name string) uint64 {
	for line := range strings.Lines(text) {
		value, found := strings.CutPrefix(line, name+":")
		if !found {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 54)
		if err != nil {
			return 0
		}
		return n << 10
	}
	return 0
}

func (f swapFacts) checks() []Check {
	checks := []Check{f.swap()}
	if f.migrates != "" {
		checks = append(checks, f.eviction())
	}
	return append(checks, f.memory(), f.suspend())
}

// warn is the status of what is only to be known until somebody allows swap.
func (f swapFacts) warn() Status {
	if f.allowed > 0 {
		return Warn
	}
	return OK
}

// next is what to do, which nobody has to while swap is not allowed.
func (f swapFacts) next(text string) string {
	if f.allowed > 0 {
		return text
	}
	return ""
}

func (f swapFacts) swap() Check {
	c := Check{ID: "swap", Name: "swap", Status: OK}
	switch {
	case strings.Contains(strings.ToLower(f.kernel), "microsoft"):
		c.Status, c.Found = f.warn(), "not possible: in WSL the driver does not move managed memory page by page"
		c.Next = f.next("take swapMemory out of the agent's configuration")
	case !f.node:
		c.Status, c.Found = f.warn(), "not possible: there is no /dev/nvidia-uvm, which managed memory needs"
		c.Next = f.next("run `nvidia-modprobe -u -c 0`")
	case f.gpus > 0 && len(f.old) == f.gpus:
		c.Status, c.Found = f.warn(), "not possible: no GPU here is as new as Pascal, the first whose managed memory comes and goes by page faults"
		c.Next = f.next("take swapMemory out of the agent's configuration")
	case f.allowed > 0:
		c.Found = "allowed: swapped and suspended memory of all together may take " + v1alpha1.FormatBytes(f.allowed) + " of host memory"
	default:
		c.Found = "possible, and off: no agent here has host memory for it"
	}
	if len(f.old) > 0 && len(f.old) < f.gpus {
		c.Found += "; not on " + strings.Join(f.old, ", ") + ", older than Pascal"
	}
	return c
}

// eviction tells of the mode with which a driver was seen to evict for ever. Only the open modules have it (NVIDIA's
// announcement of heterogeneous memory management, 2023).
func (f swapFacts) eviction() Check {
	c := Check{ID: "swap.eviction", Name: "eviction", Status: OK, Found: "heterogeneous memory management (HMM) is off"}
	if f.migrates == "N" {
		return c
	}
	if !f.open {
		c.Found += ": NVIDIA's proprietary kernel modules do not have it"
		return c
	}
	c.Status = f.warn()
	c.Found = fmt.Sprintf("heterogeneous memory management (HMM) is on, with driver %s and Linux %s: with it an open kernel module (595.71.05, on Blackwell) "+
		"looped for ever while it evicted memory, until the machine was restarted (https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1223)",
		f.release, cmp.Or(f.kernel, "of unknown release"))
	if f.allowed > 0 {
		c.Next = "as root, where no program needs it, turn it off with these commands, which end when no program uses a GPU; or restart the machine after the first"
		c.Commands = []string{
			"echo 'options nvidia_uvm uvm_disable_hmm=1' >/etc/modprobe.d/divvy-uvm.conf",
			"modprobe -r nvidia_uvm && modprobe nvidia_uvm",
		}
	}
	return c
}

func (f swapFacts) memory() Check {
	c := Check{ID: "swap.memory", Name: "host memory", Status: OK, Found: "unknown"}
	if f.total > 0 {
		c.Found = fmt.Sprintf("%s, %s of it available", v1alpha1.FormatBytes(f.total), v1alpha1.FormatBytes(f.available))
	}
	if f.total > 0 && f.allowed >= f.total {
		c.Status = Warn
		c.Found += "; swapped and suspended memory may take " + v1alpha1.FormatBytes(f.allowed) + ", which is more than programs leave it"
		c.Next = "lower swapMemory in the agent's configuration to what the machine can spare"
	}
	if f.reserve > 0 {
		c.Found += "; the host's swap space of " + v1alpha1.FormatBytes(f.reserve) + " can take what left GPUs, which makes turns much slower"
	}
	if f.programs.Bytes > 0 {
		c.Found += fmt.Sprintf("; programs that are started here may have %s together (%s), what leaves a GPU included", v1alpha1.FormatBytes(f.programs.Bytes), f.programs.File)
	}
	return c
}

// The driver of the first release with checkpoints as functions, and of the first that saves memory of which several
// processes know (NVIDIA's documentation of the driver API and of cuda-checkpoint).
const (
	checkpoints       = 570
	sharedCheckpoints = 610
)

func (f swapFacts) suspend() Check {
	c := Check{ID: "suspend", Name: "suspend", Status: OK}
	branch, _, _ := strings.Cut(f.release, ".")
	major, err := strconv.Atoi(branch)
	switch {
	case err != nil || major < checkpoints:
		c.Found = fmt.Sprintf("not possible: driver %s has no checkpoints of processes, which begin with %d", f.release, checkpoints)
		return c
	case f.processor != "amd64":
		c.Found = "not possible: drivers have no checkpoints of processes on " + f.processor
		return c
	case f.allowed > 0:
		c.Found = "allowed"
	default:
		c.Found = "possible, and off: no agent here has host memory for it"
	}
	if major < sharedCheckpoints {
		c.Found += fmt.Sprintf("; not for shares with memory that several processes know (before driver %d)", sharedCheckpoints)
	}
	if f.instances {
		c.Found += "; not in MIG instances"
	}
	return c
}
