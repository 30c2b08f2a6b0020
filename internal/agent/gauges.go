package agent

import (
	"context"
	"time"

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
