package simgpu

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Kind is the kind of a machine file; its apiVersion is [APIVersion].
const (
	APIVersion = v1alpha1.APIVersion
	Kind       = "SimulatedMachine"
)

// Bytes is an amount of memory in bytes; in a file "16Gi", "800M" or a number.
type Bytes uint64

// UnmarshalYAML reads an amount in the form of the command line's --memory.
func (b *Bytes) UnmarshalYAML(node *yaml.Node) error {
	amount, err := v1alpha1.ParseMemory(node.Value)
	// A percentage is of nothing here: it differs between two capacities.
	if err == nil && amount.Of(0) != amount.Of(1<<40) {
		err = fmt.Errorf("%q: a machine's memory cannot be a percentage", node.Value)
	}
	if err != nil {
		// Only this type lets the library go on to the next fault.
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %v", node.Line, err)}}
	}
	*b = Bytes(amount.Of(0))
	return nil
}

// String writes the amount as a machine file would.
func (b Bytes) String() string {
	return v1alpha1.FormatBytes(uint64(b))
}

// Machine is a machine file's content. Clock is real or virtual; real when empty.
// DeadHandles is end, count or reuse; end when empty.
type Machine struct {
	APIVersion  string     `yaml:"apiVersion"`
	Kind        string     `yaml:"kind"`
	Name        string     `yaml:"name"`
	Description string     `yaml:"description"`
	Clock       string     `yaml:"clock"`
	DeadHandles string     `yaml:"deadHandles"`
	Driver      Driver     `yaml:"driver"`
	GPU         Model      `yaml:"gpu"`
	Costs       Costs      `yaml:"costs"`
	Managed     Managed    `yaml:"managed"`
	Sampling    Sampling   `yaml:"sampling"`
	NUMANodes   []NUMANode `yaml:"numaNodes"`
	Switches    []Switch   `yaml:"switches"`
	GPUs        []GPU      `yaml:"gpus"`
	NICs        []NIC      `yaml:"nics"`
	NVLink      NVLink     `yaml:"nvlink"`
}

// Driver is what the simulated driver says of itself.
type Driver struct {
	// Version is the driver's, such as 550.90.07.
	Version string `yaml:"version"`
	// CUDA is the newest CUDA version it serves, such as 12.4.
	CUDA string `yaml:"cuda"`
}

// Model is the one model of GPU in a machine.
type Model struct {
	Name              string    `yaml:"model"`
	Brand             string    `yaml:"brand"`
	Architecture      string    `yaml:"architecture"`
	ComputeCapability string    `yaml:"computeCapability"`
	Memory            Bytes     `yaml:"memory"`
	Reserved          Bytes     `yaml:"reserved"`
	Context           Bytes     `yaml:"context"`
	Code              Bytes     `yaml:"code"`
	BAR1              Bytes     `yaml:"bar1"`
	Multiprocessors   uint32    `yaml:"multiprocessors"`
	Clocks            Clocks    `yaml:"clocks"`
	Bandwidth         Bandwidth `yaml:"bandwidth"`
	// PowerLimit is in watts.
	PowerLimit  uint32 `yaml:"powerLimit"`
	PCIe        PCIe   `yaml:"pcie"`
	DeviceID    string `yaml:"deviceID"`
	SubsystemID string `yaml:"subsystemID"`
	ECC         bool   `yaml:"ecc"`
	MIG         bool   `yaml:"mig"`
	// MIGProfiles are the profiles of GPU instances; a model that has MIG may have none here.
	MIGProfiles []MIGProfile `yaml:"migProfiles"`
}

// Clocks are a GPU's highest clocks in MHz.
type Clocks struct {
	Graphics uint32 `yaml:"graphics"`
	Memory   uint32 `yaml:"memory"`
}

// PCIe is a GPU's link to its host.
type PCIe struct {
	Generation uint32 `yaml:"generation"`
	Width      uint32 `yaml:"width"`
}

// Bandwidth is how fast copies are, in bytes per second: over the link to the
// host, in each direction, and within the GPU's own memory.
type Bandwidth struct {
	Host   Bytes `yaml:"host"`
	Memory Bytes `yaml:"memory"`
}

// Costs is what driver calls and kernels cost in time; zero costs nothing
// beyond the simulation's own work.
type Costs struct {
	Alloc  time.Duration `yaml:"alloc"`
	Launch time.Duration `yaml:"launch"`
	// Load is the time in which the code of one kernel is loaded, in the call that
	// first needs it.
	Load   time.Duration `yaml:"load"`
	Kernel time.Duration `yaml:"kernel"`
	// Event is the GPU time of an event's record.
	Event     time.Duration `yaml:"event"`
	TimeSlice time.Duration `yaml:"timeSlice"`
	// Queue is the number of launches a stream holds before the next one waits.
	Queue uint32 `yaml:"queue"`
}

// Managed is what the driver's handling of managed memory costs, and what touches such memory. What is zero or empty is as
// usual: a batch of 256 faults takes 30 µs, memory that the CPU filled comes at the rate of the link, and host memory has
// no limit.
type Managed struct {
	// Fault is the time of a batch of faults, Batch how many can be in one.
	Fault time.Duration `yaml:"fault"`
	Batch uint32        `yaml:"batch"`
	// Scattered is the rate, in bytes per second, at which memory comes that the CPU filled page by page.
	Scattered Bytes `yaml:"scattered"`
	// Duplex is full, or half for a driver that moves memory in one direction at a time; full when empty.
	Duplex string `yaml:"duplex"`
	// Kernels is what a kernel touches that is not known by name: nothing, or the managed memory that its parameters
	// name (named); nothing when empty.
	Kernels string `yaml:"kernels"`
	// HostMemory is how much of the host's memory managed memory may take; 0 is no limit.
	HostMemory Bytes `yaml:"hostMemory"`
}

// Sampling is how NVML measures utilisation: the busy part of a window of this
// length, told this much later. Processes is what it tells of the memory of processes:
// told, hidden or foreign; told when empty. These figures stay for ProcessLag as they are.
type Sampling struct {
	Window     time.Duration `yaml:"window"`
	Lag        time.Duration `yaml:"lag"`
	Processes  string        `yaml:"processes"`
	ProcessLag time.Duration `yaml:"processLag"`
}

// NUMANode is a node of the host; its number is its place in the list.
type NUMANode struct {
	// CPUs is a list as Linux writes it, such as 0-15,32-47.
	CPUs string `yaml:"cpus"`
}

// Switch is a PCIe switch, named by the address of its upstream port.
type Switch struct {
	PCI        string `yaml:"pci"`
	HostBridge string `yaml:"hostBridge"`
	NUMANode   uint32 `yaml:"numaNode"`
}

// GPU is one GPU's place. Under a switch it has that switch's host bridge and
// NUMA node, otherwise its own.
type GPU struct {
	PCI        string `yaml:"pci"`
	Switch     string `yaml:"switch"`
	HostBridge string `yaml:"hostBridge"`
	NUMANode   uint32 `yaml:"numaNode"`
	// Multiprocessors makes this GPU faster or slower than the model; 0 leaves it.
	Multiprocessors uint32 `yaml:"multiprocessors"`
	// MIGMode has the GPU in MIG mode from the start.
	MIGMode bool `yaml:"migMode"`
}

// NIC is one network card's place; see [GPU].
type NIC struct {
	Name       string `yaml:"name"`
	PCI        string `yaml:"pci"`
	Switch     string `yaml:"switch"`
	HostBridge string `yaml:"hostBridge"`
	NUMANode   uint32 `yaml:"numaNode"`
	// Role is gpu for a card that serves a GPU, storage or host otherwise.
	Role string `yaml:"role"`
}

// NVLink is how GPUs are linked: through NVSwitches (Switches and Links), by
// bridges between pairs, or not at all.
type NVLink struct {
	Switches uint32       `yaml:"switches"`
	Links    uint32       `yaml:"links"`
	Pairs    []NVLinkPair `yaml:"pairs"`
}

// NVLinkPair is a bridge of so many links between two GPUs, given by their
// places in the file's list.
type NVLinkPair struct {
	GPUs  []int  `yaml:"gpus"`
	Links uint32 `yaml:"links"`
}
