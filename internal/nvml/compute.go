package nvml

import (
	"fmt"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// computeModes are who may have contexts on a GPU: everybody, one process, nobody.
var computeModes = map[gonvml.ComputeMode]string{
	gonvml.COMPUTEMODE_DEFAULT: "default", gonvml.COMPUTEMODE_PROHIBITED: "prohibited", gonvml.COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive-process",
	gonvml.COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive-thread",
}

// ComputeMode returns a GPU's compute mode: default, exclusive-process, prohibited, or exclusive-thread of old drivers.
// [ErrNotSupported] is that of a GPU that has none, as in MIG mode.
func (l *Library) ComputeMode(index int) (string, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS {
		return "", fmt.Errorf("%w: read GPU %d: %s", ErrDriver, index, reason(ret))
	}
	if !l.has("nvmlDeviceGetComputeMode") {
		return "", fmt.Errorf("%w: the compute mode of GPU %d", ErrNotSupported, index)
	}
	mode, ret := device.GetComputeMode()
	if ret != gonvml.SUCCESS {
		return "", modeFault("read", index, ret)
	}
	if name, ok := computeModes[mode]; ok {
		return name, nil
	}
	return fmt.Sprintf("unknown mode %d", mode), nil
}

// SetComputeMode changes a GPU's compute mode, which root alone may.
func (l *Library) SetComputeMode(index int, name string) error {
	l.use.RLock()
	defer l.use.RUnlock()
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS {
		return fmt.Errorf("%w: read GPU %d: %s", ErrDriver, index, reason(ret))
	}
	if !l.has("nvmlDeviceSetComputeMode") {
		return fmt.Errorf("%w: the compute mode of GPU %d", ErrNotSupported, index)
	}
	for mode, known := range computeModes {
		if known != name {
			continue
		}
		if ret := device.SetComputeMode(mode); ret != gonvml.SUCCESS {
			return modeFault("set", index, ret)
		}
		return nil
	}
	return fmt.Errorf("%w: %q is no compute mode", ErrNotSupported, name)
}

func modeFault(what string, index int, ret gonvml.Return) error {
	switch ret {
	case gonvml.ERROR_NOT_SUPPORTED:
		return fmt.Errorf("%w: the compute mode of GPU %d", ErrNotSupported, index)
	case gonvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("%w: %s the compute mode of GPU %d: only root may", ErrDriver, what, index)
	}
	return fmt.Errorf("%w: %s the compute mode of GPU %d: %s", ErrDriver, what, index, reason(ret))
}
