package main

import "testing"

// Where nothing was decided there is no figure, and a wait without a decision counts.
func TestLatenessOfNoDecision(t *testing.T) {
	if late, err := (&lateness{shares: make([]waiting, 3)}).p99(5e6); err == nil {
		t.Errorf("without a wait decisions are %v ms late", late)
	}
	l := &lateness{shares: []waiting{{since: 2e6}, {}}, late: []float64{1}}
	if late, err := l.p99(42e6); err != nil || late != 40 {
		t.Errorf("%v ms late, %v; want 40", late, err)
	}
}
