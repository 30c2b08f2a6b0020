package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	hostID = "swap.host_over_bytes"
	// tight is the budget of host memory here: all that four shares have, and more than the GPU has.
	tight      = "6Gi"
	tightBytes = 6 << 30
	churners   = 4
	churned    = 100_000 // allocations
)

// host has shares that have all of the budget together allocate, go through and free memory of random sizes. Again and again one of
// them is killed, and another one takes its place as soon as the budget has room. What counts is the most host memory that the
// simulated driver's record ever has of managed memory, beyond the budget.
func (b *bench) host() ([]measurement.Row, error) {
	w := &watch{bench: b, done: make(chan struct{})}
	w.all.Go(w.run)
	asked, kills, err := b.churn()
	most, looks, watchErr := w.end()
	if err = errors.Join(err, watchErr); err != nil {
		return nil, err
	}
	r := row(hostID, "random allocations, frees and kills", "bytes", 0, measurement.Lower, []float64{float64(max(most, tightBytes) - tightBytes)})
	r.Note = fmt.Sprintf("%d allocations, %d kills, %d looks. At most %.2f GiB of %s were in host memory.", asked, kills, looks, float64(most)/(1<<30), tight)
	return []measurement.Row{r}, b.Alone()
}

// churn has programs at work until they have allocated often enough together.
func (b *bench) churn() (asked, kills int, err error) {
	goal := b.times(churned/1000) * 1000
	random := rand.New(rand.NewPCG(21, 10))
	var all [churners]*simulated.Tenant
	var ended [churners]int
	defer func() {
		for _, t := range all {
			if t != nil {
				t.End()
			}
		}
	}()
	size := tightBytes>>20/churners - kept
	for next := 0; asked < goal; {
		asked = 0
		for i := range all {
			if all[i] == nil || isOver(all[i]) {
				if all[i] != nil {
					ended[i] += allocations(all[i])
					all[i].End()
				}
				if all[i], err = b.Start(swapped(size), b.Gpubench, "churn", "--count", "0", "--bytes", "64Mi", "--ns", "10000", "--seed", fmt.Sprint(kills*churners+i+1)); err != nil {
					return asked, kills, err
				}
			}
			asked += ended[i] + allocations(all[i])
		}
		if next++; next%25 == 0 {
			i := random.IntN(churners)
			if allocations(all[i]) > 0 { // it works
				ended[i] += allocations(all[i])
				all[i].End()
				all[i] = nil
				kills++
			}
		}
		if err := b.Pause(20 * time.Millisecond); err != nil {
			return asked, kills, err
		}
	}
	return asked, kills, nil
}

// isOver reports whether a program ended by itself, as one does whose share the budget has no room for yet.
func isOver(t *simulated.Tenant) bool {
	select {
	case <-t.Ended():
		return true
	default:
		return false
	}
}

// allocations are those of a program so far.
func allocations(t *simulated.Tenant) int {
	lines := t.All()
	if len(lines) == 0 {
		return 0
	}
	return int(lines[len(lines)-1].Asked)
}

// watch looks at the simulated driver's record all the time.
type watch struct {
	*bench
	done chan struct{}
	all  sync.WaitGroup

	most  uint64
	looks int
	err   error
}

func (w *watch) run() {
	for {
		r, err := w.record()
		if err != nil {
			w.err = err
			return
		}
		w.most, w.looks = max(w.most, r.HostBytes), w.looks+1
		select {
		case <-w.done:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (w *watch) end() (most uint64, looks int, err error) {
	close(w.done)
	w.all.Wait()
	return w.most, w.looks, w.err
}
