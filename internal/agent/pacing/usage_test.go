package pacing

import (
	"math"
	"testing"
	"time"
)

// Of what a page tells of waits no more is believed than the time that went by, and
// nothing of the time before.
func TestHeldLog(t *testing.T) {
	const ms = uint64(time.Millisecond)
	var l heldLog
	now, told := 1000*uint64(time.Second), 7*uint64(time.Second)
	step := func(passed, grown, want uint64) {
		t.Helper()
		before := l.log.total
		now += passed
		told += grown
		l.add(now, told)
		if got := l.log.total - before; got != want {
			t.Errorf("grown by %d in %d ns: %d, want %d", grown, passed, got, want)
		}
	}
	step(0, 0, 0) // before it was known
	step(100*ms, 50*ms, 50*ms)
	step(100*ms, 300*ms, 100*ms)
	step(100*ms, math.MaxUint64-told, 100*ms)
	step(100*ms, 8, 0) // it wraps around
	step(100*ms, 50*ms, 50*ms)
	if got := l.log.percent(now); got != 60 {
		t.Errorf("%v percent of 500 ms, want 60", got)
	}
}
