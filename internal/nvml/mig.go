package nvml

import (
	"fmt"
	"slices"
	"strings"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Why the driver refuses to change instances or the MIG mode. All wrap [ErrDriver].
var (
	// ErrInUse is an instance or a GPU that a process uses, or an instance that has others in it.
	ErrInUse = fmt.Errorf("%w: in use", ErrDriver)
	// ErrNoRoom is an instance for which there is no room.
	ErrNoRoom = fmt.Errorf("%w: there is no room for the MIG instance", ErrDriver)
	// ErrNotFound is an instance that does not exist.
	ErrNotFound = fmt.Errorf("%w: there is no such MIG instance", ErrDriver)
	// ErrDenied is a change that needs other rights.
	ErrDenied = fmt.Errorf("%w: it denies permission", ErrDriver)
	// ErrNoMIG is a GPU, or a driver, without MIG.
	ErrNoMIG = fmt.Errorf("%w: the GPU has no MIG", ErrDriver)
)

// MIGMode is whether a GPU is in MIG mode, and whether it will be after its next reset.
type MIGMode struct{ Current, Pending bool }

// MIGPlacement is where a GPU instance lies, in memory slices.
type MIGPlacement struct {
	Start int `json:"start"`
	Size  int `json:"size"`
}

// MIGProfile is a kind of GPU instance that a GPU can have.
type MIGProfile struct {
	// ID is the driver's number of it.
	ID int
	// Name is such as 1g.10gb.
	Name string
	// Bytes is the memory of an instance, Multiprocessors its SMs, Slices its compute slices.
	Bytes                   uint64
	Multiprocessors, Slices int
	// Engines are those for copies, decoding, encoding, JPEG and optical flow, in this order.
	Engines [5]int
	// Placements are those that an instance can have in an empty GPU.
	Placements []MIGPlacement
}

// MIGInstance is a GPU instance.
type MIGInstance struct {
	// ID is the driver's number of it, unique on its GPU.
	ID int
	// Profile is the driver's number of its profile.
	Profile   int
	Placement MIGPlacement
	Compute   []MIGCompute
}

// MIGCompute is a compute instance, which programs know as a MIG device.
type MIGCompute struct {
	// ID is the driver's number of it, unique in its GPU instance.
	ID   int
	UUID string
	// Slices are its compute slices, 0 where the driver does not tell.
	Slices int
	// Reserved is what the driver keeps of its GPU instance's memory for itself, in bytes, 0 where it does not tell.
	Reserved uint64
}

// migCalls are the functions that are needed to read and change instances. The last came with driver 510.
var migCalls = []string{
	"nvmlDeviceGetMigMode", "nvmlDeviceGetGpuInstanceById", "nvmlDeviceGetGpuInstances", "nvmlDeviceCreateGpuInstanceWithPlacement",
	"nvmlGpuInstanceCreateComputeInstance", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
	"nvmlDeviceGetGpuInstanceProfileInfoV",
}

// migDevice is the handle of a GPU, if the driver has all functions for MIG.
func (l *Library) migDevice(index int) (gonvml.Device, error) {
	for _, name := range migCalls {
		if !l.has(name) {
			return nil, fmt.Errorf("%w: the driver lacks %s", ErrNoMIG, name)
		}
	}
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS {
		return nil, condemn(ret)
	}
	return device, nil
}

// migFault is what a result means for instances.
func migFault(ret gonvml.Return) error {
	switch ret {
	case gonvml.SUCCESS:
		return nil
	case gonvml.ERROR_IN_USE:
		return ErrInUse
	case gonvml.ERROR_INSUFFICIENT_RESOURCES:
		return ErrNoRoom
	case gonvml.ERROR_NOT_FOUND:
		return ErrNotFound
	case gonvml.ERROR_NO_PERMISSION:
		return ErrDenied
	case gonvml.ERROR_NOT_SUPPORTED:
		return ErrNoMIG
	}
	return condemn(ret)
}

// MIGMode reads the MIG mode of a GPU. A GPU without MIG gives [ErrNoMIG].
func (l *Library) MIGMode(index int) (MIGMode, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	device, err := l.migDevice(index)
	if err != nil {
		return MIGMode{}, fmt.Errorf("read the MIG mode of GPU %d: %w", index, err)
	}
	current, pending, ret := device.GetMigMode()
	if ret != gonvml.SUCCESS {
		return MIGMode{}, fmt.Errorf("read the MIG mode of GPU %d: %w", index, migFault(ret))
	}
	return MIGMode{current == gonvml.DEVICE_MIG_ENABLE, pending == gonvml.DEVICE_MIG_ENABLE}, nil
}

// SetMIGMode asks for a mode, which a GPU may take at its next reset only. The library must be opened anew after: the
// GPU's handles, and even its number, may have changed.
func (l *Library) SetMIGMode(index int, on bool) error {
	l.use.RLock()
	defer l.use.RUnlock()
	device, err := l.migDevice(index)
	if err != nil {
		return fmt.Errorf("set the MIG mode of GPU %d: %w", index, err)
	}
	mode := gonvml.DEVICE_MIG_DISABLE
	if on {
		mode = gonvml.DEVICE_MIG_ENABLE
	}
	activated, ret := device.SetMigMode(mode)
	if ret == gonvml.SUCCESS {
		ret = activated // why it could not be activated at once
	}
	if err := migFault(ret); err != nil {
		return fmt.Errorf("set the MIG mode of GPU %d: %w", index, err)
	}
	return nil
}

// MIGProfiles are those of a GPU in MIG mode, in the driver's order.
func (l *Library) MIGProfiles(index int) ([]MIGProfile, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	device, err := l.migDevice(index)
	if err != nil {
		return nil, fmt.Errorf("read the MIG profiles of GPU %d: %w", index, err)
	}
	var all []MIGProfile
	for number := range gonvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := device.GetGpuInstanceProfileInfoV(number).V2()
		if ret == gonvml.ERROR_NOT_SUPPORTED || ret == gonvml.ERROR_INVALID_ARGUMENT {
			continue // a profile of other GPUs
		}
		if ret != gonvml.SUCCESS {
			return nil, fmt.Errorf("read MIG profile %d of GPU %d: %w", number, index, migFault(ret))
		}
		placements, ret := device.GetGpuInstancePossiblePlacements(&gonvml.GpuInstanceProfileInfo{Id: info.Id})
		if ret != gonvml.SUCCESS {
			return nil, fmt.Errorf("read the placements of MIG profile %d of GPU %d: %w", number, index, migFault(ret))
		}
		all = append(all, profileOf(info, placements))
	}
	return all, nil
}

func profileOf(info gonvml.GpuInstanceProfileInfo_v2, placements []gonvml.GpuInstancePlacement) MIGProfile {
	p := MIGProfile{
		ID: int(info.Id), Name: strings.TrimPrefix(text(info.Name[:]), "MIG "), Bytes: info.MemorySizeMB << 20,
		Multiprocessors: int(info.MultiprocessorCount), Slices: int(info.SliceCount),
		Engines: [5]int{int(info.CopyEngineCount), int(info.DecoderCount), int(info.EncoderCount), int(info.JpegCount), int(info.OfaCount)},
	}
	for _, at := range placements {
		p.Placements = append(p.Placements, MIGPlacement{int(at.Start), int(at.Size)})
	}
	slices.SortFunc(p.Placements, func(a, b MIGPlacement) int { return a.Start - b.Start })
	return p
}
