package main

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	// second is one in mean lifetimes of 30 seconds.
	second = 1.0 / 30
	// requests is how many a run has, of which the first after are not counted.
	requests = 1500
)

// publisher is an agent whose instances a stock scheduler chooses: it keeps its devices in the order that its policy
// prefers, and tells that order at most once a second.
type publisher struct {
	*learner
	scheduler *scheduler
	state     []instance // as the scheduler's allocations have it
	told      float64    // when the order was told last
	stale     bool
	failed    error
}

// catchUp tells the order that was due before a moment.
func (p *publisher) catchUp(now float64) {
	if due := p.told + second; p.stale && due <= now {
		p.tell(due)
	}
}

// tell gives the scheduler the devices in the order that is best now.
func (p *publisher) tell(now float64) {
	p.scheduler.publish(p.mix.Policy().Order(p.layout(p.state)))
	p.told, p.stale = now, false
}

// changed notes that the best order may be another one, and tells it if a second has passed.
func (p *publisher) changed(now float64) {
	p.stale = true
	p.catchUp(now)
}

func (p *publisher) place(now float64, state []instance, profile int, free []int) (int, bool) {
	p.catchUp(now)
	if len(free) > 0 { // an agent hears of claims that its GPUs got, and of no others
		p.observe(state, profile, free)
	}
	place, ok, err := p.scheduler.take(p.profile(profile))
	if err == nil && ok != (len(free) > 0) {
		err = fmt.Errorf("profile %d fits at %v, and the allocator says %v", profile, free, ok)
	}
	if err != nil {
		p.failed = err
		return 0, false
	}
	if ok {
		p.state = with(p.state, instance{profile, place.Start})
	}
	p.changed(now)
	return place.Start, ok
}

func (p *publisher) ended(now float64, i instance) {
	p.catchUp(now)
	p.scheduler.release(layouts.Placement{Profile: p.profile(i.profile), Start: i.start})
	for at, x := range p.state {
		if x == i {
			p.state = append(append([]instance(nil), p.state[:at]...), p.state[at+1:]...)
			break
		}
	}
	p.changed(now)
}

// published is what Kubernetes' allocator accepts with the devices of a publisher, in percent of what the best rule
// accepts of the same requests.
func (s *seventh) published(m mix, load float64, runs int) (percent []float64, err error) {
	weights := m.vector()
	_, worth := s.game.solve(weights, load, nil)
	for seed := range uint64(runs) {
		all := s.game.arrivals(weights, load, seed, requests+after)
		p := &publisher{learner: &learner{seventh: s, mix: layouts.NewMix(s.model)}, scheduler: newScheduler(s.model)}
		p.tell(0)
		got := s.game.accepted(all, after, p)
		if p.failed != nil {
			return nil, p.failed
		}
		percent = append(percent, 100*float64(got)/float64(s.game.accepted(all, after, s.game.best(worth))))
	}
	return percent, nil
}

// firstfit is mig.firstfit.
func (b *bench) firstfit() ([]measurement.Row, error) {
	s, err := b.seventh()
	if err != nil {
		return nil, err
	}
	one := func(m mix, load float64) ([]float64, error) { return s.published(m, load, min(b.runs, 2)) }
	mixes, label := b.drawn()
	var rows []measurement.Row
	for _, set := range []struct {
		mixes []mix
		label string
		goal  float64
	}{{named, "worst of the four mixes", 98}, {mixes, label, 97}} {
		least, err := worst(set.mixes, one)
		if err != nil {
			return nil, err
		}
		row := measurement.Of("mig.firstfit", "% of optimum", set.goal, measurement.Higher, command, least...)
		row.Case = set.label
		row.Note = fmt.Sprintf("loads 3 and 6; %d requests of each run after %d, against the best rule on the same ones; the policy learns from what was allocated alone", requests, after)
		rows = append(rows, row)
	}
	return rows, nil
}
