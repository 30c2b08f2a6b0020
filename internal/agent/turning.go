package agent

import (
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/turns"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// publishTurns tells who takes turns in memory. Agent.mu is held.
func (a *Agent) publishTurns() {
	var members []turns.Member
	for _, t := range a.sorted() {
		if !t.ready || t.ended {
			continue
		}
		wanted := a.tenantOf(&t.record)
		if source, ok := a.makerOf(wanted).(turns.Source); ok && wanted.Swap {
			members = append(members, turns.Member{Tenant: wanted, Source: source})
		}
	}
	a.turns.Publish(members, a.rooms())
}

// rooms is what swap shares may have together of each GPU and MIG instance, by UUID, in bytes: what is left beside the
// limits of other shares and what never leaves the GPU. Agent.mu is held.
func (a *Agent) rooms() map[string]uint64 {
	rooms := map[string]uint64{}
	for _, t := range a.tenants {
		if t.ended {
			continue
		}
		wanted := a.tenantOf(&t.record)
		for i := range wanted.Shares {
			s := &wanted.Shares[i]
			left, known := rooms[s.GPU.UUID]
			if !known {
				left = s.GPU.Capacity()
			}
			rooms[s.GPU.UUID] = left - min(left, staysOf(&wanted, s))
		}
	}
	return rooms
}

// staysOf is what of a share's memory does not leave its GPU.
func staysOf(t *backend.Tenant, s *backend.Share) uint64 {
	if t.Swap {
		return s.Kept
	}
	return s.Limit
}

// boundTurns cuts what pages tell of turns to what can be true of a share so old.
func boundTurns(t *control.Turns, age time.Duration) {
	old := uint64(max(age, 0))
	t.Moving, t.Held = min(t.Moving, old), min(t.Held, old)
	most := uint64(float64(turns.MostRate) * max(age, 0).Seconds())
	t.MovedIn, t.MovedOut = min(t.MovedIn, most), min(t.MovedOut, most)
}
