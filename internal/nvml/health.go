package nvml

import (
	"encoding/binary"
	"errors"
	"fmt"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// What a GPU that cannot be used answers. All wrap [ErrDriver].
var (
	// ErrLost is a GPU that the driver cannot reach any more: it fell off the bus.
	ErrLost = fmt.Errorf("%w: the GPU is lost", ErrDriver)
	// ErrVanished is a GPU that the driver does not list any more.
	ErrVanished = fmt.Errorf("%w: the GPU is not listed any more", ErrDriver)
	// ErrReset is a GPU that does nothing before it is reset.
	ErrReset = fmt.Errorf("%w: the GPU must be reset", ErrDriver)
)

// Condition is what the driver tells of a GPU's health. What a driver or GPU cannot tell reads as well.
type Condition struct {
	// XIDs are the errors that the driver reported since they were asked for the last time, from the first time on.
	XIDs []uint64
	// Uncorrected counts the memory errors since the driver was loaded that ECC could not correct.
	Uncorrected uint64
	// RemapFailed says that a broken row of memory could not be replaced, RemapPending that it will be by a reset
	// (Ampere and later); RetirementPending is the same for pages of older GPUs.
	RemapFailed, RemapPending, RetirementPending bool
	// Recovery is what the driver wants done before the GPU is used again, such as "gpu-reset"; "" is nothing (since
	// 570).
	Recovery string
}

// Architecture names a GPU's generation as NVIDIA does, in lower case; "" where it is not known.
func (l *Library) Architecture(index int) string {
	l.use.RLock()
	defer l.use.RUnlock()
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS || !l.has("nvmlDeviceGetArchitecture") {
		return ""
	}
	architecture, ret := device.GetArchitecture()
	if ret != gonvml.SUCCESS {
		return ""
	}
	return architectures[architecture]
}

var architectures = map[gonvml.DeviceArchitecture]string{
	gonvml.DEVICE_ARCH_KEPLER: "kepler", gonvml.DEVICE_ARCH_MAXWELL: "maxwell", gonvml.DEVICE_ARCH_PASCAL: "pascal",
	gonvml.DEVICE_ARCH_VOLTA: "volta", gonvml.DEVICE_ARCH_TURING: "turing", gonvml.DEVICE_ARCH_AMPERE: "ampere",
	gonvml.DEVICE_ARCH_ADA: "ada", gonvml.DEVICE_ARCH_HOPPER: "hopper", gonvml.DEVICE_ARCH_BLACKWELL: "blackwell",
	gonvml.DEVICE_ARCH_RUBIN: "rubin",
}

// Answering lists the UUIDs of the GPUs that answer now, and counts those that are there and do not. Unlike
// [Library.GPUs] it changes no index.
func (l *Library) Answering() (uuids []string, silent int) {
	l.use.RLock()
	defer l.use.RUnlock()
	n, ret := l.api.DeviceGetCount()
	if ret != gonvml.SUCCESS {
		return nil, 0
	}
	for i := range n {
		device, ret := l.api.DeviceGetHandleByIndex(i)
		if ret != gonvml.SUCCESS {
			silent++
			continue
		}
		uuid, ret := device.GetUUID()
		if ret != gonvml.SUCCESS {
			silent++
			continue
		}
		uuids = append(uuids, uuid)
	}
	return uuids, silent
}

// Condition asks for a GPU's health. An error that is none of [ErrLost], [ErrVanished] and [ErrReset] says that the
// driver did not answer, which may pass. XIDs are told even beside an error.
func (l *Library) Condition(index int) (Condition, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS {
		return Condition{}, fmt.Errorf("read health of GPU %d: %w", index, condemn(ret))
	}
	c := Condition{XIDs: l.xids(index, device)}
	// Of all calls this one surely asks the GPU. Some have it in its older form alone, whatever the driver has.
	ret = gonvml.ERROR_NOT_SUPPORTED
	if l.memoryV2 {
		_, ret = device.GetMemoryInfo_v2()
	}
	if ret != gonvml.SUCCESS {
		_, ret = device.GetMemoryInfo()
	}
	if ret != gonvml.SUCCESS {
		return c, fmt.Errorf("read health of GPU %d: %w", index, condemn(ret))
	}
	if l.has("nvmlDeviceGetTotalEccErrors") {
		if n, ret := device.GetTotalEccErrors(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.VOLATILE_ECC); ret == gonvml.SUCCESS {
			c.Uncorrected = n
		}
	}
	if l.has("nvmlDeviceGetRemappedRows") {
		if _, _, pending, failed, ret := device.GetRemappedRows(); ret == gonvml.SUCCESS {
			c.RemapPending, c.RemapFailed = pending, failed
		}
	}
	if l.has("nvmlDeviceGetRetiredPagesPendingStatus") {
		pending, ret := device.GetRetiredPagesPendingStatus()
		c.RetirementPending = ret == gonvml.SUCCESS && pending == gonvml.FEATURE_ENABLED
	}
	c.Recovery = l.recovery(device)
	return c, nil
}

// condemn makes an error of a result, so that GPUs that cannot be used are told from a driver that does not answer.
func condemn(ret gonvml.Return) error {
	fault := ErrDriver
	switch ret {
	case gonvml.ERROR_GPU_IS_LOST:
		fault = ErrLost
	case gonvml.ERROR_NOT_FOUND, gonvml.ERROR_INVALID_ARGUMENT:
		fault = ErrVanished
	case gonvml.ERROR_RESET_REQUIRED:
		fault = ErrReset
	}
	return fmt.Errorf("%w: %s", fault, reason(ret))
}

// recovery asks for the driver's own judgement.
func (l *Library) recovery(device gonvml.Device) string {
	if !l.has("nvmlDeviceGetFieldValues") {
		return ""
	}
	values := []gonvml.FieldValue{{FieldId: gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if device.GetFieldValues(values) != gonvml.SUCCESS || gonvml.Return(values[0].NvmlReturn) != gonvml.SUCCESS {
		return ""
	}
	switch action := gonvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(values[0].Value[:4])); action {
	case gonvml.GPU_RECOVERY_ACTION_NONE:
		return ""
	case gonvml.GPU_RECOVERY_ACTION_GPU_RESET:
		return "gpu-reset"
	case gonvml.GPU_RECOVERY_ACTION_NODE_REBOOT:
		return "node-reboot"
	case gonvml.GPU_RECOVERY_ACTION_DRAIN_P2P:
		return "drain-p2p"
	case gonvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET:
		return "drain-and-reset"
	default:
		return fmt.Sprintf("action-%d", action)
	}
}

// xidFunctions are needed to hear of errors.
var xidFunctions = []string{
	"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents",
}

// mostXIDs bounds what is read at once: a GPU may report faster than it is read.
const mostXIDs = 64

// xids reads the errors that wait in the GPU's event set, which is made with the first call. Every GPU has a set of its
// own, so that whose error it is needs no answer from a GPU that may be lost.
func (l *Library) xids(index int, device gonvml.Device) []uint64 {
	l.guard.Lock()
	defer l.guard.Unlock()
	set, made := l.events[index]
	if !made {
		if set = l.listen(device); set == nil {
			return nil
		}
		l.events[index] = set
	}
	var found []uint64
	for range mostXIDs {
		event, ret := set.Wait(0)
		if ret != gonvml.SUCCESS {
			break
		}
		if event.EventType&gonvml.EventTypeXidCriticalError != 0 {
			found = append(found, event.EventData)
		}
	}
	return found
}

// listen makes an event set; nil says that this driver or GPU has none.
func (l *Library) listen(device gonvml.Device) gonvml.EventSet {
	for _, symbol := range xidFunctions {
		if !l.has(symbol) {
			return nil
		}
	}
	if !l.has("nvmlEventSetWait_v2") && !l.has("nvmlEventSetWait") {
		return nil
	}
	types, ret := device.GetSupportedEventTypes()
	if ret != gonvml.SUCCESS || types&gonvml.EventTypeXidCriticalError == 0 {
		return nil
	}
	set, ret := l.api.EventSetCreate()
	if ret != gonvml.SUCCESS {
		return nil
	}
	if device.RegisterEvents(gonvml.EventTypeXidCriticalError, set) != gonvml.SUCCESS {
		_ = set.Free() // nobody listens any more
		return nil
	}
	return set
}

// freeEvents ends the listening. use is held for writing.
func (l *Library) freeEvents() {
	l.guard.Lock()
	defer l.guard.Unlock()
	for _, set := range l.events {
		_ = set.Free() // nobody listens any more
	}
	clear(l.events)
}

// Reopen initialises the library anew, which is how a GPU that was reset or replugged comes back to a process. GPUs
// keep the indexes under which they were listed. After an error nothing answers until the next try.
func (l *Library) Reopen() error {
	l.use.Lock()
	defer l.use.Unlock()
	if !l.closed {
		l.freeEvents()
		if ret := l.api.Shutdown(); ret != gonvml.SUCCESS {
			return fmt.Errorf("%w: shut down NVML: %s", ErrDriver, reason(ret))
		}
		l.closed = true
	}
	if ret := l.api.Init(); ret != gonvml.SUCCESS {
		return fmt.Errorf("%w: open NVML again: %s", ErrDriver, reason(ret))
	}
	l.closed = false
	l.guard.Lock()
	l.reopened = true
	l.guard.Unlock()
	if err := l.read(); err != nil {
		return errors.Join(ErrDriver, err)
	}
	return nil
}
