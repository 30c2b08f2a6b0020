package main

import (
	"math/rand/v2"
	"slices"
)

// arrival is a request of a run: when it comes and how long its instance lives, in mean lifetimes.
type arrival struct {
	profile  int
	at, life float64
}

// arrivals draws requests of a mix. The same seed gives the same ones.
func (g *game) arrivals(weights []float64, load float64, seed uint64, n int) []arrival {
	random := rand.New(rand.NewPCG(seed, 1))
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	all, now := make([]arrival, n), 0.0
	for i := range all {
		now += random.ExpFloat64() / load
		part := random.Float64() * sum
		for p, w := range weights {
			if part -= w; part < 0 && w > 0 {
				all[i].profile = p
				break
			}
		}
		all[i].at, all[i].life = now, random.ExpFloat64()
	}
	return all
}

// placer decides where an instance goes at a moment. free are the starts at which it fits, perhaps none. It reports
// false where it gives the request no place.
type placer interface {
	place(now float64, state []instance, profile int, free []int) (start int, ok bool)
	ended(now float64, i instance)
}

// accepted runs requests on one GPU and returns how many memory slices were given, from the request skip on.
func (g *game) accepted(all []arrival, skip int, p placer) (slicesGiven int) {
	type life struct {
		instance
		until float64
	}
	var living []life
	var state []instance
	for n, a := range all {
		slices.SortFunc(living, func(x, y life) int {
			if x.until < y.until {
				return -1
			}
			return 1
		})
		for len(living) > 0 && living[0].until <= a.at {
			gone := living[0]
			living = living[1:]
			state = slices.DeleteFunc(state, func(i instance) bool { return i == gone.instance })
			p.ended(gone.until, gone.instance)
		}
		start, ok := p.place(a.at, state, a.profile, g.free(state, a.profile))
		if !ok {
			continue
		}
		i := instance{a.profile, start}
		state = with(state, i)
		living = append(living, life{i, a.at + a.life})
		if n >= skip {
			slicesGiven += g.profiles[a.profile].Size
		}
	}
	return slicesGiven
}

// place makes a placer of a rule.
func (r rule) place(_ float64, state []instance, profile int, free []int) (int, bool) {
	if len(free) == 0 {
		return 0, false
	}
	return r(state, profile, free), true
}

func (r rule) ended(float64, instance) {}
