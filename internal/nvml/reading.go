package nvml

import (
	"fmt"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Reading is what a GPU does and how it is set, as nvidia-smi shows it. What this driver or GPU does not tell is nil or
// empty: a server's GPU has no fan, and one in MIG mode has no utilisation.
type Reading struct {
	// Utilisation is the part of the driver's last window in which anything executed, and MemoryUtilisation that in which
	// memory was read or written, in percent.
	Utilisation       *int `json:"utilisation,omitempty"`
	MemoryUtilisation *int `json:"memoryUtilisation,omitempty"`
	// Temperature is that of the chip in degrees Celsius.
	Temperature *int `json:"temperature,omitempty"`
	// Milliwatts is the draw, and LimitMilliwatts the most that the GPU may draw.
	Milliwatts      *uint64 `json:"milliwatts,omitempty"`
	LimitMilliwatts *uint64 `json:"limitMilliwatts,omitempty"`
	// Millijoules is what it has drawn since the driver was loaded.
	Millijoules *uint64 `json:"millijoules,omitempty"`
	// ClockMHz is the clock of the multiprocessors, and MemoryClockMHz that of the memory.
	ClockMHz       *int `json:"clockMHz,omitempty"`
	MemoryClockMHz *int `json:"memoryClockMHz,omitempty"`
	// Fan is how fast the fan is meant to turn, in percent.
	Fan *int `json:"fan,omitempty"`
	// PerformanceState is 0 for the fastest to 15 for the slowest.
	PerformanceState *int `json:"performanceState,omitempty"`
	// Persistence is whether the driver stays loaded without programs, Display whether a screen shows what the GPU draws,
	// and ECC whether memory errors are corrected.
	Persistence *bool `json:"persistence,omitempty"`
	Display     *bool `json:"display,omitempty"`
	ECC         *bool `json:"ecc,omitempty"`
	// Uncorrected counts the memory errors since the driver was loaded that ECC could not correct.
	Uncorrected *uint64 `json:"uncorrected,omitempty"`
	// ComputeMode is one of those of [Library.ComputeMode].
	ComputeMode string `json:"computeMode,omitempty"`
	// MIG is whether the GPU is in MIG mode.
	MIG *bool `json:"mig,omitempty"`
}

// Gauge is what the driver tells of what a GPU does. An Err tells why there is no Reading.
type Gauge struct {
	Reading
	Err error
}

// Reading reads what a GPU does. It fails only where the GPU itself cannot be reached.
func (l *Library) Reading(index int) (Reading, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS {
		return Reading{}, fmt.Errorf("read GPU %d: %w", index, condemn(ret))
	}
	var r Reading
	if err := l.readActivity(&r, device); err != nil {
		return Reading{}, fmt.Errorf("read what GPU %d does: %w", index, err)
	}
	l.readSettings(&r, device)
	return r, nil
}

// readActivity reads what changes from moment to moment. Once the driver says that the GPU is gone, it is asked nothing more.
func (l *Library) readActivity(r *Reading, device gonvml.Device) error {
	if l.has("nvmlDeviceGetUtilizationRates") {
		rates, ret := device.GetUtilizationRates()
		if err := gone(ret); err != nil {
			return err
		}
		if ret == gonvml.SUCCESS {
			r.Utilisation, r.MemoryUtilisation = new(int(rates.Gpu)), new(int(rates.Memory))
		}
	}
	if l.has("nvmlDeviceGetTemperature") {
		degrees, ret := device.GetTemperature(gonvml.TEMPERATURE_GPU)
		if err := gone(ret); err != nil {
			return err
		}
		if ret == gonvml.SUCCESS {
			r.Temperature = new(int(degrees))
		}
	}
	r.Milliwatts = number[uint64](l, "nvmlDeviceGetPowerUsage", device.GetPowerUsage)
	r.Millijoules = number[uint64](l, "nvmlDeviceGetTotalEnergyConsumption", device.GetTotalEnergyConsumption)
	r.ClockMHz = l.clock(device, gonvml.CLOCK_SM)
	r.MemoryClockMHz = l.clock(device, gonvml.CLOCK_MEM)
	r.Fan = number[int](l, "nvmlDeviceGetFanSpeed", device.GetFanSpeed)
	if l.has("nvmlDeviceGetPerformanceState") {
		// NVML has 32 for a state that it does not know.
		if state, ret := device.GetPerformanceState(); ret == gonvml.SUCCESS && state >= gonvml.PSTATE_0 && state <= gonvml.PSTATE_15 {
			r.PerformanceState = new(int(state))
		}
	}
	return nil
}

// readSettings reads what somebody set.
func (l *Library) readSettings(r *Reading, device gonvml.Device) {
	r.LimitMilliwatts = number[uint64](l, "nvmlDeviceGetEnforcedPowerLimit", device.GetEnforcedPowerLimit)
	r.Persistence = l.enabled("nvmlDeviceGetPersistenceMode", device.GetPersistenceMode)
	r.Display = l.enabled("nvmlDeviceGetDisplayActive", device.GetDisplayActive)
	r.ECC = l.enabled("nvmlDeviceGetEccMode", func() (gonvml.EnableState, gonvml.Return) {
		current, _, ret := device.GetEccMode()
		return current, ret
	})
	if l.has("nvmlDeviceGetTotalEccErrors") && r.ECC != nil && *r.ECC {
		if n, ret := device.GetTotalEccErrors(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.VOLATILE_ECC); ret == gonvml.SUCCESS {
			r.Uncorrected = new(n)
		}
	}
	if l.has("nvmlDeviceGetComputeMode") {
		if mode, ret := device.GetComputeMode(); ret == gonvml.SUCCESS {
			r.ComputeMode = computeModes[mode]
		}
	}
	if l.has("nvmlDeviceGetMigMode") {
		if mode, _, ret := device.GetMigMode(); ret == gonvml.SUCCESS {
			r.MIG = new(mode == gonvml.DEVICE_MIG_ENABLE)
		}
	}
}

func (l *Library) clock(device gonvml.Device, of gonvml.ClockType) *int {
	return number[int](l, "nvmlDeviceGetClockInfo", func() (uint32, gonvml.Return) { return device.GetClockInfo(of) })
}

// number is what a function of the driver's tells, nil where it tells nothing.
func number[N int | uint64, T uint32 | uint64](l *Library, symbol string, ask func() (T, gonvml.Return)) *N {
	if !l.has(symbol) {
		return nil
	}
	n, ret := ask()
	if ret != gonvml.SUCCESS {
		return nil
	}
	return new(N(n))
}

// enabled is whether a feature is on, nil where the driver does not tell.
func (l *Library) enabled(symbol string, ask func() (gonvml.EnableState, gonvml.Return)) *bool {
	if !l.has(symbol) {
		return nil
	}
	state, ret := ask()
	if ret != gonvml.SUCCESS {
		return nil
	}
	return new(state == gonvml.FEATURE_ENABLED)
}

// gone is the error of a result that means that the GPU cannot be reached, nil for any other: a driver that does not
// support a figure still tells the others.
func gone(ret gonvml.Return) error {
	switch ret {
	case gonvml.ERROR_GPU_IS_LOST, gonvml.ERROR_RESET_REQUIRED:
		return condemn(ret)
	}
	return nil
}
