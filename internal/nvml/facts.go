package nvml

import (
	"fmt"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// ErrSilent marks a question that the driver does not answer: the call has not returned. It wraps [ErrDriver].
var ErrSilent = fmt.Errorf("%w: it does not answer", ErrDriver)

// ErrLetGo marks a question that the driver is not asked, because the MIG mode of a GPU is about to change and nobody may
// hold it meanwhile. It wraps [ErrSilent].
var ErrLetGo error = letGo{}

type letGo struct{}

func (letGo) Error() string {
	return ErrDriver.Error() + ": it is not asked while the MIG mode of a GPU changes"
}

func (letGo) Unwrap() error { return ErrSilent }

// Facts are all that stays the same about a GPU while the driver runs.
type Facts struct {
	GPU
	Architecture string   `json:",omitempty"`
	Brand        string   `json:",omitempty"`
	Capability   string   `json:",omitempty"`
	MIGCapable   bool     `json:",omitempty"`
	Links        []NVLink `json:",omitempty"`
	Clique       string   `json:",omitempty"`
}

// Count returns how many GPUs the driver has, also those that do not answer. It touches none of them.
func (l *Library) Count() (int, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	n, ret := l.api.DeviceGetCount()
	if ret != gonvml.SUCCESS {
		return 0, fmt.Errorf("%w: count GPUs: %s", ErrDriver, reason(ret))
	}
	return n, nil
}

// Identify reads the facts of the GPU that has an index with the driver now. If nobody said which GPU is meant by the
// index, this one is.
func (l *Library) Identify(index int) (Facts, error) {
	l.use.RLock()
	gpu, err := l.gpu(index)
	l.use.RUnlock()
	if err != nil {
		return Facts{}, fmt.Errorf("read GPU %d: %w", index, err)
	}
	l.guard.Lock()
	_, known := l.uuids[index]
	l.guard.Unlock()
	if !known {
		l.Know([]GPU{gpu})
	}
	f := Facts{GPU: gpu, Architecture: l.Architecture(index), Brand: l.Brand(index), Capability: l.Capability(index), MIGCapable: l.MIGCapable(index)}
	f.Links, f.Clique = l.NVLinks(index)
	return f, nil
}

// Know says which GPUs are meant by their indexes from now on, whatever the driver's own numbers are.
func (l *Library) Know(gpus []GPU) {
	l.guard.Lock()
	defer l.guard.Unlock()
	for _, gpu := range gpus {
		l.uuids[gpu.Index], l.places[gpu.Index] = gpu.UUID, gpu.PCI
	}
	l.reopened = true
}

// known finds a GPU by where it was, and only if it is not there by its UUID: to find a UUID the driver may touch every
// GPU, also one that never answers.
func (l *Library) known(uuid, place string) (gonvml.Device, gonvml.Return) {
	if l.has("nvmlDeviceGetHandleByPciBusId_v2") || l.has("nvmlDeviceGetHandleByPciBusId") {
		device, ret := l.api.DeviceGetHandleByPciBusId(place)
		if ret != gonvml.SUCCESS && ret != gonvml.ERROR_NOT_FOUND && ret != gonvml.ERROR_INVALID_ARGUMENT {
			return device, ret
		}
		if ret == gonvml.SUCCESS {
			if found, ret := device.GetUUID(); ret != gonvml.SUCCESS || found == uuid {
				return device, ret
			}
		}
	}
	return l.api.DeviceGetHandleByUUID(uuid)
}

// Checkup is what the driver tells of a GPU's health.
type Checkup struct {
	Condition
	Err error
}

// Holding is what the driver tells of a GPU's memory: by process, and all that is in use. Each has its own error.
type Holding struct {
	Processes []Process
	Unlisted  error
	Used      uint64
	Unread    error
	// Instances is the same of the MIG instances of a GPU in MIG mode, as far as the driver tells.
	Instances []InstanceMemory
}

// InstanceMemory is the memory of a MIG instance, in bytes.
type InstanceMemory struct {
	// UUID is the driver's name of it, and GPUInstance and ComputeInstance are its numbers.
	UUID                         string
	GPUInstance, ComputeInstance int
	Total, Used                  uint64
}

// Activity is what the driver tells of how busy a whole GPU was.
type Activity struct {
	Samples []Sample
	Err     error
}

// Load is what the driver tells of who kept a GPU busy.
type Load struct {
	Samples []Utilisation
	Err     error
}
