// Package nvml is the part of NVIDIA's management library that Divvy needs, with
// plain Go types. No other package calls NVML.
//
// A call may never return, if the driver waits for its GPU. The agent therefore asks
// through the processes of package helper.
//
// A process can have only one library open at a time: go-nvml resolves its calls
// in the process's global scope, where the first definition wins.
//
// go-nvml leaves its symbols unresolved until they are called, and a call to a
// function that the driver lacks would end the process. So the program is linked
// with -Wl,-z,lazy (by the Makefile, because cgo directives do not allow it), and
// every function is looked up before it is called.
package nvml

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// ErrDriver marks a driver that is missing or does not answer.
var ErrDriver = errors.New("NVIDIA driver")

// GPU is what stays the same about a GPU while the driver runs.
type GPU struct {
	// Index is NVML's, in the order of PCI addresses.
	Index int
	UUID  string
	Name  string
	// PCI is the bus address, such as 00000000:3B:00.0.
	PCI string
	// DeviceID is the device's PCI id with the vendor's in the low half, such as 0x233010DE.
	DeviceID uint32
	// Total is all memory; Reserved is what the driver keeps for itself, in
	// bytes.
	Total, Reserved uint64
	// Silent tells that the driver does not tell of the GPU now, and that the rest is
	// what it said before.
	Silent bool `json:",omitempty"`
}

// Process is a process that has a context on a GPU.
type Process struct {
	// PID is in the driver's pid namespace: the host's.
	PID int
	// Used is its memory in bytes.
	Used uint64
	// Hidden is true where the driver does not report Used, as in some sandboxes.
	Hidden bool
	// Instances are the numbers of the GPU instances on which it is, of a GPU in MIG mode; empty where the driver does not
	// tell.
	Instances []int
}

// Version is a driver's version and the CUDA version that it serves.
type Version struct {
	Driver string
	// CUDA is 12040 for 12.4.
	CUDA int
}

// Library is an open NVML. Several goroutines may call its methods at once.
type Library struct {
	api     gonvml.Interface
	version Version
	// memoryV2 tells that the driver reports reserved memory apart (since 510).
	memoryV2 bool

	// use is held for reading by every call, and for writing while the library is initialised anew.
	use sync.RWMutex
	// closed tells that initialising again failed.
	closed bool
	// uuids are the GPUs by index, as they were listed last. The driver's indexes may change when the library is
	// initialised anew, and those of this package must not. guard protects uuids and the fields below.
	guard    sync.Mutex
	uuids    map[int]string
	places   map[int]string // PCI addresses
	reopened bool
	events   map[int]gonvml.EventSet
}

// required are the functions that Divvy cannot work without. All drivers since
// 2015 (R352) have them.
var required = []string{
	"nvmlShutdown", "nvmlSystemGetDriverVersion", "nvmlDeviceGetName", "nvmlDeviceGetUUID",
	"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetIndex",
}

// versioned are functions of which go-nvml takes the newest version. The driver
// must have one of each.
var versioned = [][]string{
	{"nvmlInit_v2", "nvmlInit"},
	{"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
	{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
	{"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"},
	{"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses"},
}

// Open loads the library at path and initialises it.
func Open(path string) (*Library, error) {
	if err := inspect(path); err != nil {
		return nil, fmt.Errorf("%w: open %s: %w", ErrDriver, path, err)
	}
	api := gonvml.New(gonvml.WithLibraryPath(path))
	if ret := api.Init(); ret != gonvml.SUCCESS {
		return nil, fmt.Errorf("%w: open %s: %s: is the kernel module loaded? `nvidia-smi` tells more", ErrDriver, path, reason(ret))
	}
	l := &Library{api: api, uuids: map[int]string{}, places: map[int]string{}, events: map[int]gonvml.EventSet{}}
	if err := l.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrDriver, path, err), l.Close())
	}
	return l, nil
}

// inspect looks every needed function up. It does so before the library is
// initialised, because that is already a call.
func inspect(path string) error {
	library := dl.New(path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := library.Open(); err != nil {
		return fmt.Errorf("load the library: %w", err)
	}
	return errors.Join(needed(library.Lookup), library.Close())
}

func needed(lookup func(symbol string) error) error {
	for _, symbol := range required {
		if lookup(symbol) != nil {
			return fmt.Errorf("it lacks %s: install a newer driver", symbol)
		}
	}
	for _, names := range versioned {
		if !slices.ContainsFunc(names, func(symbol string) bool { return lookup(symbol) == nil }) {
			return fmt.Errorf("it lacks %s: install a newer driver", names[0])
		}
	}
	return nil
}

// reason names a result without calling into a library that may not be open.
func reason(ret gonvml.Return) string {
	switch ret {
	case gonvml.ERROR_DRIVER_NOT_LOADED:
		return "the driver is not loaded"
	case gonvml.ERROR_NO_PERMISSION:
		return "no permission to the device files"
	}
	return fmt.Sprintf("NVML result %d", int(ret))
}

// has reports whether the driver has a function.
func (l *Library) has(symbol string) bool {
	return l.api.Extensions().LookupSymbol(symbol) == nil
}

// read asks for what does not change while the library is open.
func (l *Library) read() error {
	l.memoryV2 = l.has("nvmlDeviceGetMemoryInfo_v2")
	driver, ret := l.api.SystemGetDriverVersion()
	if ret != gonvml.SUCCESS {
		return fmt.Errorf("read driver version: %s", reason(ret))
	}
	l.version.Driver = driver
	if l.has("nvmlSystemGetCudaDriverVersion") {
		if cuda, ret := l.api.SystemGetCudaDriverVersion(); ret == gonvml.SUCCESS {
			l.version.CUDA = cuda
		}
	}
	return nil
}

// Version returns the driver's version.
func (l *Library) Version() Version {
	l.use.RLock()
	defer l.use.RUnlock()
	return l.version
}

// GPUs lists the machine's GPUs by index. A GPU that cannot be read is left out,
// because the others can still serve; that none can be read is an error.
func (l *Library) GPUs() ([]GPU, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	n, ret := l.api.DeviceGetCount()
	if ret != gonvml.SUCCESS {
		return nil, fmt.Errorf("%w: count GPUs: %s", ErrDriver, reason(ret))
	}
	gpus := make([]GPU, 0, n)
	var faults []error
	for i := range n {
		gpu, err := l.gpu(i)
		if err != nil {
			faults = append(faults, fmt.Errorf("read GPU %d: %w", i, err))
			continue
		}
		gpus = append(gpus, gpu)
	}
	if len(gpus) == 0 && len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	l.remember(gpus)
	return gpus, nil
}

func (l *Library) remember(gpus []GPU) {
	l.guard.Lock()
	defer l.guard.Unlock()
	clear(l.uuids)
	clear(l.places)
	for _, gpu := range gpus {
		l.uuids[gpu.Index], l.places[gpu.Index] = gpu.UUID, gpu.PCI
	}
	l.reopened = false
}

// device finds a GPU by the index under which it was listed.
func (l *Library) device(index int) (gonvml.Device, gonvml.Return) {
	l.guard.Lock()
	uuid, known := l.uuids[index]
	place, again := l.places[index], known && l.reopened
	l.guard.Unlock()
	if again && l.has("nvmlDeviceGetHandleByUUID") {
		return l.known(uuid, place)
	}
	return l.api.DeviceGetHandleByIndex(index)
}

func (l *Library) gpu(index int) (GPU, error) {
	device, ret := l.api.DeviceGetHandleByIndex(index)
	if ret != gonvml.SUCCESS {
		return GPU{}, condemn(ret)
	}
	g := GPU{Index: index}
	var results [3]gonvml.Return
	var pci gonvml.PciInfo
	g.UUID, results[0] = device.GetUUID()
	g.Name, results[1] = device.GetName()
	pci, results[2] = device.GetPciInfo()
	for _, ret := range results {
		if ret != gonvml.SUCCESS {
			return GPU{}, condemn(ret)
		}
	}
	g.PCI, g.DeviceID = text(pci.BusId[:]), pci.PciDeviceId
	memory, err := l.memory(device)
	g.Total, g.Reserved = memory.total, memory.reserved
	return g, err
}

// text reads a C string in a field of fixed size. Whether C's characters are signed depends on the processor.
func text[C int8 | uint8](field []C) string {
	var letters []byte
	for _, c := range field {
		if c == 0 {
			break
		}
		letters = append(letters, byte(c))
	}
	return string(letters)
}

type memory struct {
	total, reserved, used uint64
}

// memory reads the newer form if the driver has it. The older one counts the
// driver's own memory as used.
func (l *Library) memory(device gonvml.Device) (memory, error) {
	if l.memoryV2 {
		if m, ret := device.GetMemoryInfo_v2(); ret == gonvml.SUCCESS {
			return memory{total: m.Total, reserved: m.Reserved, used: m.Used}, nil
		}
	}
	m, ret := device.GetMemoryInfo()
	if ret != gonvml.SUCCESS {
		return memory{}, fmt.Errorf("read memory: %w", condemn(ret))
	}
	return memory{total: m.Total, used: m.Used}, nil
}

// Used returns the memory in use on a GPU by all processes, in bytes.
func (l *Library) Used(index int) (uint64, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS {
		return 0, fmt.Errorf("%w: read GPU %d: %s", ErrDriver, index, reason(ret))
	}
	m, err := l.memory(device)
	if err != nil {
		return 0, fmt.Errorf("read GPU %d: %w", index, err)
	}
	return m.used, nil
}

// notAvailable is the driver's figure for unknown memory of a process, as under
// WDDM and in some sandboxes (NVML_VALUE_NOT_AVAILABLE).
const notAvailable = ^uint64(0)

// noInstance is the number of a process's instance where there is none, or where the driver does not tell.
const noInstance = ^uint32(0)

// Processes lists the processes that have a compute or graphics context on a
// GPU, each once.
func (l *Library) Processes(index int) ([]Process, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS {
		return nil, fmt.Errorf("%w: read GPU %d: %s", ErrDriver, index, reason(ret))
	}
	infos, ret := device.GetComputeRunningProcesses()
	if ret != gonvml.SUCCESS {
		return nil, fmt.Errorf("%w: list processes of GPU %d: %s", ErrDriver, index, reason(ret))
	}
	processes := byProcess(infos)
	if l.has("nvmlDeviceGetGraphicsRunningProcesses") {
		if graphics, ret := device.GetGraphicsRunningProcesses(); ret == gonvml.SUCCESS {
			// A process with both kinds of context is in both lists with all that it has.
			for _, p := range byProcess(graphics) {
				if !slices.ContainsFunc(processes, func(known Process) bool { return known.PID == p.PID }) {
					processes = append(processes, p)
				}
			}
		}
	}
	return processes, nil
}

// byProcess sums up what each process has: a list of a GPU in MIG mode has a process once
// for each of its instances.
func byProcess(infos []gonvml.ProcessInfo) (processes []Process) {
	at := map[uint32]int{}
	seen := map[[3]uint32]bool{}
	for _, info := range infos {
		part := [3]uint32{info.Pid, info.GpuInstanceId, info.ComputeInstanceId}
		if seen[part] {
			continue
		}
		seen[part] = true
		if _, listed := at[info.Pid]; !listed {
			at[info.Pid] = len(processes)
			processes = append(processes, Process{PID: int(info.Pid)})
		}
		p := &processes[at[info.Pid]]
		if in := int(info.GpuInstanceId); info.GpuInstanceId != noInstance && !slices.Contains(p.Instances, in) {
			p.Instances = append(p.Instances, in)
		}
		if p.Hidden = p.Hidden || info.UsedGpuMemory == notAvailable; p.Hidden {
			p.Used = 0
			continue
		}
		p.Used += info.UsedGpuMemory
	}
	return processes
}

// Close ends the use of the library.
func (l *Library) Close() error {
	l.use.Lock()
	defer l.use.Unlock()
	if l.closed {
		return nil
	}
	l.freeEvents()
	if ret := l.api.Shutdown(); ret != gonvml.SUCCESS {
		return fmt.Errorf("%w: shut down NVML: %s", ErrDriver, reason(ret))
	}
	return nil
}
