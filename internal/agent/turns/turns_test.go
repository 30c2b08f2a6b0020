package turns

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/residency"
)

// bubble runs a test on a clock of its own, with a machine whose GPUs have so much room each.
func bubble(t *testing.T, room uint64, test func(h *house)) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, map[string]uint64{firstID: room, otherID: room, thirdID: room})
		test(h)
		h.stop()
	})
}

// together fails where two tenants that do not fit are open at once.
func (h *house) together(span time.Duration, tenants ...*tenant) {
	h.t.Helper()
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(step) {
		open := 0
		for _, o := range tenants {
			o.set(func() {
				if !o.closed {
					open++
				}
			})
		}
		if open > 1 {
			h.t.Fatalf("%v after the beginning %d gates are open", time.Since(h.begun), open)
		}
	}
}

func TestTwoThatFit(t *testing.T) {
	bubble(t, 16*gib, func(h *house) {
		a, b := h.add("a", 8*gib, firstID), h.add("b", 8*gib, firstID)
		time.Sleep(time.Minute)
		if a.waited()+b.waited() > 0 || a.worked() < 59*time.Second || b.worked() < 59*time.Second {
			t.Errorf("they wait for %v and %v", a.waited(), b.waited())
		}
	})
}

func TestTwoTakeTurns(t *testing.T) {
	bubble(t, 16*gib, func(h *house) {
		a, b := h.add("a", 10*gib, firstID), h.add("b", 10*gib, firstID)
		time.Sleep(10 * time.Second) // the first change
		h.together(10*time.Minute, a, b)
		if sum := a.worked() + b.worked(); sum < 9*time.Minute || a.worked() < 4*time.Minute || b.worked() < 4*time.Minute {
			t.Errorf("they work for %v and %v", a.worked(), b.worked())
		}
		for _, o := range []*tenant{a, b} {
			seen := h.loop.Seen(o.member.ID)
			if len(seen) != 1 || seen[0].Turns < 5 || seen[0].Swapped != 10*gib || seen[0].MovedIn == 0 || seen[0].Thrashing != "" || seen[0].Until == nil {
				t.Errorf("%s: %+v", o.member.ID, seen)
			}
		}
		if rate := h.loop.gpus.gpus[0].Rate; rate < linkRate*9/10 || rate > linkRate*11/10 {
			t.Errorf("the rate is taken for %d", rate)
		}
	})
}

// A share of two GPUs and one of each of them take turns, and one that has a GPU alone knows nothing of it.
func TestSeveralGPUs(t *testing.T) {
	bubble(t, 16*gib, func(h *house) {
		both, first, other, third := h.add("both", 10*gib, firstID, otherID), h.add("first", 10*gib, firstID), h.add("other", 10*gib, otherID), h.add("third", 16*gib, thirdID)
		time.Sleep(time.Minute)
		for range 600 {
			time.Sleep(time.Second)
			if h.stateOf(both) == residency.Resident && (h.stateOf(first) == residency.Resident || h.stateOf(other) == residency.Resident) {
				t.Fatal("more is resident than fits")
			}
			both.set(func() {
				if both.order[0].Order != both.order[1].Order {
					t.Errorf("its GPUs have orders %x and %x", both.order[0].Order, both.order[1].Order)
				}
			})
		}
		for _, o := range []*tenant{both, first, other} {
			if o.worked() < 3*time.Minute {
				t.Errorf("%s works for %v", o.member.ID, o.worked())
			}
		}
		if third.waited() > 0 {
			t.Errorf("the third GPU's share waits for %v", third.waited())
		}
	})
}

// An agent that is started again moves nobody, and goes on with the numbers of the orders.
func TestRestart(t *testing.T) {
	bubble(t, 16*gib, func(h *house) {
		a, b := h.add("a", 10*gib, firstID), h.add("b", 11*gib, firstID)
		for range 4 {
			time.Sleep(20 * time.Second)
			for h.stateOf(a) != residency.Resident && h.stateOf(b) != residency.Resident {
				time.Sleep(step)
			}
			before, moved := a.said(), a.moved()+b.moved()
			was := [2]residency.State{h.stateOf(a), h.stateOf(b)}
			h.stop()
			h.start()
			time.Sleep(500 * time.Millisecond)
			if now := [2]residency.State{h.stateOf(a), h.stateOf(b)}; now != was || a.said() != before || a.moved()+b.moved() != moved {
				t.Fatalf("the states were %v and are %v; order %x was %x", was, now, a.said(), before)
			}
		}
	})
}

// Without an agent all gates open within a second; the next agent goes on with turns.
func TestWithoutAnAgent(t *testing.T) {
	bubble(t, 16*gib, func(h *house) {
		a, b := h.add("a", 10*gib, firstID), h.add("b", 10*gib, firstID)
		time.Sleep(20 * time.Second)
		h.stop()
		time.Sleep(ahead + 2*step)
		for _, o := range []*tenant{a, b} {
			o.set(func() {
				if o.closed {
					t.Errorf("the gate of %s is closed", o.member.ID)
				}
			})
		}
		time.Sleep(time.Minute)
		h.start()
		time.Sleep(10 * time.Second)
		h.together(2*time.Minute, a, b)
	})
}

// A kernel that goes on for too long is told of once for each turn, and others have theirs.
func TestWorkThatDoesNotEnd(t *testing.T) {
	bubble(t, 16*gib, func(h *house) {
		a, b := h.add("a", 10*gib, firstID), h.add("b", 10*gib, firstID)
		a.set(func() { a.kernel = 20 * time.Second })
		for len(h.told(control.EventTurn)) == 0 {
			time.Sleep(step)
		}
		seen := h.loop.Seen("a")
		if !seen[0].Late || h.loop.Closed("a") != 0 {
			t.Errorf("it is not late: %+v", seen)
		}
		late := time.Now()
		for h.stateOf(a) == residency.Away {
			time.Sleep(step)
		}
		if told := h.told(control.EventTurn); len(told) != 1 || told[0] != "a" || time.Since(late) < 2*time.Second {
			t.Errorf("told of %q within %v", told, time.Since(late))
		}
		time.Sleep(5 * time.Minute)
		if b.worked() < 2*time.Minute {
			t.Errorf("the other works for %v", b.worked())
		}
	})
}

// Who has no library of ours, or one that told that nothing runs, is closed for the watch from then on.
func TestClosed(t *testing.T) {
	bubble(t, 16*gib, func(h *house) {
		a, b := h.add("a", 10*gib, firstID), h.add("b", 10*gib, firstID)
		time.Sleep(10 * time.Second)
		for range 100 {
			time.Sleep(time.Second)
			for _, o := range []*tenant{a, b} {
				since := h.loop.Closed(o.member.ID)
				if away := h.stateOf(o) == residency.Away; away != (since != 0) || since > h.clock() {
					t.Fatalf("%s is away: %v, closed since %d", o.member.ID, away, since)
				}
			}
		}
		h.stop()
		h.start()
		time.Sleep(time.Second)
		if (h.loop.Closed("a") == 0) == (h.loop.Closed("b") == 0) {
			t.Error("the next agent does not know who is closed")
		}
	})
}

// Without swap shares nothing is looked at.
func TestSleeps(t *testing.T) {
	bubble(t, 16*gib, func(h *house) {
		if next := h.loop.round(t.Context()); next != nothing {
			t.Errorf("the next look is in %v", next)
		}
		a := h.add("a", 10*gib, firstID)
		time.Sleep(10 * time.Second)
		if next := h.loop.round(t.Context()); next != calmTick {
			t.Errorf("beside one that is alone the next look is in %v", next)
		}
		h.add("b", 10*gib, firstID)
		time.Sleep(10 * time.Second)
		if next := h.loop.round(t.Context()); next != busyTick {
			t.Errorf("while somebody waits the next look is in %v", next)
		}
		a.die()
		h.members = nil
		h.loop.published.Store(&published{nil, h.rooms})
		h.loop.Stir()
		synctest.Wait()
		if len(h.loop.tenants) != 0 || h.loop.Seen("a") != nil {
			t.Error("those who ended are known still")
		}
	})
}

// Memory that moves for most of the time is told of once, as long as it does.
func TestThrashing(t *testing.T) {
	bubble(t, 32*gib, func(h *house) {
		h.link = leastRate
		a, b := h.add("a", 30*gib, firstID), h.add("b", 30*gib, firstID)
		time.Sleep(5 * time.Minute)
		if told := h.told(control.EventThrashing); len(told) == 0 || len(told) > 8 {
			t.Errorf("told of %q", told)
		}
		for h.stateOf(a) != residency.Entering {
			time.Sleep(step)
		}
		time.Sleep(20 * time.Second)
		if seen := h.loop.Seen("a"); h.loop.Thrashing(firstID) == "" || seen[0].Thrashing == "" {
			t.Errorf("not told: %+v", seen)
		}
		b.set(func() { b.works = func(uint64) bool { return false } })
		time.Sleep(2 * time.Minute)
		if seen := h.loop.Seen("a"); h.loop.Thrashing(firstID) != "" || seen[0].Thrashing != "" {
			t.Errorf("it is not over: %+v", seen)
		}
	})
}

// What is written is ahead of the clock by no more than a second, and renewed in time.
func TestValidity(t *testing.T) {
	bubble(t, 16*gib, func(h *house) {
		a, b := h.add("a", 10*gib, firstID), h.add("b", 10*gib, firstID)
		time.Sleep(10 * time.Second)
		for range 1000 {
			time.Sleep(100 * time.Millisecond)
			for _, o := range []*tenant{a, b} {
				var order page.Turn
				o.set(func() { order = o.order[0] })
				if now := h.clock(); order.Order&(1<<page.TurnBits-1) == page.TurnAway && (order.Valid < now+uint64(ahead-250*time.Millisecond) || order.Valid > now+uint64(ahead)) {
					t.Fatalf("%+v at %d", order, now)
				}
			}
		}
	})
}
