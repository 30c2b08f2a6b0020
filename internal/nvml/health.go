package nvml

import (
	"encoding/binary"
	"errors"
	"fmt"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Reasons why a GPU cannot be used. All wrap [ErrDriver].
var (
	// ErrLost is a GPU that the driver can no longer reach, because it fell off the bus.
	ErrLost = fmt.Errorf("%w: the GPU is lost", ErrDriver)
	// ErrVanished is a GPU that the driver no longer lists.
	ErrVanished = fmt.Errorf("%w: the GPU is not listed any more", ErrDriver)
	// ErrReset is a GPU that does not work until it is reset.
	ErrReset = fmt.Errorf("%w: the GPU must be reset", ErrDriver)
	// ErrResult is a GPU about which the driver answers with an error that tells none of these, such as an unknown one.
	ErrResult = fmt.Errorf("%w", ErrDriver)
)

// Condition is what the driver reports of a GPU's health. What it cannot report counts as healthy.
type Condition struct {
	// XIDs are the errors that the driver has reported since the previous call. The first call begins to collect them.
	XIDs []uint64
	// Uncorrected counts the memory errors since the driver was loaded that ECC could not correct.
	Uncorrected uint64
	// RemapFailed tells that a broken row of memory could not be replaced, RemapPending that a reset will replace it
	// (Ampere and later). RetirementPending is the same for pages of older GPUs.
	RemapFailed, RemapPending, RetirementPending bool
	// MIG tells that the GPU is in MIG mode: programs see its instances, and nothing of it where there are none.
	MIG bool
	// Recovery is what must be done before the GPU is used again, such as "gpu-reset", or "" (drivers since 570).
	Recovery string
}

// Architecture returns NVIDIA's name of a GPU's generation in lower case, or "" where it is unknown.
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

// Answering lists the UUIDs of the GPUs that answer now, and counts the others. Unlike [Library.GPUs] it changes no
// index.
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

// Condition reads a GPU's health. An error other than [ErrLost], [ErrVanished] and [ErrReset] means that the driver did
// not answer, which may be temporary. XIDs are returned even with an error.
func (l *Library) Condition(index int) (Condition, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS {
		return Condition{}, fmt.Errorf("read health of GPU %d: %w", index, condemn(ret))
	}
	c := Condition{XIDs: l.xids(index, device)}
	// This call is known to access the GPU itself. Some GPUs support only its older form, whatever the driver has.
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
	if l.has("nvmlDeviceGetMigMode") {
		mode, _, ret := device.GetMigMode()
		c.MIG = ret == gonvml.SUCCESS && mode == gonvml.DEVICE_MIG_ENABLE
	}
	c.Recovery = l.recovery(device)
	return c, nil
}

// condemn turns a result into an error that distinguishes GPUs that cannot be used from a driver that does not answer.
func condemn(ret gonvml.Return) error {
	fault := ErrResult
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

// recovery reads which recovery the driver recommends.
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

// xidFunctions are needed to receive errors.
var xidFunctions = []string{
	"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents",
}

// mostXIDs bounds how many errors one call reads, because a GPU may report them faster than they are read.
const mostXIDs = 64

// xids reads the errors in the GPU's event set, which the first call makes. Every GPU has its own set: to find the GPU
// of an event in a common set would need a call to that GPU, which may be lost.
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

// listen makes an event set. It returns nil where the driver or GPU supports none.
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

// freeEvents frees the event sets. The caller holds use for writing.
func (l *Library) freeEvents() {
	l.guard.Lock()
	defer l.guard.Unlock()
	for _, set := range l.events {
		_ = set.Free() // nobody listens any more
	}
	clear(l.events)
}

// Reopen initialises the library anew. A process needs that to use a GPU again that was reset or replugged. GPUs keep
// the indexes under which they were listed. After an error, all calls fail until Reopen succeeds.
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
