package agent

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// gauges tells a temperature of each GPU, by how often it was asked, and an error of the second.
type gauges struct{ asked atomic.Int32 }

func (g *gauges) Readings(gpus []int) []nvml.Gauge {
	all := make([]nvml.Gauge, len(gpus))
	for i, gpu := range gpus {
		if gpu == 1 {
			all[i].Err = errors.New("it is lost")
			continue
		}
		all[i].Temperature = new(int(g.asked.Load()))
	}
	g.asked.Add(1)
	return all
}

// A listing has what GPUs do, of each that tells it, and the driver is asked once in a second however many list.
func TestListingHasReadings(t *testing.T) {
	n := newNode(t)
	c, driver := n.settings(n.backend), &gauges{}
	now := time.Unix(1_000_000, 0)
	c.Gauges, c.Now = driver, func() time.Time { return now }
	r := n.startAs(c)
	for i, step := range []struct {
		wait time.Duration
		want int // the temperature
	}{{0, 0}, {gaugesAgain - 1, 0}, {1, 1}, {-time.Hour, 2}} {
		now = now.Add(step.wait)
		l, err := r.list(t.Context(), root, struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.GPUs[0].Reading; got == nil || *got.Temperature != step.want {
			t.Errorf("list %d: %+v, want a temperature of %d", i, got, step.want)
		}
		if got := l.GPUs[1].Reading; got != nil {
			t.Errorf("list %d: %+v of a GPU that tells nothing", i, got)
		}
	}
}
