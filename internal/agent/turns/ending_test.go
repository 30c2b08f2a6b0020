package turns

import (
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/residency"
)

// One that is to end has an open gate at once, whoever has the GPU, and takes turns again if it does not end.
func TestOneThatEnds(t *testing.T) {
	bubble(t, 16*gib, func(h *house) {
		a, b := h.add("a", 10*gib, firstID), h.add("b", 10*gib, firstID)
		ends := func(is bool) {
			b.set(func() { h.members[1].Ends = is })
			h.loop.Publish(append([]Member(nil), h.members...), h.rooms)
			time.Sleep(5 * step)
		}
		time.Sleep(10 * time.Second)
		for h.stateOf(a) != residency.Resident {
			time.Sleep(step)
		}
		ends(true)
		works := b.worked()
		if time.Sleep(time.Second); b.worked()-works < 900*time.Millisecond || h.stateOf(a) != residency.Resident {
			t.Errorf("in a second it works for %v, and the other one is %v", b.worked()-works, h.stateOf(a))
		}
		ends(false)
		time.Sleep(10 * time.Second)
		h.together(5*time.Minute, a, b)
	})
}
