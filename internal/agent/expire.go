package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
)

// expireGrace is how long the processes of a share whose time is over may take to end,
// as with `divvy stop`.
const expireGrace = 10 * time.Second

// expiry is what is known of the end of a tenant's time and of its idleness. Only the
// goroutine of [Agent.expire] uses what no comment gives to Agent.mu.
type expiry struct {
	asked bool // until is known
	// until is when the time that its user may have ends, zero without a limit; Agent.mu
	// guards it.
	until time.Time
	// busy is when it was last seen to use a GPU, and spent what it had used by then.
	busy  time.Time
	spent uint64
	// idle is since when it has used no GPU, zero while that is less than is reported;
	// Agent.mu guards it.
	idle time.Time
	// ending is true while its processes are being ended; Agent.mu guards it.
	ending bool
}

// expire ends shares whose time is over, and reports or ends idle ones, until ctx is
// done. The cluster decides how long its tenants live.
func (a *Agent) expire(ctx context.Context) {
	ticker := time.NewTicker(a.config.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, t := range a.all() {
			if t.isTenancy() {
				continue
			}
			if why := a.due(t, a.config.Now()); why != "" {
				a.endBecause(ctx, t, why)
			}
		}
	}
}

// due says why a tenant is to end now, "" if it is not.
func (a *Agent) due(t *tenant, now time.Time) string {
	if !t.asked {
		// The user's groups may be a directory's, so the lock is not held.
		limit := a.config.Rules.Limits(t.UID).Time
		a.mu.Lock()
		if t.asked = true; limit > 0 {
			t.until = t.Created.Add(limit)
		}
		a.mu.Unlock()
	}
	return a.over(t, now, a.idle(t, now))
}

// over is due for a tenant that has been idle for a time. It reports idleness once.
func (a *Agent) over(t *tenant, now time.Time, idle time.Duration) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch rule := a.config.Rules.Idle(); {
	case t.ended || !t.ready || t.ending:
		return ""
	case !t.until.IsZero() && !now.Before(t.until):
		return fmt.Sprintf("its time is over: the administrator's limit is %s", agentconfig.Duration(t.until.Sub(t.Created)))
	case rule.After > 0 && idle >= rule.After:
		if rule.Action == agentconfig.IdleEnd {
			return fmt.Sprintf("it has used no GPU for %s, which the administrator allows for %s", agentconfig.Duration(idle.Truncate(time.Second)), agentconfig.Duration(rule.After))
		}
		if t.idle.IsZero() {
			t.idle = t.busy
			a.events.add(control.Event{Kind: control.EventIdle, Tenant: t.Name, User: t.User, Text: fmt.Sprintf("it has used no GPU for %s", agentconfig.Duration(idle.Truncate(time.Second)))})
		}
	default:
		t.idle = time.Time{}
	}
	return ""
}

// idle is for how long a tenant has used no GPU, as far as this agent has seen. Use that
// cannot be told counts as use.
func (a *Agent) idle(t *tenant, now time.Time) time.Duration {
	var used uint64
	times := a.pacer.Times(t.ID)
	busy := t.busy.IsZero() || len(times) == 0
	for _, time := range times {
		used += time.Used + time.Launches
		busy = busy || time.Percent != nil && *time.Percent > 0 || time.Percent == nil && !time.Limited
	}
	if busy || used != t.spent {
		t.busy, t.spent = now, used
	}
	return now.Sub(t.busy)
}

// endBecause ends a tenant's processes, and tells why.
func (a *Agent) endBecause(ctx context.Context, t *tenant, why string) {
	a.mu.Lock()
	t.ending = true
	a.mu.Unlock()
	a.config.Log.WarnContext(ctx, "a share is ended", "tenant", t.Name, "user", t.User, "reason", why)
	a.events.add(control.Event{Kind: control.EventLimit, Tenant: t.Name, User: t.User, Text: why})
	a.running.Go(func() {
		if err := a.stopTenant(ctx, t, expireGrace, why); err != nil && ctx.Err() == nil {
			a.config.Log.WarnContext(ctx, "cannot end a share", "tenant", t.Name, "user", t.User, "error", err)
			a.mu.Lock()
			t.ending = false // the next round tries again
			a.mu.Unlock()
		}
	})
}
