package pacing

import (
	"time"

	"github.com/divvy-gpu/divvy/internal/page"
)

const (
	// hunger is for how long the law counts a share that waited as wanting more. That it
	// waits again after a longer time is news.
	hunger = uint64(20 * time.Millisecond)
	// waiting is how fresh the mark of a launch that waits is: it is renewed at each nap, of
	// 5 ms at most (DV_TIME_NAP_NS), by a process that may have lost its processor.
	waiting = uint64(15 * time.Millisecond)
	// asleepMost is the longest time without a look at a share that waits.
	asleepMost = 50 * time.Millisecond
	// kept is how long a budget in which only the time would change is left as it is for a
	// share that waits. With a tick that comes late it stays below page.StaleNs.
	kept = uint64(30 * time.Millisecond)
	// answers is how many looks in a row tell a share that began to wait that its budget is
	// decided: the first may come in the middle of the nap in which the wait began.
	answers = 2
)

// sleepsUntil is until when a share's processes can only wait, 0 if they may do something:
// nothing of theirs is under way, a launch waits, and the bucket holds nothing.
func (s *shareTime) sleepsUntil(now uint64, times *page.Times) uint64 {
	b := &times.Bucket
	if !s.limited() || s.yields() || s.budget.Rate == 0 || b.Wanted == 0 || now-min(now, b.Wanted) > waiting {
		return 0
	}
	for i := range s.works {
		if s.works[i].OpenSince != 0 {
			return 0
		}
	}
	lacks := -levelOf(now, times, &s.budget)
	if lacks <= 0 {
		return 0
	}
	return now + uint64(min(lacks*page.Whole/float64(s.budget.Rate), float64(asleepMost)))
}

// Stir says that a tenant that did nothing for a while does something.
func (l *loop) Stir(tenant string) {
	l.stirring.Lock()
	l.stirred = append(l.stirred, tenant)
	rests := l.rests
	l.stirring.Unlock()
	if rests {
		l.rouse()
	}
}

// rest notes whether some GPU rests now, and reports whether somebody stirred since the round began.
func (l *loop) rest(rests bool) (stirred bool) {
	l.stirring.Lock()
	defer l.stirring.Unlock()
	l.rests = rests
	return rests && len(l.stirred) > 0
}

// unrest ends the rest of the GPUs on which somebody stirred. mu is held.
func (l *loop) unrest() {
	l.stirring.Lock()
	stirred := l.stirred
	l.stirred = nil
	l.stirring.Unlock()
	for _, id := range stirred {
		t := l.tenants[id]
		if t == nil {
			continue
		}
		for _, s := range t.shares {
			if g := l.gpus[s.uuid]; g != nil && g.resting {
				g.next = 0
			}
		}
	}
}
