package simgpu

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Report is what truly happened on a simulated machine: the oracle. It comes
// from the simulated driver's own tables, after everything of processes that
// have died has been freed. Memory is in bytes, time in nanoseconds.
type Report struct {
	Machine string `json:"machine"`
	Driver  string `json:"driver"`
	// CUDA is the driver's CUDA version, 12040 for 12.4.
	CUDA uint32      `json:"cuda"`
	GPUs []GPUReport `json:"gpus"`
	// Processes are those that use a GPU and live.
	Processes []ProcessReport `json:"processes"`
	// Tenants sums processes, dead ones too, by the tenant directory from
	// which they loaded the driver; its name is empty for all others.
	Tenants []TenantReport `json:"tenants"`
	// DeadHandles counts handles that programs passed after they had ended.
	DeadHandles int `json:"deadHandles"`
	// HostBytes is the host memory that managed memory is in, and memory of checkpointed processes.
	HostBytes uint64 `json:"hostBytes"`
	// Visitors is the number of other openings, such as of NVML's library.
	Visitors int `json:"visitors"`
}

// GPUReport is one GPU as a whole.
type GPUReport struct {
	Index    int    `json:"index"`
	UUID     string `json:"uuid"`
	Name     string `json:"name"`
	PCI      string `json:"pci"`
	Total    uint64 `json:"total"`
	Reserved uint64 `json:"reserved"`
	// Used is what processes hold; Peak is the most they ever held at once.
	Used uint64 `json:"used"`
	Peak uint64 `json:"peak"`
	Free uint64 `json:"free"`
	// BusyNs is the time in which any process computed.
	BusyNs uint64 `json:"busyNs"`
	// ComputeMode is default, exclusive-process or prohibited.
	ComputeMode string `json:"computeMode"`
	// TimeSlice is default, short, medium or long.
	TimeSlice string `json:"timeSlice"`
	// MIG is nil for a model without MIG.
	MIG *MIGReport `json:"mig,omitempty"`
}

// MIGReport is how a GPU is divided in hardware.
type MIGReport struct {
	On        bool          `json:"on"`
	Pending   bool          `json:"pending"`
	Instances []MIGInstance `json:"instances"`
}

// MIGInstance is a GPU instance. Start and Size are in memory slices; Used is what processes hold of its memory, of Capacity
// that they can have.
type MIGInstance struct {
	ID       int          `json:"id"`
	Profile  string       `json:"profile"`
	Start    int          `json:"start"`
	Size     int          `json:"size"`
	Used     uint64       `json:"used"`
	Capacity uint64       `json:"capacity"`
	Computes []MIGCompute `json:"computes"`
}

// MIGCompute is a compute instance. Start and Slices are in compute slices.
type MIGCompute struct {
	ID     int    `json:"id"`
	Start  int    `json:"start"`
	Slices int    `json:"slices"`
	UUID   string `json:"uuid"`
}

// ProcessReport is one process.
type ProcessReport struct {
	// PID is the process's number in the pid namespace of who asks, 0 for one that
	// is not seen there.
	PID     int    `json:"pid"`
	Tenant  string `json:"tenant"`
	Command string `json:"command"`
	// State is running, locked, checkpointed or failed, as the process stands to checkpoints of it.
	State string `json:"state"`
	// MPSServer is the process of the MPS server that it is a client of, of a server its own number, else 0.
	MPSServer int `json:"mpsServer"`
	// MIG is the UUID of the MIG instance that it uses, empty for one that uses none.
	MIG  string       `json:"mig,omitempty"`
	GPUs []ProcessGPU `json:"gpus"`
}

// ProcessGPU is what one process has of one GPU: Used is the sum of the rows
// that follow it up to Graph; Imported belongs to another process and is not
// in Used.
type ProcessGPU struct {
	Index    int    `json:"index"`
	Contexts int    `json:"contexts"`
	Used     uint64 `json:"used"`
	Context  uint64 `json:"context"`
	Linear   uint64 `json:"linear"`
	Pool     uint64 `json:"pool"`
	VMM      uint64 `json:"vmm"`
	Array    uint64 `json:"array"`
	Managed  uint64 `json:"managed"`
	Graph    uint64 `json:"graph"`
	Imported uint64 `json:"imported"`
	GPUNs    uint64 `json:"gpuNs"`
	// SMNs is the time for which it occupied multiprocessors, divided by how many the GPU has.
	SMNs uint64 `json:"smNs"`
	Moves
	// Multiprocessors is how many it may occupy at once. MemoryLimit is what MPS lets it allocate, 0 without a limit.
	Multiprocessors int    `json:"multiprocessors"`
	MemoryLimit     uint64 `json:"memoryLimit"`
}

// TenantReport is one tenant directory's processes together.
type TenantReport struct {
	Tenant string      `json:"tenant"`
	GPUs   []TenantGPU `json:"gpus"`
}

// TenantGPU is a tenant's part of one GPU. Used includes memory that outlives
// the process that made it; Peak is the largest Used there ever was.
type TenantGPU struct {
	Index int    `json:"index"`
	Used  uint64 `json:"used"`
	Peak  uint64 `json:"peak"`
	// Imported is memory of other tenants that its processes hold. Abroad is the part
	// of Used that only processes of other tenants hold.
	Imported uint64 `json:"imported"`
	Abroad   uint64 `json:"abroad"`
	GPUNs    uint64 `json:"gpuNs"`
	// SMNs is as in [ProcessGPU].
	SMNs uint64 `json:"smNs"`
	// Managed is the part of Used that is managed memory.
	Managed uint64 `json:"managed"`
	Moves
}

// Moves is what became of managed memory on a GPU: bytes that came and left, batches of faults, and the time in which work
// waited for memory that it touched. The chunk is missing in whose move a process was killed.
type Moves struct {
	BytesIn   uint64 `json:"bytesIn"`
	BytesOut  uint64 `json:"bytesOut"`
	Faults    uint64 `json:"faults"`
	StalledNs uint64 `json:"stalledNs"`
}

// ParseReport reads what simgpuctl prints.
func ParseReport(text []byte) (*Report, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	report := new(Report)
	if err := decoder.Decode(report); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	return report, nil
}

// Busy reports whether anything uses the machine.
func (r *Report) Busy() bool {
	return len(r.Processes) > 0 || r.Visitors > 0
}
