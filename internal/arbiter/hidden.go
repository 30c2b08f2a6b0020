package arbiter

import (
	"cmp"
	"math"
	"slices"
)

// round is the time between two calls of Advance and the unmeasured work that was told in it. It is not known when in
// the round that work was done. Replay assumes that it took the time in which nobody else was inside an interval, and
// that only what does not fit there took slices between those of others, whose own time is then shorter.
type round struct {
	from, to uint64
	hidden   map[*process]float64 // unmeasured work per time
	total    float64
	slice    uint64
	taken    float64 // part of the time inside intervals of a slice or longer that unmeasured work took
}

// newRound takes unmeasured work in ns.
func newRound(from, to uint64, hidden map[*process]float64, total float64) round {
	one := round{from: from, to: to, hidden: hidden, total: total / float64(to-from)}
	for p, amount := range hidden {
		hidden[p] = amount / float64(to-from)
	}
	return one
}

// kept is the part of its time in the round that a process keeps beside the unmeasured work of others. Processes that
// have work at the same time take turns, so k others take at most k of k + 1 parts.
func (now *round) kept(p *process) float64 {
	if now == nil || now.taken <= 0 || len(p.pending) > 0 && p.pending[0].End-p.pending[0].Begin < now.slice {
		return 1
	}
	others, k := now.total, len(now.hidden)
	if own, has := now.hidden[p]; has {
		others -= own
		k--
	}
	return max(1-now.taken*others/now.total, 1/float64(k+1))
}

// weigh finds how much of the unmeasured work of each round that is played next was done inside intervals.
func (r *Replay) weigh(horizon uint64) {
	if !slices.ContainsFunc(r.rounds, func(one round) bool { return one.total > 0 }) {
		return
	}
	all, short := r.covered(horizon, math.MaxUint64), r.covered(horizon, r.turns.slice)
	for i := range r.rounds {
		one := &r.rounds[i]
		from, to := max(one.from, r.clock), min(one.to, horizon)
		if from >= to || one.total == 0 {
			continue
		}
		one.slice, one.taken = r.turns.slice, 0
		inside := all.within(from, to)
		idle := float64(to-from) - inside
		// During an interval shorter than a slice nobody else had the GPU.
		if inside -= short.within(from, to); inside > 0 {
			one.taken = min(max(one.total*float64(to-from)-idle, 0)/inside, 1)
		}
	}
}

// stretches are spans of time in order, without overlap.
type stretches []Interval

// within is how much of them lies between two moments. It drops what has passed, so calls must not go back in time.
func (s *stretches) within(from, to uint64) float64 {
	sum := uint64(0)
	for len(*s) > 0 && (*s)[0].End <= from {
		*s = (*s)[1:]
	}
	for _, one := range *s {
		if one.Begin >= to {
			break
		}
		sum += min(one.End, to) - max(one.Begin, from)
	}
	return float64(sum)
}

// covered is the time up to the horizon in which some process is inside an interval shorter than limit.
func (r *Replay) covered(horizon, limit uint64) stretches {
	var all stretches
	for _, p := range r.ordered {
		if p.inside && len(p.pending) == 0 && limit == math.MaxUint64 {
			all = append(all, Interval{Begin: r.clock, End: horizon})
		}
		for i, one := range p.pending {
			if one.End-one.Begin >= limit {
				continue
			}
			if p.inside && i == 0 {
				one.Begin = r.clock
			}
			all = append(all, one)
		}
	}
	if len(r.phantoms) > 0 && limit == math.MaxUint64 {
		all = append(all, Interval{Begin: r.clock, End: horizon})
	}
	slices.SortFunc(all, func(a, b Interval) int { return cmp.Compare(a.Begin, b.Begin) })
	joined := all[:0]
	for _, one := range all {
		if n := len(joined); n > 0 && one.Begin <= joined[n-1].End {
			joined[n-1].End = max(joined[n-1].End, one.End)
			continue
		}
		joined = append(joined, one)
	}
	return joined
}
