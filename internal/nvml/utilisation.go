package nvml

import (
	"errors"
	"fmt"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// ErrNotSupported marks a figure that this driver or GPU does not report.
var ErrNotSupported = errors.New("not reported by this driver or GPU")

// Utilisation is how busy one process kept a GPU.
type Utilisation struct {
	// PID is in the driver's pid namespace: the host's.
	PID int
	// At is when the sample ended.
	At time.Time
	// Busy is the part of the sample's time, 0 to 1, in which the process had
	// the GPU's multiprocessors.
	Busy float64
}

// Utilisation returns each process's samples that ended after since, of the few
// seconds that the driver keeps (nvmlDeviceGetProcessUtilization, Maxwell and
// later). It returns none if no process was busy, and [ErrNotSupported] where the
// driver keeps no samples.
func (l *Library) Utilisation(index int, since time.Time) (samples []Utilisation, err error) {
	l.use.RLock()
	defer l.use.RUnlock()
	if !l.has("nvmlDeviceGetProcessUtilization") {
		return nil, fmt.Errorf("%w: utilisation by process of GPU %d", ErrNotSupported, index)
	}
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS {
		return nil, fmt.Errorf("%w: read GPU %d: %s", ErrDriver, index, reason(ret))
	}
	// go-nvml slices its answer to the length that the driver gives, and panics if that is too long.
	defer func() {
		if fault := recover(); fault != nil {
			samples, err = nil, fmt.Errorf("%w: read utilisation of GPU %d: %v", ErrDriver, index, fault)
		}
	}()
	told, ret := device.GetProcessUtilization(uint64(max(0, since.UnixMicro())))
	switch ret {
	case gonvml.SUCCESS:
	case gonvml.ERROR_NOT_FOUND, gonvml.ERROR_INSUFFICIENT_SIZE:
		// No process was busy, or the list grew between counting and reading. Then
		// the next call returns it.
		return nil, nil
	case gonvml.ERROR_NOT_SUPPORTED, gonvml.ERROR_FUNCTION_NOT_FOUND:
		return nil, fmt.Errorf("%w: utilisation by process of GPU %d", ErrNotSupported, index)
	default:
		return nil, fmt.Errorf("%w: read utilisation of GPU %d: %s", ErrDriver, index, reason(ret))
	}
	for _, s := range told {
		if s.Pid == 0 || s.TimeStamp == 0 { // entries that the driver left empty
			continue
		}
		samples = append(samples, Utilisation{
			PID: int(s.Pid), At: time.UnixMicro(int64(s.TimeStamp)), Busy: float64(min(s.SmUtil, 100)) / 100,
		})
	}
	return samples, nil
}
