package nvml

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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

// Lately is since when samples say how busy a process is now: the driver may be late by a second.
const Lately = 2 * time.Second

// Latest is how busy each process was in its newest sample, in percent, by pid. One without a sample was not busy.
func Latest(samples []Utilisation) map[int]float64 {
	busy, at := map[int]float64{}, map[int]time.Time{}
	for _, s := range samples {
		if !s.At.Before(at[s.PID]) {
			busy[s.PID], at[s.PID] = 100*s.Busy, s.At
		}
	}
	return busy
}

// Sample is how busy a GPU was.
type Sample struct {
	// At is when the sample ended.
	At time.Time
	// Busy is the part of the sample's time, 0 to 1, in which anything executed,
	// whatever process it was of and whether or not that has ended since.
	Busy float64
}

// Busy returns the whole GPU's samples that ended after since, in order, of the few
// seconds that the driver keeps (nvmlDeviceGetSamples). It returns [ErrNotSupported]
// where the driver keeps none.
func (l *Library) Busy(index int, since time.Time) ([]Sample, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	if !l.has("nvmlDeviceGetSamples") {
		return nil, fmt.Errorf("%w: utilisation of GPU %d", ErrNotSupported, index)
	}
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS {
		return nil, fmt.Errorf("%w: read GPU %d: %s", ErrDriver, index, reason(ret))
	}
	kind, told, ret := device.GetSamples(gonvml.GPU_UTILIZATION_SAMPLES, uint64(max(0, since.UnixMicro())))
	switch {
	case ret == gonvml.ERROR_NOT_FOUND || ret == gonvml.ERROR_INSUFFICIENT_SIZE:
		return nil, nil // there is no newer one, or they grew between counting and reading
	case ret == gonvml.ERROR_NOT_SUPPORTED, ret == gonvml.ERROR_FUNCTION_NOT_FOUND, ret == gonvml.SUCCESS && kind != gonvml.VALUE_TYPE_UNSIGNED_INT:
		return nil, fmt.Errorf("%w: utilisation of GPU %d", ErrNotSupported, index)
	case ret != gonvml.SUCCESS:
		return nil, fmt.Errorf("%w: read utilisation of GPU %d: %s", ErrDriver, index, reason(ret))
	}
	var samples []Sample
	for _, s := range told {
		at := time.UnixMicro(int64(s.TimeStamp))
		if s.TimeStamp == 0 || !at.After(since) { // entries that the driver left empty
			continue
		}
		value := binary.NativeEndian.Uint32(s.SampleValue[:])
		samples = append(samples, Sample{At: at, Busy: float64(min(value, 100)) / 100})
	}
	slices.SortFunc(samples, func(x, y Sample) int { return x.At.Compare(y.At) })
	return samples, nil
}
