package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const command = "make bench-mig"

// bench is what all measurements need.
type bench struct {
	machines string
	// held lets the drawn mixes be all of them, and not only those that may be looked at while the policy is changed.
	held bool
	runs int
	// build is the build folder.
	build string
}

// models reads the profiles of a machine.
func (b *bench) model(name string) (*layouts.Model, error) {
	text, err := os.ReadFile(filepath.Join(b.machines, name+".txt"))
	if err != nil {
		return nil, err
	}
	profiles, err := layouts.Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return layouts.NewModel(profiles)
}

// seventh is a GPU with seven compute slices and the problem of placing on it what mixes name.
type seventh struct {
	model *layouts.Model
	game  *game
}

func (b *bench) seventh() (*seventh, error) {
	m, err := b.model("a100-80gb")
	if err != nil {
		return nil, err
	}
	plain := slices.DeleteFunc(slices.Clone(m.Profiles()), func(p layouts.Profile) bool { return strings.Contains(p.Name, "+") })
	return &seventh{m, newGame(plain)}, nil
}

// weights are those of a mix in the order of the game's profiles, which is that of sevenths.
func (m mix) vector() []float64 {
	weights := make([]float64, len(sevenths))
	for i, name := range sevenths {
		weights[i] = m.weights[name]
	}
	return weights
}

// loads are how many requests arrive in a mean lifetime.
var loads = []float64{3, 6}

// learner places by what it has learnt.
type learner struct {
	*seventh
	mix *layouts.Mix
}

// layout is a state as the model counts it.
func (s *seventh) layout(state []instance) (l layouts.Layout) {
	for _, i := range state {
		l |= s.model.Placed(s.profile(i.profile), i.start)
	}
	return l
}

func (s *seventh) profile(p int) int { return s.model.Profile(s.game.profiles[p].Name) }

func (l *learner) observe(state []instance, profile int, free []int) {
	l.mix.Observe(layouts.Arrival{Profile: l.profile(profile), Held: int64(len(state)) * 1000, Fitted: len(free) > 0})
}

func (l *learner) place(_ float64, state []instance, profile int, free []int) (int, bool) {
	l.observe(state, profile, free)
	c, ok := l.mix.Policy().Choose(l.layout(state), 0, l.profile(profile))
	return c.Start, ok
}

func (l *learner) ended(float64, instance) {}

// learnt is the rule of a policy that does not change any more.
func (s *seventh) learnt(p *layouts.Policy) rule {
	return func(state []instance, profile int, _ []int) int {
		c, _ := p.Choose(s.layout(state), 0, s.profile(profile))
		return c.Start
	}
}

// after is how many requests have been seen when the learnt policy is judged.
const after = 100

// judged is what the policy that is learnt from requests accepts in the long run, in percent of the most that is
// possible, by run.
func (s *seventh) judged(m mix, load float64, runs int) (percent []float64) {
	weights := m.vector()
	most, _ := s.game.solve(weights, load, nil)
	for seed := range uint64(runs) {
		l := &learner{seventh: s, mix: layouts.NewMix(s.model)}
		s.game.accepted(s.game.arrivals(weights, load, seed, after), 0, l)
		gain, _ := s.game.solve(weights, load, s.learnt(l.mix.Policy()))
		percent = append(percent, 100*gain/most)
	}
	return percent
}

// worst computes a figure for each mix and load, two at a time, and returns for each run the worst of them.
func worst(mixes []mix, one func(m mix, load float64) ([]float64, error)) ([]float64, error) {
	var wait sync.WaitGroup
	var mutex sync.Mutex
	var least []float64
	var failed error
	slots := make(chan struct{}, 2)
	for _, m := range mixes {
		for _, load := range loads {
			wait.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				figures, err := one(m, load)
				mutex.Lock()
				defer mutex.Unlock()
				if err != nil {
					failed = err
					return
				}
				fmt.Fprintf(os.Stderr, "%s, load %v: %.2f\n", m.name, load, figures)
				for i, f := range figures {
					if i == len(least) {
						least = append(least, f)
					}
					least[i] = min(least[i], f)
				}
			})
		}
	}
	wait.Wait()
	return least, failed
}

// drawn are the mixes of the seeds, as far as they may be looked at.
func (b *bench) drawn() (mixes []mix, label string) {
	seeds := openSeeds
	if b.held {
		seeds = allSeeds
	}
	for i := range seeds {
		m := drawn(uint64(firstSeed + i))
		m.name = fmt.Sprintf("drawn %d", firstSeed+i)
		mixes = append(mixes, m)
	}
	return mixes, fmt.Sprintf("worst of %d drawn mixes", seeds)
}

// computing is how many seconds it takes to compute a policy from nothing, for each of the four mixes.
func (s *seventh) computing() (seconds []float64) {
	for _, m := range named {
		weights := make([]int64, len(s.model.Profiles()))
		for p, w := range m.vector() {
			weights[s.profile(p)] = int64(100 * w)
		}
		begin := time.Now()
		s.model.Solve(weights, 32, nil)
		seconds = append(seconds, time.Since(begin).Seconds())
	}
	return seconds
}

// online is mig.online.
func (b *bench) online() ([]measurement.Row, error) {
	s, err := b.seventh()
	if err != nil {
		return nil, err
	}
	one := func(m mix, load float64) ([]float64, error) { return s.judged(m, load, b.runs), nil }
	mixes, label := b.drawn()
	var rows []measurement.Row
	for _, set := range []struct {
		mixes []mix
		label string
		goal  float64
	}{{named, "worst of the four mixes", 99.5}, {mixes, label, 99}} {
		least, err := worst(set.mixes, one)
		if err != nil {
			return nil, err
		}
		row := measurement.Of("mig.online", "% of optimum", set.goal, measurement.Higher, command, least...)
		row.Case = set.label
		row.Note = fmt.Sprintf("loads 3 and 6; after %d requests of each run", after)
		rows = append(rows, row)
	}
	took := measurement.Of("mig.online", "s", 1, measurement.Lower, command, s.computing()...)
	took.Case = "computing a policy"
	return append(rows, took), nil
}
