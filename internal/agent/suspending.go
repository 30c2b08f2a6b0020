package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/checkpointer"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

// Checkpointer asks the driver to take processes off their GPUs and bring them back.
type Checkpointer interface {
	// Version is the driver's version of CUDA, or why it cannot be asked.
	Version(ctx context.Context) (int, error)
	// State is how far a process is.
	State(ctx context.Context, pid int) (suspension.State, error)
	// Do asks for an act, whose answer comes within a limit, and returns the state after it.
	Do(ctx context.Context, act suspension.Act, pid int, limit time.Duration) (suspension.State, error)
}

const (
	// lockTime is how long calls may take to return before a suspension is given up.
	lockTime = 5 * time.Second
	// moveTime is how long saving and restoring take beside what the bytes take at slowest bytes a second.
	moveTime = 30 * time.Second
	slowest  = 200 << 20
	// moveAgain is the time between two tries of a step that did not succeed, and the first of those.
	moveAgain  = time.Second
	moveFirst  = 10 * time.Millisecond
	mostSilent = 3 // tries of a step of leaving that brought no answer
)

// startMove has a goroutine bring a tenant's processes to where its record says. Agent.mu is held.
func (a *Agent) startMove(ctx context.Context, t *tenant) {
	if t.moves || t.Suspended == nil || t.ended {
		return
	}
	t.moves = true
	a.running.Go(func() {
		m := move{agent: a, tenant: t, pause: moveFirst, unsure: map[process.ID]bool{}}
		for ctx.Err() == nil && m.step(ctx) {
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		t.moves, t.lacks = false, ""
		a.arrived(t)
		a.tell()
	})
}

// move is the way of one tenant's processes off their GPUs and back. One goroutine uses it.
type move struct {
	agent  *Agent
	tenant *tenant
	pause  time.Duration
	// silent counts steps and looks of leaving that brought no answer.
	silent int
	// unsure are processes of which the driver may still do what it was asked when nobody waited for it any more.
	unsure map[process.ID]bool
	// room is true once the room that is missing was seen at the driver.
	room bool
}

// found is a process of the tenant.
type found struct {
	id process.ID
	suspension.Process
}

// step looks at the processes and does what comes next. It returns false when nothing is left to do.
func (m *move) step(ctx context.Context) (more bool) {
	a, t := m.agent, m.tenant
	processes, err := a.movable(ctx, t)
	a.mu.Lock()
	s := t.Suspended
	if s == nil || t.ended {
		a.mu.Unlock()
		return false
	}
	goal, off := s.Goal, t.Away.off()
	a.mu.Unlock()
	if err != nil {
		return m.untold(ctx, goal == suspension.Out && !off, err)
	}
	plan := suspension.Next(goal, m.room && !off, asPlanned(processes))
	switch {
	case plan.GiveUp != "":
		return a.comeBack(ctx, t, plan.GiveUp)
	case plan.Done && goal == suspension.Out:
		return m.out(ctx)
	case plan.Done:
		return m.back(ctx, processes)
	case plan.Room:
		return m.awaitRoom(ctx, off, processes)
	case plan.Wait:
		return m.again(ctx, errors.New("one of its processes is stopped, and comes back when it goes on"))
	}
	return m.do(ctx, goal, plan, processes)
}

// untold tries again where the driver does not tell how far processes are, which bounds a departure as other silence does. What is
// out stays out: nothing of it waits for the driver.
func (m *move) untold(ctx context.Context, leaves bool, err error) bool {
	if leaves && ctx.Err() == nil && !errors.Is(err, checkpointer.ErrHeld) {
		if m.silent++; m.silent >= mostSilent {
			return m.agent.comeBack(ctx, m.tenant, fmt.Sprintf("the driver does not tell how far its processes are: %v", err))
		}
	}
	return m.again(ctx, err)
}

// asPlanned are the processes as the planner has them.
func asPlanned(processes []found) (all []suspension.Process) {
	for _, p := range processes {
		all = append(all, p.Process)
	}
	return all
}

// do carries out an act with each process. Whatever becomes of it, the next step looks.
func (m *move) do(ctx context.Context, goal suspension.Goal, plan suspension.Plan, processes []found) bool {
	a, t := m.agent, m.tenant
	if why := m.unsavable(ctx, goal); why != "" {
		return a.comeBack(ctx, t, why)
	}
	if plan.Act == suspension.Save {
		if err := a.noteRemoved(ctx, t, processes); err != nil {
			return m.again(ctx, err)
		}
	}
	for _, p := range processes {
		if !slices.Contains(plan.PIDs, p.PID) {
			continue
		}
		a.step("suspend-" + plan.Act.String())
		state, err := a.config.Checkpointer.Do(ctx, plan.Act, p.PID, a.limitOf(plan.Act, t, p.id))
		a.step("suspended-" + plan.Act.String())
		// A driver that was asked before, by a helper or an agent that was killed, does that first and refuses to do it twice.
		done := err == nil || errors.Is(err, checkpointer.ErrRefused) && state == plan.Act.To()
		switch {
		case ctx.Err() != nil:
			return false
		case done:
			m.disown(ctx, plan.Act, p.id)
			continue
		case !p.id.Alive():
			continue // it has ended: the next look does not find it
		case errors.Is(err, checkpointer.ErrHeld): // it was not asked
			m.room = false // what was free may be another's by the next try
			return m.again(ctx, err)
		}
		a.config.Log.WarnContext(ctx, "a step of a suspension did not succeed", "tenant", t.Name, "step", plan.Act.String(), "pid", p.PID, "error", err)
		if !errors.Is(err, checkpointer.ErrRefused) {
			m.unsure[p.id] = true
			m.silent++
		}
		return m.failed(ctx, goal, plan.Act, p, err)
	}
	if plan.Act == suspension.Restore {
		a.mu.Lock()
		a.arrived(t)
		a.mu.Unlock()
	}
	m.silent, m.pause, m.room = 0, moveFirst, false
	return true
}

// unsavable is why a tenant that leaves has to stay, empty if it can leave. Since the gate was closed a call that was under way, or a
// process that joined, may have made what the driver cannot save, and it would lose the process. Who is locked makes no more of it.
func (m *move) unsavable(ctx context.Context, goal suspension.Goal) string {
	if goal != suspension.Out {
		return ""
	}
	_, _, why := m.agent.unsavable(ctx, m.tenant)
	if ctx.Err() != nil {
		return ""
	}
	return why
}

// disown unlocks a process that got the number of one that was to be locked and ended meanwhile.
func (m *move) disown(ctx context.Context, act suspension.Act, id process.ID) {
	for act == suspension.Lock && !id.Alive() {
		_, err := m.agent.config.Checkpointer.Do(ctx, suspension.Unlock, id.PID, lockTime) // most likely there is none
		if !errors.Is(err, checkpointer.ErrHeld) || !m.rest(ctx) {
			return
		}
	}
}

// failed decides what becomes of a step that did not succeed.
func (m *move) failed(ctx context.Context, goal suspension.Goal, act suspension.Act, p found, err error) bool {
	a, t := m.agent, m.tenant
	if goal == suspension.In {
		m.room = false // what was free may be another's by the next try
		return m.again(ctx, fmt.Errorf("the driver does not bring process %d back: %w", p.PID, err))
	}
	if errors.Is(err, checkpointer.ErrRefused) || m.silent >= mostSilent {
		text := fmt.Sprintf("the driver does not take process %d off its GPUs: %v", p.PID, err)
		if act == suspension.Lock {
			text = fmt.Sprintf("a call of process %d does not return within %s: it works", p.PID, lockTime)
		}
		return a.comeBack(ctx, t, text)
	}
	return m.again(ctx, err)
}

// again waits before another try, and tells what for.
func (m *move) again(ctx context.Context, why error) bool {
	a, t := m.agent, m.tenant
	a.mu.Lock()
	if t.Suspended != nil && t.Suspended.Goal == suspension.In && m.pause > moveFirst {
		t.lacks = why.Error()
	}
	a.mu.Unlock()
	select {
	case <-time.After(m.pause):
	case <-ctx.Done():
		return false
	}
	m.pause = min(2*m.pause, moveAgain)
	return true
}

// limitOf bounds an act with a process.
func (a *Agent) limitOf(act suspension.Act, t *tenant, id process.ID) time.Duration {
	if act == suspension.Lock || act == suspension.Unlock {
		return lockTime
	}
	var bytes uint64
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := t.removed(id); i >= 0 {
		for _, n := range t.Suspended.Processes[i].Bytes {
			bytes += n
		}
	}
	return moveTime + time.Duration(bytes/slowest)*time.Second
}

// removed is the place of a process in the record, -1 without one. Agent.mu is held.
func (t *tenant) removed(id process.ID) int {
	if t.Suspended == nil {
		return -1
	}
	return slices.IndexFunc(t.Suspended.Processes, func(r removed) bool { return r.ID == id })
}

// out lets others have the room of a tenant whose processes have all left, and reports whether that has to be tried again.
func (m *move) out(ctx context.Context) bool {
	a, t := m.agent, m.tenant
	a.mu.Lock()
	away, by := t.Away, ""
	if t.Suspended != nil {
		by = t.Suspended.By
	}
	a.mu.Unlock()
	var err error
	switch away {
	case AwayOut:
		return false
	case AwayLeaving:
		err = a.LeaveGPUs(ctx, t.ID)
	default:
		err = a.StayAway(ctx, t.ID)
	}
	if err != nil {
		return m.again(ctx, err)
	}
	a.mu.Lock()
	t.failed = ""
	a.happenedTo(ctx, t, control.Event{Kind: control.EventSuspended, Tenant: t.Name, User: t.User, Text: "it is off its GPUs: " + by})
	a.mu.Unlock()
	return false
}

// back ends a suspension whose processes run again, once nothing that was asked is under way any more.
func (m *move) back(ctx context.Context, processes []found) bool {
	a, t := m.agent, m.tenant
	for _, p := range processes {
		if !m.unsure[p.id] || p.State == suspension.Failed {
			continue
		}
		if p.Stopped {
			return m.again(ctx, errors.New("a process of it is stopped, and may be locked when it goes on"))
		}
		// One question about a process is answered after the other.
		_, err := a.config.Checkpointer.Do(ctx, suspension.Unlock, p.PID, lockTime)
		if err != nil && !errors.Is(err, checkpointer.ErrRefused) && p.id.Alive() {
			return m.again(ctx, err)
		}
		delete(m.unsure, p.id)
	}
	if more, err := a.stays(ctx, t); more || err != nil {
		return err == nil || m.again(ctx, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := t.Suspended
	if s == nil || s.Goal != suspension.In {
		return s != nil
	}
	if !a.enterSuspension(ctx, t, nil) {
		return true
	}
	a.gates.open(ctx, a, t)
	t.came, t.awake = s.By, monotonic()
	text := "it is on its GPUs again: " + s.By
	if len(s.Processes) == 0 {
		text = "it was not suspended: " + s.By
		t.failed, t.rests = s.By, a.config.Now().Add(retrySuspension)
	}
	a.happenedTo(ctx, t, control.Event{Kind: control.EventResumed, Tenant: t.Name, User: t.User, Text: text})
	a.tellLost(ctx, t, processes)
	a.announce()
	return false
}

// stays gives back the host memory of a tenant whose processes run, and reports whether it is to leave again.
func (a *Agent) stays(ctx context.Context, t *tenant) (leaves bool, err error) {
	a.mu.Lock()
	away := t.Away
	leaves = t.Suspended == nil || t.Suspended.Goal != suspension.In
	a.mu.Unlock()
	switch {
	case leaves:
		return true, nil
	case away.off(): // all that had left has died
		if err := a.EnterGPUs(ctx, t.ID); err != nil {
			return false, err
		}
	}
	if err = a.ReturnHost(ctx, t.ID); errors.Is(err, ErrNotAway) {
		return true, nil // somebody wants it to leave by now
	}
	return false, err
}

// tellLost tells of processes that the driver lost. Agent.mu is held.
func (a *Agent) tellLost(ctx context.Context, t *tenant, processes []found) {
	for _, p := range processes {
		if p.State != suspension.Failed {
			continue
		}
		text := lostText(p.PID)
		t.failed = text
		if !slices.Contains(t.lost, p.id) {
			t.lost = append(t.lost, p.id)
		}
		a.happenedTo(ctx, t, control.Event{Kind: control.EventFault, Tenant: t.Name, User: t.User, Text: text, PID: p.PID})
	}
}

// enterSuspension writes a suspension into the record and saves it, and reports whether that succeeded. Agent.mu is held.
func (a *Agent) enterSuspension(ctx context.Context, t *tenant, next *suspended) bool {
	before := t.Suspended
	t.Suspended = next
	if err := a.save(); err != nil {
		t.Suspended = before
		a.config.Log.ErrorContext(ctx, "cannot save a suspension", "tenant", t.Name, "error", err)
		return false
	}
	a.keep(ctx, t)
	a.step("suspension-saved")
	a.tell()
	return true
}

// comeBack turns a suspension round, for a reason or by somebody's wish, and reports whether there is one.
func (a *Agent) comeBack(ctx context.Context, t *tenant, why string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := t.Suspended
	if s == nil || t.ended {
		return false
	}
	if s.Goal == suspension.Out {
		next := *s
		next.Goal, next.Since, next.Hold, next.Order, next.By = suspension.In, a.config.Now(), false, nil, why
		a.enterSuspension(ctx, t, &next)
	}
	return true
}
