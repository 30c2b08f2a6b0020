package turns

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/residency"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// beside lets two honest tenants and a third work for a while, and returns the longest that one of the honest ones waited.
func beside(h *house, spoil func(o *tenant)) (longest time.Duration) {
	a, b, c := h.add("a", 10*gib, firstID), h.add("b", 10*gib, firstID), h.add("c", 10*gib, firstID)
	time.Sleep(10 * time.Second)
	if spoil != nil {
		c.set(func() { spoil(c) })
	}
	time.Sleep(5 * time.Minute)
	return max(a.waited(), b.waited())
}

// Whatever one does to its pages, or does not do, nobody else waits for more than a turn longer than beside an honest one.
func TestHostile(t *testing.T) {
	honest := time.Duration(0)
	bubble(t, 16*gib, func(h *house) { honest = beside(h, nil) })
	honest = max(honest, 2*(residency.Longest+residency.Drain)) // by luck they began with turns that suit all
	source := rand.NewPCG(1, 2)
	random := rand.New(source)
	state := func(o *tenant) string { return tenantdir.Dir(o.member.Dir).State() }
	for name, spoil := range map[string]func(o *tenant){
		"never reports done":    func(o *tenant) { o.obeys = func(uint64) bool { return false } },
		"never leaves":          func(o *tenant) { o.obeys = func(state uint64) bool { return state != page.TurnLeaving } },
		"claims not to wait":    func(o *tenant) { o.meddles = func() { o.present(page.OffsetOfPresentWaits, 0) } },
		"claims to wait always": func(o *tenant) { o.meddles = func() { o.present(page.OffsetOfPresentWaits, math.MaxUint64) } },
		"claims to work always": func(o *tenant) { o.meddles = func() { o.present(page.OffsetOfPresentCalled, math.MaxUint64) } },
		"forges nothing there":  func(o *tenant) { o.meddles = func() { o.present(page.OffsetOfPresentThere, 0) } },
		"forges all there":      func(o *tenant) { o.meddles = func() { o.present(page.OffsetOfPresentThere, math.MaxUint64) } },
		"forges a rate": func(o *tenant) {
			o.meddles = func() {
				o.each(page.OffsetOfGPUResidence+page.OffsetOfResidenceMovedIn, random.Uint64())
				o.each(page.OffsetOfGPUResidence+page.OffsetOfResidenceMoving, random.Uint64())
			}
		},
		"forges its ledger": func(o *tenant) { o.meddles = func() { o.charge(random.Uint64()) } },
		"comes in small and grows": func(o *tenant) {
			o.meddles = func() {
				o.present(page.OffsetOfPresentThere, math.MaxUint64) // so that its leaving seems to cost most
				if o.order[0].Order&(1<<page.TurnBits-1) == page.TurnAway {
					o.charge(0)
				} else {
					o.charge(page.Unit * math.MaxUint32)
				}
			}
		},
		"writes zeros": func(o *tenant) {
			o.meddles = func() {
				o.put(make([]byte, page.SizeOfGPU-page.OffsetOfGPUResidence), page.SizeOfState+page.OffsetOfGPUResidence)
			}
		},
		"writes garbage": func(o *tenant) {
			o.meddles = func() {
				data := make([]byte, 4096)
				for i := range data {
					data[i] = byte(random.Uint32())
				}
				o.put(data, page.SizeOfHeader+random.Int64N(page.SizeOfState+page.SizeOfGPU-page.SizeOfHeader-4096))
			}
		},
		"cuts its page short": func(o *tenant) {
			if err := os.Truncate(state(o), 0); err != nil {
				t.Error(err)
			}
		},
		"is stopped": func(o *tenant) { o.stopped = true },
		"dies":       func(o *tenant) { go o.die() },
		"has a slow link": func(o *tenant) {
			o.kernel = 4 * time.Second
		},
		"never ends its work": func(o *tenant) { o.kernel = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			source.Seed(1, 2) // the same, whichever comes first
			bubble(t, 16*gib, func(h *house) {
				if longest := beside(h, spoil); longest > honest+residency.Longest {
					h.t.Errorf("an honest one waits for %v, and beside an honest one for %v", longest, honest)
				} else {
					h.t.Logf("%v, beside an honest one %v", longest, honest)
				}
			})
		})
	}
}

// One that carries nothing out has turns less and less often, and all of its turns again when it goes on.
func TestSilent(t *testing.T) {
	for name, silence := range map[string]func(o *tenant, silent bool){
		"stopped":            func(o *tenant, silent bool) { o.stopped = silent },
		"never reports done": func(o *tenant, silent bool) { o.obeys = func(uint64) bool { return !silent } },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 16*gib, func(h *house) {
				a, b := h.add("a", 10*gib, firstID), h.add("b", 10*gib, firstID)
				time.Sleep(time.Minute)
				for h.stateOf(b) != residency.Away {
					time.Sleep(step)
				}
				b.set(func() { silence(b, true) })
				turns, worked := h.loop.Seen("b")[0].Turns, a.worked()
				time.Sleep(10 * time.Minute)
				if had, others := h.loop.Seen("b")[0].Turns-turns, a.worked()-worked; had < 1 || had > 4 || name == "stopped" && others < 9*time.Minute {
					t.Errorf("in 10 minutes it has %d turns, and the other one works for %v", had, others)
				}
				b.set(func() { silence(b, false) })
				time.Sleep(time.Minute)
				before := b.worked()
				if time.Sleep(10 * time.Minute); b.worked()-before < 4*time.Minute {
					t.Errorf("it goes on, and works for %v of 10 minutes", b.worked()-before)
				}
			})
		})
	}
}

// One that was stopped and goes on has its next turn as any other, also while its call waits for that.
func TestGoesOn(t *testing.T) {
	bubble(t, 16*gib, func(h *house) {
		h.add("a", 10*gib, firstID)
		b := h.add("b", 10*gib, firstID)
		b.set(func() {
			b.meddles = func() { // as the library does
				if b.since != 0 {
					b.present(page.OffsetOfPresentCalled, h.clock())
				}
			}
		})
		time.Sleep(time.Minute)
		for h.stateOf(b) != residency.Resident {
			time.Sleep(step)
		}
		b.set(func() { b.stopped = true })
		for h.stateOf(b) != residency.Away {
			time.Sleep(step)
		}
		b.set(func() { b.stopped = false })
		turns := h.loop.Seen("b")[0].Turns
		time.Sleep(residency.Absence / 2)
		if had := h.loop.Seen("b")[0].Turns - turns; had == 0 {
			t.Errorf("it has gone on for %v and has had no turn", time.Duration(residency.Absence/2))
		}
	})
}
