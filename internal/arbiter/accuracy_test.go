package arbiter_test

import (
	"math"
	"testing"

	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/test/model"
)

const (
	us  = model.Microsecond
	ms  = model.Millisecond
	sec = model.Second
)

// noisy is a busy machine: events are off, launches differ from each other, processes lose their processor, rounds
// come late.
func noisy(seed uint64) model.Options {
	return model.Options{
		Seed: seed, TickLate: 2 * ms, StampError: 20 * us, CostError: 0.1, Stall: 10 * ms, StallEvery: 200 * ms,
	}
}

func exact(seed uint64) model.Options { return model.Options{Seed: seed} }

var machines = []struct {
	name string
	of   func(seed uint64) model.Options
}{{"exact", exact}, {"noisy", noisy}}

var loads = []struct {
	name string
	model.Load
}{
	{"20us", model.Load{Kernel: 20 * us}},
	{"1ms", model.Load{Kernel: ms}},
	{"50ms", model.Load{Kernel: 50 * ms}},
	{"20us sync", model.Load{Kernel: 20 * us, Sync: 1}},
	{"1ms sync", model.Load{Kernel: ms, Sync: 1}},
	{"50ms sync", model.Load{Kernel: 50 * ms, Sync: 1}},
}

// window is over what time a load's part is measured: kernels of 50 ms cannot be cut.
func window(load model.Load) uint64 {
	if load.Kernel > 10*ms {
		return 10 * sec
	}
	return sec
}

// parts are the parts of the GPU, in percent, that tenants get in windows after the first second; the worst of each is
// kept by the caller.
func parts(m *model.Model, span uint64, windows int, tenants ...*model.Tenant) [][]float64 {
	m.Run(sec)
	var all [][]float64
	for range windows {
		before := make([]uint64, len(tenants))
		for i, t := range tenants {
			before[i] = t.Own()
		}
		m.Run(span)
		row := make([]float64, len(tenants))
		for i, t := range tenants {
			row[i] = float64(t.Own()-before[i]) / float64(span) * 100
		}
		all = append(all, row)
	}
	return all
}

func fixed(cores int) arbiter.Terms { return arbiter.Terms{Policy: arbiter.Fixed, Cores: cores} }

func TestCapIsReached(t *testing.T) {
	for _, machine := range machines {
		for _, load := range loads {
			t.Run(machine.name+" "+load.name, func(t *testing.T) {
				free := model.New(machine.of(1))
				free.Unlimited = true
				alone := parts(free, window(load.Load), 3, free.Add("a", fixed(100), load.Load))
				sum, count := 0.0, 0.0
				for _, cores := range []int{10, 25, 50, 75, 90} {
					m := model.New(machine.of(1))
					got := parts(m, window(load.Load), 3, m.Add("a", fixed(cores), load.Load))
					for i := range got {
						off := got[i][0] - min(float64(cores), alone[i][0])
						sum, count = sum+math.Abs(off), count+1
						t.Logf("cap %d: %.2f (%+.2f)", cores, got[i][0], off)
					}
				}
				if sum/count > 1 {
					t.Errorf("mean error %.2f points, more than 1", sum/count)
				}
			})
		}
	}
}

func TestPairIsDivided(t *testing.T) {
	for _, machine := range machines {
		for _, load := range loads {
			t.Run(machine.name+" "+load.name, func(t *testing.T) {
				free := model.New(machine.of(2))
				free.Unlimited = true
				u := parts(free, window(load.Load), 3, free.Add("a", fixed(30), load.Load), free.Add("b", fixed(70), load.Load))
				m := model.New(machine.of(2))
				got := parts(m, window(load.Load), 3, m.Add("a", fixed(30), load.Load), m.Add("b", fixed(70), load.Load))
				for i, row := range got {
					t.Logf("%.2f:%.2f uncapped %.2f:%.2f", row[0], row[1], u[i][0], u[i][1])
					for k, promise := range []float64{30, 70} {
						if row[k] < min(promise, u[i][k])-1.5 || row[k] > promise+1.5 {
							t.Errorf("share %d got %.2f of %v", k, row[k], promise)
						}
					}
				}
			})
		}
	}
}
