package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

// movable finds the processes of a tenant and how far they are: those that its pages name and the kernel confirms, and
// those that left their GPUs.
func (a *Agent) movable(ctx context.Context, t *tenant) ([]found, error) {
	a.lookAt(ctx, t)
	ids, _ := a.processesOn(t)
	var all []found
	for _, id := range ids {
		state, err := a.config.Checkpointer.State(ctx, id.PID)
		if !id.Alive() {
			continue // the answer may be about another one
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found{id: id, Process: suspension.Process{PID: id.PID, State: state, Stopped: process.Stopped(id.PID)}})
	}
	return all, nil
}

// processesOn are the living processes of a tenant that may have something on a GPU, and how many there are which the
// agent does not see.
func (a *Agent) processesOn(t *tenant) (ids []process.ID, unseen int) {
	a.mu.Lock()
	seen, wanted := slices.Clone(t.seen.Processes), a.tenantOf(&t.record)
	if t.Suspended != nil {
		for _, r := range t.Suspended.Processes {
			ids = append(ids, r.ID)
		}
	}
	a.mu.Unlock()
	for _, p := range seen {
		if !p.Live {
			continue
		}
		id, err := process.Find(p.PID)
		switch {
		case p.PID <= 0 || err != nil:
			unseen++
		case !slices.Contains(ids, id) && a.makerOf(wanted).Has(wanted, p.PID):
			ids = append(ids, id)
		}
	}
	return slices.DeleteFunc(ids, func(id process.ID) bool { return !id.Alive() }), unseen
}

// noteRemoved writes into the record what processes have of their GPUs, before it is taken off them.
func (a *Agent) noteRemoved(ctx context.Context, t *tenant, processes []found) error {
	snapshots := a.snapshots(ctx, uuidsOf(t)...)
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.Suspended == nil {
		return nil
	}
	next := *t.Suspended
	next.Processes = slices.DeleteFunc(slices.Clone(next.Processes), func(r removed) bool { return !r.ID.Alive() })
	for _, p := range processes {
		if p.State != suspension.Locked {
			continue
		}
		next.Processes = slices.DeleteFunc(next.Processes, func(r removed) bool { return r.ID == p.id })
		r := removed{ID: p.id}
		for i := range t.Shares {
			r.Bytes = append(r.Bytes, a.removes(t, i, p.id, snapshots))
		}
		next.Processes = append(next.Processes, r)
	}
	if !a.enterSuspension(ctx, t, &next) {
		return fmt.Errorf("save what leaves the GPUs of %s: the checkpoint cannot be written", t.Name)
	}
	return nil
}

// removes is what a process has of a share's GPU, as the driver tells or, where it does not, the share's page: then a
// context is added. Agent.mu is held.
func (a *Agent) removes(t *tenant, share int, id process.ID, snapshots []snapshot) uint64 {
	uuid := t.Shares[share].UUID
	for i := range snapshots {
		for _, p := range snapshots[i].processes {
			if p.id == id && p.uuid == uuid && p.used != nil {
				return *p.used
			}
		}
	}
	for _, p := range t.seen.Processes {
		if p.PID == id.PID && share < len(p.Used) && p.Used[share] > 0 {
			return p.Used[share] + a.gpu(uuid).ContextBytes
		}
	}
	return 0
}

// awaitRoom waits for room on the GPUs: first for that of the ledger, behind those who came before, then until the driver
// has it free. A restore that finds none loses its process for ever.
func (m *move) awaitRoom(ctx context.Context, off bool, processes []found) bool {
	a, t := m.agent, m.tenant
	if off {
		return m.awaitLedger(ctx)
	}
	if !slices.ContainsFunc(processes, isThere) && a.leavesFull(ctx, t) {
		// Turned round at its last step. It waits as one that is out, since two that kept their places would wait for each other.
		if err := a.LeaveGPUs(ctx, t.ID); err != nil {
			return m.again(ctx, err)
		}
		return true
	}
	lacks := a.lacksAtDriver(ctx, t, processes)
	a.mu.Lock()
	t.lacks = lacks
	a.mu.Unlock()
	if lacks == "" {
		m.room = true
		return true
	}
	return m.rest(ctx)
}

// rest waits between two looks.
func (m *move) rest(ctx context.Context) bool {
	select {
	case <-time.After(m.pause):
	case <-ctx.Done():
		return false
	}
	m.pause = min(2*m.pause, moveAgain)
	return true
}

// awaitLedger takes room in the ledger, or waits until it has changed.
func (m *move) awaitLedger(ctx context.Context) bool {
	a, t := m.agent, m.tenant
	changed := a.Changed()
	err := a.EnterGPUs(ctx, t.ID)
	var reason string
	if err != nil {
		reason = err.Error()
	}
	a.mu.Lock()
	news := t.lacks != reason
	if news {
		t.lacks = reason
		a.tell()
	}
	a.mu.Unlock()
	switch {
	case err == nil:
		return true
	case !alloc.Waits(err):
		return m.rest(ctx)
	case news: // telling it was a change, and so may have been what made room meanwhile
		return m.rest(ctx)
	}
	select {
	case <-changed:
	case <-ctx.Done():
		return false
	}
	return true
}

// isThere reports whether a process has something on its GPUs.
func isThere(p found) bool { return p.State == suspension.Running || p.State == suspension.Locked }

// leavesFull reports whether a tenant is leaving GPUs that are granted beyond what they have, so that others may have its room.
func (a *Agent) leavesFull(ctx context.Context, t *tenant) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return t.Away == AwayLeaving && alloc.Waits(a.roomBeside(ctx, t, true))
}

// lacksAtDriver says what the GPUs have too little of for the processes that are away, by the driver's figures and beside what
// others are bringing back; empty where there is room, which is the tenant's then.
func (a *Agent) lacksAtDriver(ctx context.Context, t *tenant, processes []found) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var snapshots []snapshot
	for arrivals, looked := 0, false; !looked || arrivals != a.arrivals; looked = true {
		arrivals = a.arrivals // what arrives during a look may be neither in its figures nor on its way
		a.mu.Unlock()
		snapshots = a.snapshots(ctx, uuidsOf(t)...)
		a.mu.Lock()
	}
	needs := make([]uint64, len(t.Shares))
	for i := range t.Shares {
		for _, p := range processes {
			if at := t.removed(p.id); at >= 0 && p.State == suspension.Saved && i < len(t.Suspended.Processes[at].Bytes) {
				needs[i] += t.Suspended.Processes[at].Bytes[i]
			}
		}
		for j := range snapshots {
			if needs[i] == 0 || snapshots[j].gpu.UUID != t.Shares[i].UUID {
				continue
			}
			if lacks := a.lacksOn(&snapshots[j], t, needs[i]); lacks != "" {
				return lacks
			}
		}
	}
	t.coming = needs
	return ""
}

// lacksOn is lacksAtDriver of one GPU. Agent.mu is held.
func (a *Agent) lacksOn(v *snapshot, t *tenant, needs uint64) string {
	if v.used == nil {
		return fmt.Sprintf("the driver does not tell what is free on GPU %d", v.gpu.Index)
	}
	used := *v.used
	for _, o := range a.tenants {
		for i, bytes := range o.coming {
			if o != t && o.Shares[i].UUID == v.gpu.UUID {
				used += bytes
			}
		}
	}
	if free := v.gpu.Capacity() - min(v.gpu.Capacity(), used); free < needs {
		return fmt.Sprintf("GPU %d has %s free by the driver's figures, and %s needs %s there", v.gpu.Index, v1alpha1.FormatBytes(free), t.Name, v1alpha1.FormatBytes(needs))
	}
	return ""
}

// arrived notes that nothing of a tenant is being restored any more. Agent.mu is held.
func (a *Agent) arrived(t *tenant) {
	if t.coming != nil {
		t.coming = nil
		a.arrivals++
	}
}
