package agent

import (
	"context"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// Gauges tells what GPUs do, in the order of their indexes.
type Gauges interface {
	Readings(gpus []int) []nvml.Gauge
}

// gaugesAgain is how old readings may be. Whoever lists all the time has the driver asked once in that time: it takes
// milliseconds to tell of a GPU's power.
const gaugesAgain = time.Second

// readGauges asks the driver what the GPUs do, for the listing that is being made. One is made at a time.
func (a *Agent) readGauges(ctx context.Context) {
	if a.config.Gauges == nil {
		return
	}
	now := a.config.Now()
	a.mu.Lock()
	since := now.Sub(a.readAt)
	a.mu.Unlock()
	if since >= 0 && since < gaugesAgain { // less than 0 where the clock was set back
		return
	}
	indexes := make([]int, len(a.gpus))
	for i, gpu := range a.gpus {
		indexes[i] = gpu.Index
	}
	readings := map[string]*nvml.Reading{}
	for i, told := range a.config.Gauges.Readings(indexes) {
		a.complain(ctx, "cannot read what a GPU does", indexes[i], told.Err)
		if told.Err == nil {
			readings[a.gpus[i].UUID] = new(told.Reading)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.readings, a.readAt = readings, now
}

// readOutside asks the driver how busy the processes without a share keep their GPUs, for the listing that is being made.
func (a *Agent) readOutside() {
	now := a.config.Now()
	a.mu.Lock()
	since := now.Sub(a.busyAt)
	var indexes []int
	for _, gpu := range a.gpus {
		if slices.ContainsFunc(a.outside, func(o control.Outside) bool { return o.UUID == gpu.UUID }) {
			indexes = append(indexes, gpu.Index)
		}
	}
	a.mu.Unlock()
	if len(indexes) == 0 || since >= 0 && since < gaugesAgain {
		return
	}
	moments := make([]time.Time, len(indexes))
	for i := range moments {
		moments[i] = now.Add(-nvml.Lately)
	}
	busy := map[string]map[int]float64{}
	for i, told := range a.config.Driver.Utilisations(indexes, moments) {
		if told.Err == nil {
			busy[a.uuidOf(indexes[i])] = nvml.Latest(told.Samples)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy, a.busyAt = busy, now
}

func (a *Agent) uuidOf(index int) string {
	for _, gpu := range a.gpus {
		if gpu.Index == index {
			return gpu.UUID
		}
	}
	return ""
}

// measured are processes without a share, with how busy they keep their GPUs. a.mu is held.
func (a *Agent) measured(outside []control.Outside) []control.Outside {
	outside = slices.Clone(outside)
	for i := range outside {
		if on, told := a.busy[outside[i].UUID]; told {
			outside[i].Percent = new(on[outside[i].PID])
		}
	}
	return outside
}
