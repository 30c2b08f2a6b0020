package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/checkpointer"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

const (
	// tending is the time between looks at gates while a share is suspended: a closed gate is kept closed, and who waits
	// there is noticed.
	tending = 100 * time.Millisecond
	// dozing is the same while shares may be suspended and none is.
	dozing = time.Second
	// retrySuspension is after how long a suspension that came to nothing is tried again by itself.
	retrySuspension = time.Minute
)

// tendSuspended carries suspensions out, and begins those of shares that have been idle for long, until ctx is done.
func (a *Agent) tendSuspended(ctx context.Context) {
	var looked time.Time
	defer func() {
		if err := a.gates.drop(nil); err != nil {
			a.config.Log.WarnContext(ctx, "cannot close a gate's pages", "error", err)
		}
	}()
	for ctx.Err() == nil {
		a.mu.Lock()
		changed := a.changed
		a.mu.Unlock()
		whole := time.Since(looked) >= dozing
		if whole {
			looked = time.Now()
		}
		var tick <-chan time.Time
		if pause := a.tend(ctx, whole); pause > 0 {
			tick = time.After(pause)
		}
		select {
		case <-tick:
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// tend looks once at all tenants that are suspended or may be, and returns after how long to look again, 0 where there are
// none. With whole it also looks for processes that joined a share which is out.
func (a *Agent) tend(ctx context.Context, whole bool) (pause time.Duration) {
	wanted := map[string]bool{}
	for _, t := range a.all() {
		a.mu.Lock()
		over, after, away := t.ended || !t.ready, t.suspendAfter(), t.Away
		var s suspended
		is := t.Suspended != nil
		if is {
			s = *t.Suspended
		}
		of := a.tenantOf(&t.record)
		a.mu.Unlock()
		switch {
		case over:
		case is:
			wanted[t.ID], pause = true, tending
			a.tendOne(ctx, t, of, s, whole)
		case away != AwayNot:
			a.returnHost(ctx, t)
		case after > 0:
			wanted[t.ID] = true
			if pause == 0 {
				pause = min(dozing, max(after/4, tending))
			}
			a.tendIdle(ctx, t, of, after)
		}
	}
	if err := a.gates.drop(wanted); err != nil {
		a.config.Log.WarnContext(ctx, "cannot close a gate's pages", "error", err)
	}
	return pause
}

// returnHost gives back the host memory of a tenant of which an agent ended before it was suspended, or after it was resumed.
func (a *Agent) returnHost(ctx context.Context, t *tenant) {
	if !t.begin.TryLock() {
		return // somebody begins
	}
	defer t.begin.Unlock()
	a.mu.Lock()
	is := t.Suspended != nil
	a.mu.Unlock()
	if is {
		return
	}
	if err := a.ReturnHost(ctx, t.ID); err != nil {
		a.config.Log.WarnContext(ctx, "cannot give back a tenant's host memory", "tenant", t.Name, "error", err)
	}
}

// becauseCalled is why a share comes back that nobody holds out.
const becauseCalled = "one of its programs calls the GPU"

// tendOne keeps a gate closed, wakes who waits at it, and sees to it that somebody carries the suspension out.
func (a *Agent) tendOne(ctx context.Context, t *tenant, of backend.Tenant, s suspended, whole bool) {
	if !a.keepShut(ctx, t, of) {
		return
	}
	if s.Goal == suspension.Out && !s.Hold {
		if told, err := a.gates.read(a, of); err == nil && (told.waits || told.last > s.Closed) {
			a.comeBack(ctx, t, becauseCalled)
			s.Goal = suspension.In
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.Goal == suspension.In || t.Away != AwayOut || whole {
		a.startMove(ctx, t)
	}
}

// keepShut keeps the gate of a tenant closed, and reports whether the tenant is still suspended: who comes back has its gate
// opened under the same lock, and it must stay open.
func (a *Agent) keepShut(ctx context.Context, t *tenant, of backend.Tenant) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.Suspended == nil || t.ended {
		return false
	}
	if err := a.gates.shut(a, of); err != nil {
		a.config.Log.WarnContext(ctx, "cannot keep a gate closed", "tenant", t.Name, "error", err)
	}
	return true
}

// tendIdle has a tenant suspended whose programs have not used a GPU for so long.
func (a *Agent) tendIdle(ctx context.Context, t *tenant, of backend.Tenant, after time.Duration) {
	told, err := a.gates.read(a, of)
	now := monotonic()
	a.mu.Lock()
	defer a.mu.Unlock()
	resting := a.config.Now().Before(t.rests)
	idle := time.Duration(now - min(now, max(told.last, t.awake)))
	if t.awake == 0 {
		t.awake, idle = now, 0 // nobody knows what it did before
	}
	if err != nil || resting || t.dozes || !t.seen.Live || told.waits || told.works > now || idle < after {
		return
	}
	t.dozes = true
	// The driver may take half a minute, and gates that are kept closed meanwhile are valid for a second.
	a.running.Go(func() { a.doze(ctx, t, fmt.Sprintf("it has not used them for %s", idle.Truncate(time.Second))) })
}

// doze begins the suspension of a tenant that is idle, and tells why that came to nothing.
func (a *Agent) doze(ctx context.Context, t *tenant, why string) {
	err := a.leave(ctx, t, departure{why: why})
	a.mu.Lock()
	defer a.mu.Unlock()
	t.dozes = false
	if err == nil || ctx.Err() != nil || errors.Is(err, checkpointer.ErrHeld) {
		return
	}
	news := t.failed != err.Error()
	t.failed, t.rests = err.Error(), a.config.Now().Add(retrySuspension)
	if news {
		a.happenedTo(ctx, t, control.Event{Kind: control.EventFault, Tenant: t.Name, User: t.User, Text: "it is idle and cannot be suspended: " + err.Error()})
	}
}

// suspendAfter is after how long without a call the tenant is suspended, 0 for never. Agent.mu is held.
func (t *tenant) suspendAfter() time.Duration {
	if len(t.Shares) == 0 {
		return 0
	}
	return time.Duration(t.Shares[0].SuspendAfter)
}

// departure is why and how a tenant leaves its GPUs.
type departure struct {
	// why is for people: whose wish it is, or what led to it.
	why string
	// hold keeps it out, whatever its programs call.
	hold bool
	// order is that of the cluster's scheduler, nil for anybody else's wish.
	order *Order
}

// leaveOnceAsked is leave that waits while the driver is not asked.
func (a *Agent) leaveOnceAsked(ctx context.Context, t *tenant, how departure) error {
	for {
		err := a.leave(ctx, t, how)
		if !errors.Is(err, checkpointer.ErrHeld) {
			return err
		}
		goOn := control.Pause(ctx)
		select {
		case <-time.After(tending):
			goOn()
		case <-a.stopped:
			goOn()
			return control.Errorf(control.CodeInternal, "%s is not suspended: the agent ends", t.Name)
		case <-ctx.Done():
			goOn()
			return fmt.Errorf("give up waiting: %w", ctx.Err())
		}
	}
}

// leave begins a suspension. The error is [checkpointer.ErrHeld] while the driver is not asked.
func (a *Agent) leave(ctx context.Context, t *tenant, how departure) error {
	t.begin.Lock()
	defer t.begin.Unlock()
	a.mu.Lock()
	leaves := t.Suspended != nil && t.Suspended.Goal == suspension.Out
	a.mu.Unlock()
	// One that leaves already was not refused, and the driver may be busy with its processes.
	if !leaves || how.order == nil {
		if err := a.refuseSuspension(ctx, t); err != nil {
			return err
		}
	}
	for {
		a.mu.Lock()
		away := t.Away
		a.mu.Unlock()
		if away == AwayNot {
			if err := a.ReserveHost(ctx, t.ID); err != nil {
				return a.refusedHost(t, err)
			}
		}
		err := a.setOut(ctx, t, how)
		switch {
		case errors.Is(err, ErrNotAway):
			continue // it came back meanwhile, and gave its host memory back
		case err != nil && away == AwayNot:
			err = errors.Join(err, a.ReturnHost(ctx, t.ID))
		}
		return err
	}
}

// setOut closes the gate of a tenant for which there is host memory, and has it taken off its GPUs. The error is [ErrNotAway]
// for one that has none.
func (a *Agent) setOut(ctx context.Context, t *tenant, how departure) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.ended || !t.ready {
		return control.Errorf(control.CodeNotFound, "%s has ended", t.Name)
	}
	if t.Away == AwayNot {
		return fmt.Errorf("%w: no host memory is taken for %s", ErrNotAway, t.Name)
	}
	next := suspended{}
	if t.Suspended != nil {
		next = *t.Suspended
	}
	if next.Goal == suspension.Out && next.keeps(how) {
		return nil
	}
	next.Goal, next.Since, next.By, next.Hold, next.Order = suspension.Out, a.config.Now(), how.why, how.hold, how.order
	next.Closed = monotonic()
	if err := a.gates.shut(a, a.tenantOf(&t.record)); err != nil {
		return err
	}
	t.failed = ""
	if !a.enterSuspension(ctx, t, &next) {
		return control.Errorf(control.CodeInternal, "%s: the agent cannot save that it is suspended", t.Name)
	}
	return nil
}

// refusedHost is why there is no host memory for a tenant.
func (a *Agent) refusedHost(t *tenant, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !alloc.Waits(err) {
		return err
	}
	return control.Errorf(control.CodeRefused, "%s cannot be suspended: %s", t.Name, a.facts(err, nil))
}
