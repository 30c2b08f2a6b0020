package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// MIGInstances are the GPU instances of a GPU in MIG mode with their compute instances, by ID.
func (l *Library) MIGInstances(index int) ([]MIGInstance, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	all, err := l.instances(index)
	if err != nil {
		return nil, fmt.Errorf("list the MIG instances of GPU %d: %w", index, err)
	}
	return all, nil
}

func (l *Library) instances(index int) ([]MIGInstance, error) {
	device, err := l.migDevice(index)
	if err != nil {
		return nil, err
	}
	var all []MIGInstance
	for number := range gonvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := device.GetGpuInstanceProfileInfo(number)
		if ret == gonvml.ERROR_NOT_SUPPORTED || ret == gonvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if ret != gonvml.SUCCESS {
			return nil, migFault(ret)
		}
		found, ret := device.GetGpuInstances(&info)
		if ret != gonvml.SUCCESS {
			return nil, migFault(ret)
		}
		for _, instance := range found {
			is, ret := instance.GetInfo()
			if ret != gonvml.SUCCESS {
				return nil, migFault(ret)
			}
			at := MIGPlacement{int(is.Placement.Start), int(is.Placement.Size)}
			all = append(all, MIGInstance{ID: int(is.Id), Profile: int(is.ProfileId), Placement: at})
		}
	}
	slices.SortFunc(all, func(a, b MIGInstance) int { return a.ID - b.ID })
	return all, l.addCompute(device, all)
}

// addCompute adds the compute instances.
func (l *Library) addCompute(device gonvml.Device, all []MIGInstance) error {
	return l.eachMIG(device, func(mig gonvml.Device, instance, compute int, uuid string) error {
		if at := slices.IndexFunc(all, func(i MIGInstance) bool { return i.ID == instance }); at >= 0 {
			m, _ := l.memory(mig) // what the driver does not tell is 0
			all[at].Compute = append(all[at].Compute, MIGCompute{compute, uuid, l.slicesOf(mig), m.reserved})
		}
		return nil
	})
}

// eachMIG calls a function for each MIG device, which the driver numbers for each compute instance.
func (l *Library) eachMIG(device gonvml.Device, do func(mig gonvml.Device, instance, compute int, uuid string) error) error {
	most, ret := device.GetMaxMigDeviceCount()
	if ret != gonvml.SUCCESS {
		return migFault(ret)
	}
	for number := range most {
		mig, ret := device.GetMigDeviceHandleByIndex(number)
		if ret == gonvml.ERROR_NOT_FOUND || ret == gonvml.ERROR_INVALID_ARGUMENT {
			continue // the numbers have gaps
		}
		if ret != gonvml.SUCCESS {
			return migFault(ret)
		}
		instance, ret1 := mig.GetGpuInstanceId()
		compute, ret2 := mig.GetComputeInstanceId()
		uuid, ret3 := mig.GetUUID()
		for _, ret := range []gonvml.Return{ret1, ret2, ret3} {
			if ret != gonvml.SUCCESS {
				return migFault(ret)
			}
		}
		if err := do(mig, instance, compute, uuid); err != nil {
			return err
		}
	}
	return nil
}

// InstanceMemory is the memory of a GPU's MIG instances, by number; a GPU that is not in MIG mode, or has no MIG, has none.
func (l *Library) InstanceMemory(index int) ([]InstanceMemory, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	if !l.has("nvmlDeviceGetMaxMigDeviceCount") {
		return nil, nil
	}
	device, err := l.migDevice(index)
	if errors.Is(err, ErrNoMIG) {
		return nil, nil
	}
	var all []InstanceMemory
	if err == nil {
		err = l.eachMIG(device, func(mig gonvml.Device, instance, compute int, uuid string) error {
			m, err := l.memory(mig)
			all = append(all, InstanceMemory{UUID: uuid, GPUInstance: instance, ComputeInstance: compute, Total: m.total, Used: m.used})
			return err
		})
	}
	if errors.Is(err, ErrNoMIG) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the memory of the MIG instances of GPU %d: %w", index, err)
	}
	slices.SortFunc(all, func(a, b InstanceMemory) int {
		return cmp.Or(a.GPUInstance-b.GPUInstance, a.ComputeInstance-b.ComputeInstance)
	})
	return all, nil
}

// slicesOf are the compute slices of a MIG device, 0 where the driver does not tell.
func (l *Library) slicesOf(mig gonvml.Device) int {
	if !l.has("nvmlDeviceGetAttributes_v2") && !l.has("nvmlDeviceGetAttributes") {
		return 0
	}
	attributes, ret := mig.GetAttributes()
	if ret != gonvml.SUCCESS {
		return 0
	}
	return int(attributes.ComputeInstanceSliceCount)
}

// CreateMIGInstance makes a GPU instance of the driver's profile with that ID, and returns the instance's ID.
func (l *Library) CreateMIGInstance(index, profile int, at MIGPlacement) (int, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	device, err := l.migDevice(index)
	if err != nil {
		return 0, fmt.Errorf("make the GPU instance: %w", err)
	}
	info := gonvml.GpuInstanceProfileInfo{Id: uint32(profile)}
	instance, ret := device.CreateGpuInstanceWithPlacement(&info, &gonvml.GpuInstancePlacement{Start: uint32(at.Start), Size: uint32(at.Size)})
	if ret != gonvml.SUCCESS {
		return 0, fmt.Errorf("make the GPU instance: %w", migFault(ret))
	}
	is, ret := instance.GetInfo()
	if ret != gonvml.SUCCESS {
		return 0, fmt.Errorf("read the MIG instance that GPU %d made: %w", index, migFault(ret))
	}
	return int(is.Id), nil
}

// DestroyMIGInstance takes a GPU instance away.
func (l *Library) DestroyMIGInstance(index, instance int) error {
	l.use.RLock()
	defer l.use.RUnlock()
	device, err := l.migDevice(index)
	if err != nil {
		return fmt.Errorf("take the GPU instance away: %w", err)
	}
	found, ret := device.GetGpuInstanceById(instance)
	if ret == gonvml.SUCCESS {
		ret = found.Destroy()
	}
	if err := migFault(ret); err != nil {
		return fmt.Errorf("take the GPU instance away: %w", err)
	}
	return nil
}

// CreateMIGCompute makes the compute instance that fills a GPU instance.
func (l *Library) CreateMIGCompute(index, instance int) (MIGCompute, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	made, err := l.createCompute(index, instance)
	if err != nil {
		return MIGCompute{}, fmt.Errorf("make the compute instance: %w", err)
	}
	return made, nil
}

func (l *Library) createCompute(index, instance int) (MIGCompute, error) {
	device, err := l.migDevice(index)
	if err != nil {
		return MIGCompute{}, err
	}
	found, ret := device.GetGpuInstanceById(instance)
	if ret != gonvml.SUCCESS {
		return MIGCompute{}, migFault(ret)
	}
	whole, err := widest(found)
	if err != nil {
		return MIGCompute{}, err
	}
	made, ret := found.CreateComputeInstance(&whole)
	if ret != gonvml.SUCCESS {
		return MIGCompute{}, migFault(ret)
	}
	is, ret := made.GetInfo()
	if ret != gonvml.SUCCESS {
		return MIGCompute{}, migFault(ret)
	}
	all, err := l.instances(index)
	if err != nil {
		return MIGCompute{}, err
	}
	for _, i := range all {
		at := slices.IndexFunc(i.Compute, func(c MIGCompute) bool { return i.ID == instance && c.ID == int(is.Id) })
		if at >= 0 {
			return i.Compute[at], nil
		}
	}
	return MIGCompute{}, fmt.Errorf("%w: the driver lists no MIG device for it", ErrNotFound)
}

// widest is the profile of the compute instance with most slices.
func widest(instance gonvml.GpuInstance) (most gonvml.ComputeInstanceProfileInfo, err error) {
	for number := range gonvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := instance.GetComputeInstanceProfileInfo(number, gonvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret == gonvml.SUCCESS && info.SliceCount > most.SliceCount {
			most = info
		}
	}
	if most.SliceCount == 0 {
		return most, errors.Join(ErrNoRoom, errors.New("it has no profile of compute instances"))
	}
	return most, nil
}

// DestroyMIGCompute takes a compute instance away.
func (l *Library) DestroyMIGCompute(index, instance, compute int) error {
	l.use.RLock()
	defer l.use.RUnlock()
	device, err := l.migDevice(index)
	if err != nil {
		return fmt.Errorf("take the compute instance away: %w", err)
	}
	found, ret := device.GetGpuInstanceById(instance)
	if ret == gonvml.SUCCESS {
		var c gonvml.ComputeInstance
		if c, ret = found.GetComputeInstanceById(compute); ret == gonvml.SUCCESS {
			ret = c.Destroy()
		}
	}
	if err := migFault(ret); err != nil {
		return fmt.Errorf("take the compute instance away: %w", err)
	}
	return nil
}
