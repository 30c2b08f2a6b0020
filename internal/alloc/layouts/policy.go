package layouts

import (
	"cmp"
	"math"
	"slices"
)

// Policy is the best way to place instances for one mix of requests: the expected worth of each layout. It does not
// change once it is made.
type Policy struct {
	model *Model
	// worth is by layout, in parts of a memory slice: what will be accepted in the long run, compared with other
	// layouts.
	worth []int64
}

const (
	// part is how many units of worth one accepted memory slice has.
	part = 1 << 24
	// closeEnough ends the computation: a hundred-thousandth of a slice for each step.
	closeEnough = part / 100_000
	// mostRounds bounds the computation. A mix takes about 150 rounds.
	mostRounds = 1000
	// opening is what it costs to begin on an empty GPU: more than any place on one that has instances. What one GPU
	// refuses another may take, so empty ones are worth more than the computation for one GPU alone tells.
	opening = 64 * part
)

// Load is how many requests for a GPU arrive in the mean lifetime of an instance, in eighths.
type Load int64

// The bounds of a load. Beyond them the best placement hardly depends on it.
const (
	leastLoad Load = 8 / 2
	mostLoad  Load = 8 * 16
)

// Solve computes the policy for a mix, given as a weight for each profile, of which at least one must be positive, and
// for a load. Requests arrive at random, instances live for random times, and what does not fit is lost. Rounds of value
// iteration converge on the placement that accepts the most memory slices in the long run. A policy of the same model
// from which to begin makes it quicker; nil begins from nothing.
func (m *Model) Solve(weights []int64, load Load, from *Policy) *Policy {
	p := &Policy{model: m, worth: make([]int64, len(m.layouts))}
	sum := int64(0)
	for _, w := range weights {
		sum += w
	}
	if sum == 0 {
		return p
	}
	load = min(max(load, leastLoad), mostLoad)
	if from != nil && from.model == m {
		copy(p.worth, from.worth)
	}
	after := make([]int64, len(m.layouts))
	for range mostRounds {
		least, most := int64(math.MaxInt64), int64(math.MinInt64)
		for l := range m.layouts {
			after[l] = p.round(int32(l), weights, sum, int64(load))
			gain := after[l] - p.worth[l]
			least, most = min(least, gain), max(most, gain)
		}
		for l := range after {
			p.worth[l] = after[l] - after[0]
		}
		if most-least <= closeEnough {
			break
		}
	}
	return p
}

// Roomiest is the policy for a mix of which nothing is known: the best place is the one that blocks the fewest of the
// placements that are possible. It knows no future, so a learnt one is better as soon as there is one.
func (m *Model) Roomiest() *Policy { return m.roomiest }

func (m *Model) makeRoomiest() *Policy {
	p := &Policy{model: m, worth: make([]int64, len(m.layouts))}
	for l := range m.layouts {
		for _, to := range m.next[l*len(m.placements) : (l+1)*len(m.placements)] {
			if to >= 0 {
				p.worth[l] += opening / (MaxPlacements + 1) // all together are less than it costs to begin on an empty GPU
			}
		}
	}
	return p
}

// round is the worth of a layout before one more event: with the same clock for all layouts, an arrival, the end of an
// instance, or nothing.
func (p *Policy) round(l int32, weights []int64, sum, load int64) int64 {
	m := p.model
	arrivals := int64(0)
	for profile, weight := range weights {
		if weight == 0 {
			continue
		}
		best := p.worth[l]
		if to := p.best(l, profile); to >= 0 {
			best = p.worth[to] + int64(m.profiles[profile].Size)*part
		}
		arrivals += weight * best
	}
	ends := int64(m.most-len(m.ends[l])) * p.worth[l]
	for _, to := range m.ends[l] {
		ends += p.worth[to]
	}
	return (load*arrivals + 8*sum*ends) / (sum * (load + 8*int64(m.most)))
}

// best is the most worthy layout after an instance of a profile is added, or -1. Of equal ones it is the first.
func (p *Policy) best(l int32, profile int) int32 {
	m, best := p.model, int32(-1)
	for i := m.first[profile]; i < m.first[profile+1]; i++ {
		to := m.next[int(l)*len(m.placements)+i]
		if to >= 0 && (best < 0 || p.worth[to] > p.worth[best]) {
			best = to
		}
	}
	return best
}

// Choice is where an instance goes.
type Choice struct {
	Placement
	// GPU is the position of the layout in what was asked.
	GPU int
	// Cost is what the choice makes less likely to be accepted later, in parts of a memory slice; smaller is better.
	Cost int64
}

// cost is that of a step from one layout to another. The empty layout is the first.
func (p *Policy) cost(at, to int32) int64 {
	cost := p.worth[at] - p.worth[to]
	if at == 0 {
		cost += opening
	}
	return cost
}

// Choose returns the best place for a profile in a layout. blocked has a bit for each memory slice that something takes
// of which the model does not know. It reports false where the instance does not fit.
func (p *Policy) Choose(l Layout, blocked uint32, profile int) (Choice, bool) {
	best, found := Choice{}, false
	for _, c := range p.choices(0, l, blocked, profile) {
		if !found || c.Cost < best.Cost {
			best, found = c, true
		}
	}
	return best, found
}

// choices are the places for a profile that are free in a layout.
func (p *Policy) choices(gpu int, l Layout, blocked uint32, profile int) (all []Choice) {
	m := p.model
	if profile < 0 || profile >= len(m.profiles) {
		return nil
	}
	at, known := m.position[l]
	if !known {
		return nil
	}
	for i := m.first[profile]; i < m.first[profile+1]; i++ {
		to := m.next[int(at)*len(m.placements)+i]
		if to >= 0 && blocked&m.masks[i] == 0 {
			all = append(all, Choice{Placement: m.placements[i], GPU: gpu, Cost: p.cost(at, to)})
		}
	}
	return all
}

// Order lists all placements on GPUs with these layouts in the order in which whoever takes the first that fits should
// find them: of each profile the places that are free, the best first, and then the others, which may become free. Small
// profiles come before large ones, so that a request for an amount gets the smallest instance.
func (p *Policy) Order(layouts ...Layout) []Choice {
	m := p.model
	order := make([]Choice, 0, len(layouts)*len(m.placements))
	for gpu, l := range layouts {
		at, known := m.position[l]
		for i, place := range m.placements {
			c := Choice{Placement: place, GPU: gpu, Cost: math.MaxInt64}
			alone := m.next[i]
			if alone >= 0 {
				c.Cost = math.MaxInt64/2 - p.worth[alone]
			}
			if known {
				if to := m.next[int(at)*len(m.placements)+i]; to >= 0 {
					c.Cost = p.cost(at, to)
				}
			}
			order = append(order, c)
		}
	}
	slices.SortStableFunc(order, func(a, b Choice) int {
		x, y := &m.profiles[a.Profile], &m.profiles[b.Profile]
		return cmp.Or(cmp.Compare(x.Size, y.Size), cmp.Compare(x.Takes[ComputeSlices], y.Takes[ComputeSlices]),
			cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.Cost, b.Cost))
	})
	return order
}
