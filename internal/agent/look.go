package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// afterNotice are the times between looks after a process closed its page. The
// kernel releases the lock just after the notice, on a busy machine much later, and
// closes the driver's files later still. A new notice begins them again.
var afterNotice = []time.Duration{
	0, time.Millisecond, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond, 8 * time.Millisecond, 16 * time.Millisecond,
	32 * time.Millisecond, 64 * time.Millisecond, 128 * time.Millisecond, 256 * time.Millisecond, 512 * time.Millisecond,
}

// lookSoon looks at a tenant of which a death was noticed. One goroutine follows
// all notices of a tenant, at a bounded pace: a tenant that opens and closes its
// page all day costs a bounded part of a processor, and so do all tenants of one user.
func (a *Agent) lookSoon(ctx context.Context, id string) {
	a.mu.Lock()
	t := a.tenants[id]
	if t != nil && t.noticed == nil {
		t.noticed = make(chan struct{}, 1)
	}
	a.mu.Unlock()
	if t == nil {
		return
	}
	first := t.notices.Add(1) == 1
	select {
	case t.noticed <- struct{}{}:
	default:
	}
	if !first {
		return
	}
	a.running.Go(func() {
		for ctx.Err() == nil {
			wait := t.followUps.step(time.Now(), ofTenant)
			n := t.notices.Load()
			if a.followUp(ctx, t, wait) && t.notices.CompareAndSwap(n, 0) {
				return
			}
		}
	})
}

// followUp looks at a tenant until its dead are reaped or have had time enough, the
// first time after wait. It returns false when a notice came after a look.
func (a *Agent) followUp(ctx context.Context, t *tenant, wait time.Duration) (finished bool) {
	var noticed <-chan struct{} // nil before the first look
	for _, pause := range afterNotice {
		select {
		case <-time.After(max(wait+pause, a.paces.step(costsOf(t), time.Now()))):
		case <-noticed:
			return false
		case <-ctx.Done():
			return false
		}
		if a.lookAt(ctx, t) {
			return true
		}
		wait, noticed = 0, t.noticed
	}
	return true
}

// lookAt asks the backend what became of a tenant, and ends the tenant when no
// process, no hold and no descriptor of its memory is left. It reports whether nothing is
// left to wait for: processes had died, and what they held was freed.
func (a *Agent) lookAt(ctx context.Context, t *tenant) (reaped bool) {
	t.look.Lock()
	defer t.look.Unlock()
	a.mu.Lock()
	over, wanted := t.ended || !t.ready, a.tenantOf(&t.record)
	a.mu.Unlock()
	if over {
		return true
	}
	found, err := a.makerOf(wanted).Look(ctx, wanted)
	found, unfit := fitting(found, len(wanted.Shares))
	a.note(ctx, t, found, errors.Join(err, unfit))
	a.mu.Lock()
	over = !t.held() && !found.Live && (t.stopping || !byDescriptor(found))
	a.mu.Unlock()
	lingers := over && a.onGPU(ctx, t)
	a.mu.Lock()
	over = !t.held() && over
	t.lingers = lingers
	a.mu.Unlock()
	if over && !lingers {
		a.end(ctx, t)
	}
	return found.Reaped && !lingers
}

// onGPU reports whether the driver lists a living process of the tenant. Such a process
// left the tenant's pages, and the tenant's memory is not free.
func (a *Agent) onGPU(ctx context.Context, t *tenant) bool {
	a.mu.Lock()
	wanted := a.tenantOf(&t.record)
	var uuids []string
	for _, s := range t.Shares {
		uuids = append(uuids, s.UUID)
	}
	a.mu.Unlock()
	return slices.ContainsFunc(on(a.snapshots(ctx, uuids...)), func(p onGPU) bool {
		if !p.id.Alive() {
			return false
		}
		owner, known := a.member(p.id)
		// As long as it is not known the process may be the tenant's.
		return known && owner == t.ID || !known && (t.contained() || process.Owner(p.id.PID) == wanted.User())
	})
}

// catchUp looks at the tenants of a user who are held by nobody any more as the kernel
// knows, also if that was not told yet: who starts a share right after another's end
// takes over what that one owes, and has its room.
func (a *Agent) catchUp(ctx context.Context, uid int) {
	for _, t := range a.all() {
		a.mu.Lock()
		process, asker := t.process, t.asker
		skip := t.UID != uid || t.contained() || !t.ready
		a.mu.Unlock()
		if skip || process && t.Holder.Alive() || asker != nil && !asker.Left() {
			continue
		}
		a.dropHold(ctx, t, func(t *tenant) { t.process, t.connection = false, false })
	}
}

// byDescriptor reports whether file descriptors keep memory of a tenant. Then the
// tenant stays, also when its last process is gone: its memory is not free.
func byDescriptor(found backend.Figures) bool {
	return slices.ContainsFunc(found.Usage, func(u backend.Usage) bool { return u.ByDescriptor > 0 })
}

// fitting returns the figures without those lists that do not have one entry for each
// share, and an error that names them: a backend that is wrong about one tenant must
// not end the agent.
func fitting(found backend.Figures, shares int) (backend.Figures, error) {
	unfit := func(what string, entries int) error {
		return fmt.Errorf("read the backend's figures: %s has %d entries for %d shares", what, entries, shares)
	}
	var ofUsage, ofFreed, ofProcess error
	if n := len(found.Usage); found.Usage != nil && n != shares {
		found.Usage, ofUsage = nil, unfit("usage", n)
	}
	if n := len(found.Freed); found.Freed != nil && n != shares {
		found.Freed, ofFreed = nil, unfit("freed memory", n)
	}
	found.Processes = slices.Clone(found.Processes)
	for i := range found.Processes {
		p := &found.Processes[i]
		if n := len(p.Used); p.Used != nil && n != shares {
			p.Used, ofProcess = nil, unfit("the use of a process", n)
		}
	}
	return found, errors.Join(ofUsage, ofFreed, ofProcess)
}

// note remembers what was found, which is fitting, and reports what is new in it. A
// fault that stays the same is reported once.
func (a *Agent) note(ctx context.Context, t *tenant, found backend.Figures, fault error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := ""
	if fault != nil {
		text = fault.Error()
	}
	if text != t.fault && fault != nil && !errors.Is(fault, context.Canceled) {
		a.config.Log.WarnContext(ctx, "cannot look at a tenant", "tenant", t.Name, "error", fault)
		a.events.add(control.Event{Kind: control.EventFault, Tenant: t.Name, User: t.User, Text: text})
	}
	t.fault = text
	a.noteWords(ctx, t, found)
	for i, freed := range found.Freed {
		if freed > 0 {
			a.events.add(control.Event{
				Kind: control.EventReaped, Tenant: t.Name, User: t.User, UUID: t.Shares[i].UUID,
				Text: fmt.Sprintf("%d MiB of a process that has ended are free again", freed>>20),
			})
		}
	}
	a.tellRefusals(ctx, t, found.Usage, false)
	for i, u := range found.Usage {
		told := min(u.Peak, a.device(t.Shares[i]).Total) // whatever the page says
		t.Shares[i].Peak = max(t.Shares[i].Peak, u.Used, told)
	}
	if found.Usage == nil && found.Processes == nil && fault != nil {
		return // nothing could be told
	}
	if found.Usage == nil {
		found.Usage = t.seen.Usage // the last that is known
	}
	t.seen, t.seenAt = found, time.Now()
	if t.giveBack() {
		a.tell() // who waits may have the rest
	}
	if found.Reaped {
		a.ease(t)
	}
	t.unreaped = slices.ContainsFunc(found.Processes, func(p backend.Process) bool { return !p.Live })
}

// noteWords reports what a look says of a tenant for people. What it needs stays so and is reported once. Agent.mu is held.
func (a *Agent) noteWords(ctx context.Context, t *tenant, found backend.Figures) {
	if found.Needs != "" && t.needs == "" {
		a.events.add(control.Event{Kind: control.EventFault, Tenant: t.Name, User: t.User, Text: found.Needs})
	}
	t.needs = cmp.Or(found.Needs, t.needs)
	for _, excess := range found.Excess {
		a.config.Log.WarnContext(ctx, "a tenant took more than was made for it", "tenant", t.Name, "reason", excess)
		a.events.add(control.Event{Kind: control.EventFault, Tenant: t.Name, User: t.User, Text: excess})
	}
}

// end removes a tenant that has no process and no hold left. What was made for it
// is removed before its record: an agent that starts after a death in between finds
// the record, sees that nothing lives, and ends the tenant again. t.look is held.
func (a *Agent) end(ctx context.Context, t *tenant) {
	a.notices.Remove(t.ID)
	last := a.describe(t)
	a.settle(t)
	wanted := a.wanted(t)
	a.endWorker(ctx, &wanted)
	if err := a.makerOf(wanted).Undo(ctx, wanted); err != nil {
		a.config.Log.WarnContext(ctx, "cannot remove what was made for a tenant", "tenant", t.Name, "error", err)
	}
	a.endOrphans(ctx, t)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.forget(t); err != nil {
		a.config.Log.ErrorContext(ctx, "cannot save tenants", "error", err)
	}
	text := cmp.Or(t.why, control.LastGone)
	for i, u := range t.seen.Usage {
		if u.ByDescriptor > 0 && i < len(t.Shares) {
			text += fmt.Sprintf("; file descriptors in other processes still keep %d MiB of GPU %d", u.ByDescriptor>>20, a.gpu(t.Shares[i].UUID).Index)
		}
	}
	a.tellRefusals(ctx, t, t.seen.Usage, true)
	a.events.over(t.ID)
	a.recordEnd(&last, text)
	a.happenedTo(ctx, t, control.Event{Kind: control.EventEnded, Tenant: t.Name, User: t.User, Text: text})
}

// retry looks again at tenants with dead processes that could not be reaped yet, and at
// those that only wait for the end of a process of which nobody gives notice. Each
// look has its own goroutine, because reaping may take seconds where a tenant wants it.
func (a *Agent) retry(ctx context.Context) {
	a.mu.Lock()
	var ids []string
	for _, t := range a.tenants {
		if t.unreaped || t.lingers {
			ids = append(ids, t.ID)
		}
	}
	a.mu.Unlock()
	for _, id := range ids {
		a.lookSoon(ctx, id)
	}
}
