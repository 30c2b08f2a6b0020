package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// entry is a review that asks for a lane.
type entry struct {
	*waiter
	lane    *lane
	address string
}

// ask has a review wait, as enter does.
func (l *lane) ask(address string, bytes int64) entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := entry{&waiter{bytes: bytes, ended: make(chan struct{})}, l, address}
	l.wait(address, e.waiter)
	l.admit()
	return e
}

func (e entry) leave() {
	e.lane.mu.Lock()
	defer e.lane.mu.Unlock()
	e.lane.free(e.address, e.bytes)
}

// has fails unless the review has come in, waits or was turned away.
func (e entry) has(t *testing.T, want string) {
	t.Helper()
	got := "waits"
	select {
	case <-e.ended:
		if got = "is in"; e.err != nil {
			got = "was turned away"
		}
	default:
	}
	if got != want {
		t.Fatalf("a review from %s %s, want that it %s", e.address, got, want)
	}
}

// A flood from one address fills three quarters, and another address comes in at once.
func TestLaneLeavesRoomForOthers(t *testing.T) {
	l := newLane(100)
	var flood []entry
	for i := range 40 {
		flood = append(flood, l.ask("flood", 10))
		if i < 7 {
			flood[i].has(t, "is in")
		} else {
			flood[i].has(t, "waits")
		}
	}
	for range 3 {
		l.ask("honest", 10).has(t, "is in")
	}
	late := l.ask("honest", 10)
	late.has(t, "waits")
	// They have turns: one of the flood, then the other.
	flood[0].leave()
	flood[7].has(t, "is in")
	flood[1].leave()
	late.has(t, "is in")
	flood[8].has(t, "waits")
}

// One that needs most of the lane comes in although smaller ones come all the time, and one that needs more than a part
// comes in alone.
func TestLaneLetsLargeOnesIn(t *testing.T) {
	l := newLane(100)
	first, second := l.ask("a", 30), l.ask("b", 30)
	first.has(t, "is in")
	second.has(t, "is in")
	large, behind := l.ask("c", 90), l.ask("d", 10)
	first.leave()
	large.has(t, "waits")
	behind.has(t, "waits")
	second.leave()
	large.has(t, "is in")
	behind.has(t, "is in")
	large.leave()
	behind.leave()
	more := l.ask("c", 1000) // more than there is: it is bounded elsewhere
	more.has(t, "is in")
	l.ask("d", 1).has(t, "waits")
}

// If too many wait, the last of the address with the most is turned away.
func TestLaneTurnsTheFloodAway(t *testing.T) {
	l := newLane(10)
	l.ask("first", 10).has(t, "is in")
	var flood []entry
	for range mostWaiting {
		flood = append(flood, l.ask("flood", 10))
	}
	honest := l.ask("honest", 10)
	honest.has(t, "waits")
	flood[mostWaiting-1].has(t, "was turned away")
	flood[mostWaiting-2].has(t, "waits")
	if more := l.ask("flood", 10); !errors.Is(more.err, errBusy) || l.count != mostWaiting {
		t.Errorf("one more of the flood: %v, and %d wait", more.err, l.count)
	}
}

func TestLaneForgetsWhoGoes(t *testing.T) {
	l := newLane(10)
	leave, err := l.enter(context.Background(), "a", 10)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.enter(ctx, "b", 10); !errors.Is(err, context.Canceled) {
		t.Errorf("who goes: %v", err)
	}
	stays := l.ask("b", 10)
	leave()
	leave() // makes no more room
	stays.has(t, "is in")
	stays.leave()
	if l.used != 0 || l.count != 0 || len(l.held) != 0 || len(l.waiting) != 0 || len(l.turns) != 0 {
		t.Errorf("left: used %d, count %d, held %v, turns %v", l.used, l.count, l.held, l.turns)
	}
}

// Whatever comes and goes at once, the sums agree, and in the end nothing is left.
func TestLaneAddsUp(t *testing.T) {
	l := newLane(1000)
	var group sync.WaitGroup
	for i := range 400 {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		group.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if random.IntN(4) == 0 {
				go cancel()
			}
			leave, err := l.enter(ctx, fmt.Sprint("address ", random.IntN(5)), 1+random.Int64N(900))
			if err != nil {
				return
			}
			l.mu.Lock()
			var sum int64
			for _, held := range l.held {
				sum += held
			}
			if sum != l.used || l.used > l.capacity || slices.Contains(l.turns, "") {
				t.Errorf("held %v, used %d of %d", l.held, l.used, l.capacity)
			}
			l.mu.Unlock()
			leave()
		})
	}
	group.Wait()
	if l.used != 0 || l.count != 0 || len(l.held) != 0 || len(l.waiting) != 0 || len(l.turns) != 0 {
		t.Errorf("left: used %d, count %d, held %v, turns %v", l.used, l.count, l.held, l.turns)
	}
}
