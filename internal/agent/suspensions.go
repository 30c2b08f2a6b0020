package agent

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

// suspended is what the checkpoint keeps of a share that is off its GPUs, or on its way; [Away] says where it counts
// meanwhile. It is saved before what it describes is done, so the next agent goes on from it and from what the driver tells
// of the processes.
type suspended struct {
	// Goal is where the processes shall be.
	Goal suspension.Goal `json:"goal"`
	// Since is when somebody wanted the goal last, and By whose wish it was, for people.
	Since time.Time `json:"since"`
	By    string    `json:"by"`
	// Hold keeps the share out until somebody resumes it, whatever its programs call.
	Hold bool `json:"hold,omitempty"`
	// Order is that of the cluster's scheduler, which holds the share, nil for a suspension by anybody else.
	Order *Order `json:"order,omitempty"`
	// Closed is when its gate was closed, by CLOCK_MONOTONIC in ns.
	Closed uint64 `json:"closed,omitempty"`
	// Processes are those that left their GPUs, or were to.
	Processes []removed `json:"processes,omitempty"`
}

// keeps reports whether a suspension stays as it is for one more wish: that of anybody changes nothing of an order.
func (s *suspended) keeps(how departure) bool {
	switch {
	case how.order == nil:
		return s.Order != nil || s.Hold == how.hold
	case s.Order == nil:
		return false
	}
	return *s.Order == *how.order
}

// removed is a process of which the driver has something in host memory.
type removed struct {
	ID process.ID `json:"id"`
	// Bytes are what it had of each share's GPU.
	Bytes []uint64 `json:"bytes"`
}

// uuidsOf are the GPUs of a tenant.
func uuidsOf(t *tenant) (uuids []string) {
	for _, s := range t.Shares {
		uuids = append(uuids, s.UUID)
	}
	return uuids
}

// describeSuspended is a tenant's suspension as listings show it, nil for one that runs. Agent.mu is held.
func (t *tenant) describeSuspended() *control.Suspended {
	s := t.Suspended
	if s == nil {
		return nil
	}
	state := control.SuspensionLeaving
	switch {
	case s.Goal == suspension.Out && t.Away.off():
		state = control.SuspensionOut
	case s.Goal == suspension.In && t.lacks != "":
		state = control.SuspensionWaiting
	case s.Goal == suspension.In:
		state = control.SuspensionReturning
	}
	v := &control.Suspended{State: state, Since: s.Since, By: s.By, Hold: s.Hold, Reason: t.lacks}
	if o := t.ordered(); o != nil {
		v.For = o.Whom
	}
	for _, r := range s.Processes {
		for _, n := range r.Bytes {
			v.Bytes += n
		}
	}
	return v
}

// lostFault says which of a tenant's processes the driver lost and how they end, "" while there is none. Agent.mu is held.
func (t *tenant) lostFault() string {
	t.lost = slices.DeleteFunc(t.lost, func(id process.ID) bool { return !id.Alive() })
	if len(t.lost) == 0 {
		return ""
	}
	return lostText(t.lost[0].PID)
}

// lostText says how a process ends that the driver lost. One that waits in the driver may handle no signal.
func lostText(pid int) string {
	return fmt.Sprintf("the driver lost process %d: its calls wait for ever, so %s", pid, endLost(pid))
}

// endLost is the command.
func endLost(pid int) string { return fmt.Sprintf("end it by `kill -9 %d`", pid) }

// mover is what an agent knows of a tenant that is suspended or may be, beside its record. Agent.mu guards the rest of it.
type mover struct {
	// begin orders the beginnings of suspensions, and is taken before Agent.mu.
	begin sync.Mutex
	// moves is true while a goroutine carries out steps.
	moves bool
	// dozes is true while a goroutine begins a suspension because it is idle.
	dozes bool
	// lacks is what its return waits for, empty while it does not wait.
	lacks string
	// coming is how much of each share's GPU processes may take that are being restored: the driver does not show it yet.
	coming []uint64
	// came is why it came back last.
	came string
	// failed is why the last suspension came to nothing, and rests until when none is begun by itself.
	failed string
	rests  time.Time
	// lost are its processes that the driver lost.
	lost []process.ID
	// awake is since when the agent knows of its calls, or since when it is back, by CLOCK_MONOTONIC in ns, 0 before.
	awake uint64
}
