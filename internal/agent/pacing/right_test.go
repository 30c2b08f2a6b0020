package pacing

import (
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/page"
)

// What a share is entitled to follows what it is given over time, and a share that is alone may use all.
func TestEntitled(t *testing.T) {
	second := uint64(time.Second)
	var l usageLog
	at := second
	budget := func(base, rate uint32, flags uint32) *page.Budget {
		return &page.Budget{Base: base, Rate: rate, Flags: flags}
	}
	if got := l.right.until(at).entitled; got != 0 {
		t.Errorf("before any budget: %v", got)
	}
	l.grant(at, budget(page.Whole/4, page.Whole/2, page.BudgetLimited))
	l.grant(at+second, budget(page.Whole/10, page.Whole/10, page.BudgetLimited))
	l.grant(at+2*second, budget(0, 0, 0))
	end := l.right.until(at + 3*second)
	if want := float64(second) * (0.25 + 0.1 + 1); end.entitled < want-1 || end.entitled > want+1 {
		t.Errorf("entitled to %v ns, want %v", end.entitled, want)
	}
	if want := float64(second) * (0.5 + 0.1 + 1); end.given < want-1 || end.given > want+1 {
		t.Errorf("given %v ns, want %v", end.given, want)
	}
	if again := l.right.until(at); again.entitled > end.entitled { // a clock that lags
		t.Errorf("before the last budget: %v", again)
	}
}

// The error of a share is what it used beyond what was given, or less, of the last second.
func TestStrays(t *testing.T) {
	step := uint64(usageStep)
	var l usageLog
	if got := l.strays(step); got != nil {
		t.Errorf("of a share that is not known: %v", *got)
	}
	l.grant(step, &page.Budget{Base: page.Whole / 2, Rate: page.Whole / 2, Flags: page.BudgetLimited})
	for i := range uint64(20) {
		l.add((i+1)*step, step*6/10)
	}
	if got := l.strays(20 * step); got == nil || *got < 0.09 || *got > 0.11 {
		t.Errorf("six tenths used of five: %v", got)
	}
}
