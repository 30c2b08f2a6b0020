package simgpu

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The most that one simulated machine holds; sizes of the shared state.
const (
	MaxGPUs     = 16
	MaxNICs     = 32
	MaxSwitches = 32
	MaxNodes    = 16
	// MaxLinks is the most NVLinks of one GPU, as on Hopper.
	MaxLinks = 18
)

// blockBytes is the unit in which the driver hands out device memory.
const blockBytes = 2 << 20

// The clocks of a machine: the host's, or one that moves on command alone.
const (
	clockReal    = "real"
	clockVirtual = "virtual"
)

// What a machine's driver does with a handle that has ended: it ends the program, answers an error, or answers an error
// and gives the number to the next handle at once. The empty name is none of them: its number 0 ends the program.
var deadHandles = map[string]uint32{"end": SimDeadEnd, "count": SimDeadCount, "reuse": SimDeadReuse}

// What a machine's NVML tells of the memory of processes. The empty name is none of them: its number 0 tells all.
var figures = map[string]uint32{"told": SimFiguresTold, "hidden": SimFiguresHidden, "foreign": SimFiguresForeign}

// Whether a driver moves managed memory in one direction at a time, and whether kernels that are not known by name touch what
// their parameters name. The empty names are none of them: their number 0 is the usual answer, no.
var (
	duplexes = map[string]uint32{"full": 0, "half": 1}
	touching = map[string]uint32{"nothing": 0, "named": 1}
)

// maxDuration bounds every cost: longer is a slip of the unit.
const maxDuration = time.Minute

// maxSampling bounds window and lag: the simulated driver keeps 10 s of samples.
const maxSampling = 5 * time.Second

var (
	nameForm    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$`)
	driverForm  = regexp.MustCompile(`^\d{3}\.\d{1,3}(\.\d{1,2})?$`)
	versionForm = regexp.MustCompile(`^(\d{1,2})\.(\d)$`)
	pciForm     = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
	bridgeForm  = regexp.MustCompile(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`)
	idForm      = regexp.MustCompile(`^0x[0-9a-f]{8}$`)
	cpusForm    = regexp.MustCompile(`^\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*$`)
)

// faults collects what Validate finds.
type faults []*Fault

func (f *faults) add(field, format string, args ...any) {
	*f = append(*f, &Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (f *faults) match(field, value string, form *regexp.Regexp, example string) {
	if !form.MatchString(value) {
		f.add(field, "%q is not of the form %s", value, example)
	}
}

func (f *faults) oneOf(field, value string, names []string) {
	if !slices.Contains(names, value) {
		f.add(field, "%q is none of %s", value, strings.Join(names, ", "))
	}
}

func (f *faults) between(field string, value, least, most uint64) {
	if value < least || value > most {
		f.add(field, "%d is not between %d and %d", value, least, most)
	}
}

func (f *faults) amount(field string, value, least, most Bytes) {
	if value < least || value > most {
		f.add(field, "%v is not between %v and %v", value, least, most)
	}
}

func (f *faults) duration(field string, value, least, most time.Duration) {
	if value < least || value > most {
		f.add(field, "%v is not between %v and %v", value, least, most)
	}
}

// Validate returns everything that is wrong with the machine.
func (m *Machine) Validate() []*Fault {
	var f faults
	f.oneOf("apiVersion", m.APIVersion, []string{APIVersion})
	f.oneOf("kind", m.Kind, []string{Kind})
	f.match("name", m.Name, nameForm, "lower case letters, digits and dashes, at most 42")
	if m.Clock != "" {
		f.oneOf("clock", m.Clock, []string{clockReal, clockVirtual})
	}
	if m.DeadHandles != "" {
		f.oneOf("deadHandles", m.DeadHandles, keysOf(deadHandles))
	}
	f.match("driver.version", m.Driver.Version, driverForm, "550.90.07")
	f.match("driver.cuda", m.Driver.CUDA, versionForm, "12.4")
	m.GPU.validate(&f)
	m.GPU.validateMIG(&f)
	m.Costs.validate(&f)
	m.Managed.validate(&f)
	f.duration("sampling.window", m.Sampling.Window, time.Millisecond, maxSampling)
	f.duration("sampling.lag", m.Sampling.Lag, 0, maxSampling)
	f.duration("sampling.processLag", m.Sampling.ProcessLag, 0, maxSampling)
	if m.Sampling.Processes != "" {
		f.oneOf("sampling.processes", m.Sampling.Processes, keysOf(figures))
	}
	m.validatePlaces(&f)
	m.validateNVLink(&f)
	return f
}

func (g *Model) validate(f *faults) {
	if g.Name == "" || len(g.Name) > 95 || strings.ContainsFunc(g.Name, unicode.IsControl) {
		f.add("gpu.model", "must have 1 to 95 bytes and no control characters")
	}
	f.oneOf("gpu.brand", g.Brand, keysOf(brands))
	f.oneOf("gpu.architecture", g.Architecture, keysOf(architectures))
	f.match("gpu.computeCapability", g.ComputeCapability, versionForm, `"8.0"`)
	f.amount("gpu.memory", g.Memory, 64<<20, 4<<40)
	switch {
	case g.Reserved >= g.Memory:
		f.add("gpu.reserved", "%v leaves nothing of %v", g.Reserved, g.Memory)
	case (g.Memory-g.Reserved)%blockBytes != 0:
		f.add("gpu.reserved", "%v of %v leaves %d bytes, not whole blocks of 2 MiB", g.Reserved, g.Memory, uint64(g.Memory-g.Reserved))
	case g.Context > g.Memory-g.Reserved:
		f.add("gpu.context", "%v is more than the %v that the driver leaves", g.Context, g.Memory-g.Reserved)
	}
	f.amount("gpu.code", g.Code, 0, 1<<30)
	f.amount("gpu.bar1", g.BAR1, 1<<20, 4<<40)
	f.between("gpu.multiprocessors", uint64(g.Multiprocessors), 1, 1024)
	f.between("gpu.clocks.graphics", uint64(g.Clocks.Graphics), 1, 10000)
	f.between("gpu.clocks.memory", uint64(g.Clocks.Memory), 1, 100000)
	f.amount("gpu.bandwidth.host", g.Bandwidth.Host, 1<<20, 1<<50)
	f.amount("gpu.bandwidth.memory", g.Bandwidth.Memory, 1<<20, 1<<50)
	f.between("gpu.powerLimit", uint64(g.PowerLimit), 1, 10000)
	f.between("gpu.pcie.generation", uint64(g.PCIe.Generation), 1, 7)
	f.between("gpu.pcie.width", uint64(g.PCIe.Width), 1, 32)
	f.match("gpu.deviceID", g.DeviceID, idForm, `"0x20b510de"`)
	f.match("gpu.subsystemID", g.SubsystemID, idForm, `"0x153310de"`)
}

func (c *Costs) validate(f *faults) {
	f.duration("costs.alloc", c.Alloc, 0, maxDuration)
	f.duration("costs.load", c.Load, 0, maxDuration)
	f.duration("costs.launch", c.Launch, 0, maxDuration)
	f.duration("costs.kernel", c.Kernel, 0, maxDuration)
	f.duration("costs.event", c.Event, time.Nanosecond, maxDuration)
	f.duration("costs.timeSlice", c.TimeSlice, time.Microsecond, maxDuration)
	f.between("costs.queue", uint64(c.Queue), 1, 1<<20)
}

func (m *Managed) validate(f *faults) {
	f.duration("managed.fault", m.Fault, 0, maxDuration)
	f.between("managed.batch", uint64(m.Batch), 0, 1<<16)
	if m.Scattered != 0 {
		f.amount("managed.scattered", m.Scattered, 1<<20, 1<<50)
	}
	if m.Duplex != "" {
		f.oneOf("managed.duplex", m.Duplex, keysOf(duplexes))
	}
	if m.Kernels != "" {
		f.oneOf("managed.kernels", m.Kernels, keysOf(touching))
	}
	if m.HostMemory != 0 {
		f.amount("managed.hostMemory", m.HostMemory, blockBytes, 1<<50)
	}
}

// versionParts splits "12.4" into 12 and 4; both are 0 for another form.
func versionParts(version string) (major, minor uint32) {
	match := versionForm.FindStringSubmatch(version)
	if match == nil {
		return 0, 0
	}
	return digits(match[1]), digits(match[2])
}

// cudaVersion is the CUDA version that the driver claims, as cuDriverGetVersion answers it: 12040 for 12.4.
func (m *Machine) cudaVersion() uint32 {
	major, minor := versionParts(m.Driver.CUDA)
	return major*1000 + minor*10
}

func digits(text string) uint32 {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}
