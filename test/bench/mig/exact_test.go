package main

import (
	"math"
	"testing"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// The judge knows the 723 layouts, and gives the figures for the lowest start that were computed when the four mixes
// were chosen, by another program.
func TestJudge(t *testing.T) {
	s, err := (&bench{machines: "../../../testdata/mig"}).seventh()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.game.states) != 723 {
		t.Errorf("%d states", len(s.game.states))
	}
	lowest := func(_ []instance, _ int, free []int) int { return free[0] }
	for i, want := range []float64{96.7, 99.1, 97.7, 97.0} {
		least := 100.0
		for _, load := range loads {
			most, worth := s.game.solve(named[i].vector(), load, nil)
			low, _ := s.game.solve(named[i].vector(), load, lowest)
			best, _ := s.game.solve(named[i].vector(), load, s.game.best(worth))
			if math.Abs(best-most) > 1e-4 {
				t.Errorf("%s, load %v: the best rule gains %v of %v", named[i].name, load, best, most)
			}
			least = min(least, 100*low/most)
		}
		if math.Abs(least-want) > 0.051 {
			t.Errorf("%s: the lowest start gains %.2f %%, want %v", named[i].name, least, want)
		}
	}
}

// Kubernetes' allocator takes the first placement of a profile that is free, in the order that was published, and none
// over another one.
func TestAllocatorFollowsTheOrder(t *testing.T) {
	s, err := (&bench{machines: "../../../testdata/mig"}).seventh()
	if err != nil {
		t.Fatal(err)
	}
	weights := make([]int64, len(s.model.Profiles()))
	weights[0], weights[5] = 1, 1 // 1g and 4g: 1g stays off the lower half
	policy, scheduler, layout := s.model.Solve(weights, 32, nil), newScheduler(s.model), layouts.Layout(0)
	for _, profile := range []int{0, 0, 5, 0, 4, 1} {
		scheduler.publish(policy.Order(layout))
		want, fits := policy.Choose(layout, 0, profile)
		place, ok, err := scheduler.take(profile)
		if err != nil || ok != fits || ok && place != want.Placement {
			t.Fatalf("profile %d: %+v %v, want %+v %v (%v)", profile, place, ok, want, fits, err)
		}
		if ok {
			layout |= s.model.Placed(profile, place.Start)
		}
	}
}
