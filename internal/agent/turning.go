package agent

import (
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/turns"
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
		for i := range t.Shares {
			gpu := a.device(t.Shares[i])
			left, known := rooms[gpu.UUID]
			if !known {
				left = gpu.Capacity()
			}
			rooms[gpu.UUID] = left - min(left, t.counted(i))
		}
	}
	return rooms
}

// boundTurns cuts what pages tell of turns to what can be true of a share so old.
func boundTurns(t *control.Turns, age time.Duration) {
	old := uint64(max(age, 0))
	t.Moving, t.Held = min(t.Moving, old), min(t.Held, old)
	most := uint64(float64(turns.MostRate) * max(age, 0).Seconds())
	t.MovedIn, t.MovedOut = min(t.MovedIn, most), min(t.MovedOut, most)
}
