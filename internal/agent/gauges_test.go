package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
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

// readBeside looks at tenants for a listing when the driver was asked what the GPUs do.
type readBeside struct {
	*pages
	asked chan struct{}
	t     *testing.T
}

// listing marks the context of a listing: the agent also looks by itself, and asks the driver nothing then.
type listing struct{}

func (b *readBeside) Readings(gpus []int) []nvml.Gauge {
	close(b.asked)
	return make([]nvml.Gauge, len(gpus))
}

func (b *readBeside) Look(ctx context.Context, t backend.Tenant) (backend.Figures, error) {
	if ctx.Value(listing{}) != nil {
		select {
		case <-b.asked:
		case <-time.After(5 * time.Minute):
			b.t.Error("the driver is not asked before all tenants were looked at")
		}
	}
	return b.pages.Look(ctx, t)
}

// The driver tells what GPUs do while the agent looks at tenants.
func TestReadingsWhileLooking(t *testing.T) {
	n := newNode(t)
	b := &readBeside{pages: n.backend, asked: make(chan struct{}), t: t}
	c := n.settings(b)
	c.Gauges = b
	a := n.startAs(c)
	n.grant(a, n.asker(os.Getuid()), ask(8*gib))
	if l, err := a.list(context.WithValue(t.Context(), listing{}, true), root, struct{}{}); err != nil || len(l.Tenants) != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
}

// Of a process without a share a listing tells how much of the GPU's time it has, where the driver tells it.
func TestOutsideHasTime(t *testing.T) {
	n := newNode(t)
	a := n.start()
	a.stopAgent() // its own looks would find no process
	outside := []control.Outside{{PID: 11, UUID: firstID}, {PID: 12, UUID: firstID}}
	a.mu.Lock()
	a.outside = outside
	a.mu.Unlock()
	told := func() (all []string) {
		a.mu.Lock()
		a.busyAt = time.Time{}
		a.mu.Unlock()
		a.readOutside()
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, o := range a.measured(outside) {
			text := "?"
			if o.Percent != nil {
				text = fmt.Sprint(*o.Percent)
			}
			all = append(all, text)
		}
		return all
	}
	if got := told(); !slices.Equal(got, []string{"?", "?"}) {
		t.Errorf("a driver that does not tell: %v", got)
	}
	n.driver.busy.Store(&map[int]float64{11: 0.25})
	if got := told(); !slices.Equal(got, []string{"25", "0"}) {
		t.Errorf("got %v", got)
	}
}
