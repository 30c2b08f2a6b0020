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
			members = append(members, turns.Member{Tenant: wanted, Source: source, Ends: t.parting})
		}
	}
	a.turns.Publish(members, a.rooms())
}

// parts is for how long the gate of a share that is stopped stays open outside its turns, in all.
const parts = 30 * time.Second

// part opens the gate of a swap share whose processes are to end, once, so that nobody has turns by attempts to stop a share.
// The share takes turns again some time later, or when it is not to end any more: shut.
func (a *Agent) part(t *tenant) (shut func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.parted || len(t.Shares) == 0 || !t.Shares[0].Swap {
		return func() {}
	}
	t.parted, t.parting = true, true
	a.publishTurns()
	back := func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if t.parting {
			t.parting = false
			a.publishTurns()
		}
	}
	timer := time.AfterFunc(parts, back)
	return func() {
		timer.Stop()
		back()
	}
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

// boundResident has no more on the GPU than what is used of the memory that can leave it.
func boundResident(t *control.Turns, usage []backend.Usage, share int) *control.Turns {
	if share < len(usage) {
		u := usage[share]
		t.OnGPU = min(t.OnGPU, u.Used-min(u.Used, u.Kept))
	}
	return t
}

// boundTurns cuts what pages tell of turns to what can be true of a share so old.
func boundTurns(t *control.Turns, age time.Duration) {
	old := uint64(max(age, 0))
	t.Moving, t.Held = min(t.Moving, old), min(t.Held, old)
	most := uint64(float64(turns.MostRate) * max(age, 0).Seconds())
	t.MovedIn, t.MovedOut = min(t.MovedIn, most), min(t.MovedOut, most)
}
