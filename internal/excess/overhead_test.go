package excess

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A share whose ledger stands still: one reading tells of growth, and one of its end.
func TestOverheadOfAQuietShare(t *testing.T) {
	var o Overhead
	now := time.Unix(1000, 0)
	for _, step := range []struct {
		after         time.Duration
		held, want    uint64
		settled, quit bool
	}{
		{0, gib, 0, false, false},
		{time.Second, gib, 0, false, false},
		{Lag, gib, 0, true, false},
		{time.Second, gib + 300*mib, 300 * mib, true, false},
		{time.Second, gib + 100*mib, 100 * mib, true, false},
		{time.Second, gib - 100*mib, 0, true, true},
		{time.Second, gib + 900*mib, 0, false, false},
	} {
		now = now.Add(step.after)
		if settled := o.Read(now, step.held, gib, 7); settled != step.settled || o.Bytes() != step.want {
			t.Errorf("%v: %d, %t, want %d, %t", now.Unix(), o.Bytes(), settled, step.want, step.settled)
		}
		if step.quit {
			o.Unknown()
		}
	}
}

// What an earlier agent measured counts until a reading shows less.
func TestOverheadThatWasKnown(t *testing.T) {
	o := NewOverhead(300 * mib)
	now := time.Unix(1000, 0)
	o.Read(now, gib+300*mib, gib, 1)
	if o.Bytes() != 300*mib {
		t.Errorf("as before: %d", o.Bytes())
	}
	o.Read(now.Add(time.Second), gib+200*mib, gib, 1)
	if o.Bytes() != 200*mib {
		t.Errorf("less: %d", o.Bytes())
	}
}

// late plays a share that takes and gives back at random, with overhead that only grows, and
// a driver that is late by up to Lag. It calls visit after each reading.
func late(seed uint64, lag time.Duration, visit func(o *Overhead, now time.Time, over uint64, settled bool)) {
	r := rand.New(rand.NewPCG(seed, 11))
	type moment struct {
		at         time.Time
		told, over uint64
		operation  uint64
	}
	now := time.Unix(1000, 0)
	past := []moment{{at: now}}
	var o Overhead
	for range 400 {
		last := past[len(past)-1]
		for range r.IntN(4) {
			now = now.Add(time.Duration(r.IntN(300)) * time.Millisecond)
			last.at, last.operation = now, last.operation+1
			last.told = uint64(r.IntN(20)) * gib
			past = append(past, last)
		}
		now = now.Add(time.Duration(r.IntN(1500)) * time.Millisecond)
		if r.IntN(5) == 0 {
			last.at, last.over = now, last.over+uint64(r.IntN(100))*mib
			past = append(past, last)
		}
		then := now.Add(-time.Duration(r.Int64N(int64(lag) + 1)))
		seen := past[0]
		for _, m := range past {
			if !m.at.After(then) {
				seen = m
			}
		}
		settled := o.Read(now, seen.told+seen.over, last.told, last.operation)
		visit(&o, now, last.over, settled)
	}
}

// A driver that is not late gives the true figure: never more, and all of it some readings
// after the last growth, however busy the share is.
func TestOverheadIsExactWithoutLag(t *testing.T) {
	for seed := range uint64(100) {
		var is uint64
		var since time.Time
		late(seed, 0, func(o *Overhead, now time.Time, over uint64, settled bool) {
			if over != is {
				is, since = over, now
			}
			if o.Bytes() > over {
				t.Fatalf("seed %d: %d of %d", seed, o.Bytes(), over)
			}
			if settled && now.Sub(since) > Lag+3*time.Second && o.Bytes() != over {
				t.Fatalf("seed %d: %d of %d after %v", seed, o.Bytes(), over, now.Sub(since))
			}
		})
	}
}

// A driver that is late makes nobody's allocations overhead, or else only for readings that
// by chance all came from moments with more.
func TestOverheadOfALateDriver(t *testing.T) {
	wrong, readings := 0, 0
	for seed := range uint64(200) {
		late(seed, Lag, func(o *Overhead, _ time.Time, over uint64, _ bool) {
			readings++
			if o.Bytes() > over {
				wrong++
			}
		})
	}
	if wrong*100 > readings {
		t.Errorf("%d of %d readings gave too much", wrong, readings)
	}
}
