package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Bounds of stop.
const (
	maxGrace = 10 * time.Minute
	// killTime is how long processes may take to end after SIGKILL: a process inside
	// a driver call ends when the call returns, and a thousand processes on a busy machine
	// need a while.
	killTime = 30 * time.Second
	// stopPause is the time between looks whether a tenant has ended.
	stopPause = 20 * time.Millisecond
	// huntPause is the least time between two questions about all processes of a user.
	huntPause = 200 * time.Millisecond
)

// stop ends a tenant's processes and answers when the tenant has ended.
func (a *Agent) stop(ctx context.Context, peer *control.Peer, p control.StopParams) (struct{}, error) {
	none := struct{}{}
	t, err := a.find(peer, p.Tenant)
	if err != nil {
		return none, err
	}
	if t.isTenancy() {
		return none, control.Errorf(control.CodeInvalid, "%s lives as long as its pod: delete the pod", t.Name)
	}
	if p.Lasting && !t.lasts() {
		return none, control.Errorf(control.CodeInvalid, "%s is no share for containers: `divvy stop %[1]s` ends it with its processes", t.Name)
	}
	if p.Grace < 0 || p.Grace > maxGrace {
		return none, control.Errorf(control.CodeInvalid, "grace %s: give 0 to %s", p.Grace, maxGrace)
	}
	command := "divvy stop"
	if p.Lasting {
		command = "divvy share rm"
	}
	return none, a.stopTenant(ctx, t, p.Grace, process.UserName(peer.UID)+" stopped it ("+command+")")
}

// stopTenant ends a tenant's processes: by SIGTERM and, if they still run after the
// grace time, by SIGKILL. Before that it tells the tenant's user why. It returns when the
// tenant has ended.
func (a *Agent) stopTenant(ctx context.Context, t *tenant, grace time.Duration, why string) error {
	a.mu.Lock()
	t.stopping, t.why = true, why
	if s := t.Suspended; s != nil && s.Hold && s.Order == nil {
		// What its processes do at their end may need the GPU.
		next := *s
		next.Hold = false
		a.enterSuspension(ctx, t, &next)
	}
	a.mu.Unlock()
	defer a.part(t)()
	a.tellUser(ctx, t, why)
	if err := a.dropDevice(t); err != nil {
		return err
	}
	h := &hunt{agent: a, tenant: t, known: map[process.ID]bool{}, foreign: map[process.ID]bool{}}
	if grace > 0 {
		err := h.signalUntilEnded(ctx, unix.SIGTERM, grace)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
	err := h.signalUntilEnded(ctx, unix.SIGKILL, killTime)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return control.Errorf(control.CodeInternal, "%s does not end: %s", t.Name, h.remains())
	}
	return err
}

// tellUser tells a tenant's user why it is ended, where the process that asked for it
// writes its errors: `divvy run` has become the command, so nobody else can.
func (a *Agent) tellUser(ctx context.Context, t *tenant, why string) {
	a.mu.Lock()
	holder, there := t.Holder, t.process
	a.mu.Unlock()
	if a.config.Tell == nil || !there {
		return
	}
	if err := a.config.Tell(holder, t.UID, fmt.Sprintf("divvy: share %s is ended: %s", t.Name, why)); err != nil {
		a.config.Log.DebugContext(ctx, "cannot tell a share's user why it is ended", "tenant", t.Name, "user", t.User, "error", err)
	}
}
