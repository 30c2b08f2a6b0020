package main

import (
	"math"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// game is the decision problem of one GPU, enumerated and solved here a second time, in floating point and without the
// code that is measured: requests arrive at random, instances live for random times, what does not fit is lost.
type game struct {
	profiles []layouts.Profile // those that mixes name, without media extensions
	states   [][]instance
	index    map[string]int
}

// instance is one of a state, which is sorted by start.
type instance struct{ profile, start int }

// rule says at which of the starts that are free an instance begins.
type rule func(state []instance, profile int, free []int) int

func newGame(profiles []layouts.Profile) *game {
	g := &game{profiles: profiles, index: map[string]int{}}
	var extend func(state []instance, from int)
	extend = func(state []instance, from int) {
		g.index[key(state)] = len(g.states)
		g.states = append(g.states, slices.Clone(state))
		for start := from; start < layouts.MaxSlices; start++ {
			for p := range profiles {
				if slices.Contains(profiles[p].Starts, start) {
					extend(append(slices.Clone(state), instance{p, start}), start+profiles[p].Size)
				}
			}
		}
	}
	extend(nil, 0)
	return g
}

func key(state []instance) string {
	text := make([]byte, 0, 2*len(state))
	for _, i := range state {
		text = append(text, byte(i.profile), byte(i.start))
	}
	return string(text)
}

// free are the starts at which an instance of a profile fits.
func (g *game) free(state []instance, profile int) (starts []int) {
	size := g.profiles[profile].Size
	for _, start := range g.profiles[profile].Starts {
		if !slices.ContainsFunc(state, func(i instance) bool {
			return start < i.start+g.profiles[i.profile].Size && i.start < start+size
		}) {
			starts = append(starts, start)
		}
	}
	return starts
}

func with(state []instance, i instance) []instance {
	at := slices.IndexFunc(state, func(x instance) bool { return x.start > i.start })
	if at < 0 {
		at = len(state)
	}
	return slices.Insert(slices.Clone(state), at, i)
}

// moves are the states that may follow one: by profile the choices on an arrival, and the ends of its instances.
type moves struct {
	arrive [][]int
	end    []int
}

func (g *game) moves(choose rule) []moves {
	all := make([]moves, len(g.states))
	for s, state := range g.states {
		m := moves{arrive: make([][]int, len(g.profiles))}
		for p := range g.profiles {
			free := g.free(state, p)
			if choose != nil && len(free) > 0 {
				free = []int{choose(state, p, free)}
			}
			for _, start := range free {
				m.arrive[p] = append(m.arrive[p], g.index[key(with(state, instance{p, start}))])
			}
		}
		for i := range state {
			m.end = append(m.end, g.index[key(slices.Delete(slices.Clone(state), i, i+1))])
		}
		all[s] = m
	}
	return all
}

// solve returns how many memory slices are accepted in the mean lifetime of an instance, in the long run, and what each
// state is worth: under a rule, or at best where the rule is nil.
func (g *game) solve(weights []float64, load float64, choose rule) (gain float64, worth []float64) {
	sum, most := 0.0, 0
	for _, w := range weights {
		sum += w
	}
	for _, s := range g.states {
		most = max(most, len(s))
	}
	all, clock := g.moves(choose), load+float64(most)
	worth, after := make([]float64, len(g.states)), make([]float64, len(g.states))
	for {
		low, high := math.Inf(1), math.Inf(-1)
		for s := range g.states {
			value := (float64(most - len(all[s].end))) * worth[s]
			for _, to := range all[s].end {
				value += worth[to]
			}
			for p, w := range weights {
				best := worth[s]
				for i, to := range all[s].arrive[p] {
					if v := worth[to] + float64(g.profiles[p].Size); i == 0 || v > best {
						best = v
					}
				}
				value += load * w / sum * best
			}
			after[s] = value / clock
			low, high = min(low, after[s]-worth[s]), max(high, after[s]-worth[s])
		}
		base := after[0]
		for s := range after {
			worth[s] = after[s] - base
		}
		if high-low < 1e-8 {
			return (high + low) / 2 * clock, worth
		}
	}
}

// best is the rule that solve found where it was free to choose.
func (g *game) best(worth []float64) rule {
	return func(state []instance, profile int, free []int) int {
		chosen, most := free[0], math.Inf(-1)
		for _, start := range free {
			if v := worth[g.index[key(with(state, instance{profile, start}))]]; v > most {
				chosen, most = start, v
			}
		}
		return chosen
	}
}
