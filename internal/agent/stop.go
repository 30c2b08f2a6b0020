package agent

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Bounds of stop.
const (
	maxGrace = 10 * time.Minute
	// killTime is how long processes may take to end after SIGKILL: a process inside
	// a driver call ends when the call returns.
	killTime = 10 * time.Second
	// stopPause is the time between looks whether a tenant has ended.
	stopPause = 20 * time.Millisecond
)

// stop ends a tenant's processes and answers when the tenant has ended.
func (a *Agent) stop(ctx context.Context, peer *control.Peer, p control.StopParams) (struct{}, error) {
	none := struct{}{}
	t, err := a.find(peer, p.Tenant)
	if err != nil {
		return none, err
	}
	if t.isTenancy() {
		return none, control.Errorf(control.CodeInvalid, "%s lives as long as its pod: delete the pod", p.Tenant)
	}
	if p.Grace < 0 || p.Grace > maxGrace {
		return none, control.Errorf(control.CodeInvalid, "grace %s: give 0 to %s", p.Grace, maxGrace)
	}
	return none, a.stopTenant(ctx, t, p.Grace)
}

// stopTenant ends a tenant's processes: by SIGTERM and, if they still run after the
// grace time, by SIGKILL. It returns when the tenant has ended.
func (a *Agent) stopTenant(ctx context.Context, t *tenant, grace time.Duration) error {
	a.mu.Lock()
	t.stopping = true
	a.mu.Unlock()
	known := map[process.ID]bool{}
	if grace > 0 {
		err := a.signalUntilEnded(ctx, t, known, unix.SIGTERM, grace)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
	err := a.signalUntilEnded(ctx, t, known, unix.SIGKILL, killTime)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return control.Errorf(control.CodeInternal,
			"%s has processes that do not end,%s: they may be inside a driver call; try again later", t.Name, describe(a.processesOf(t)))
	}
	return err
}

// signalUntilEnded signals every process of a tenant once, including those that
// appear meanwhile, and waits until the tenant and all of them have ended. It adds
// them to known, because a process whose parent has ended is not found again.
func (a *Agent) signalUntilEnded(ctx context.Context, t *tenant, known map[process.ID]bool, signal syscall.Signal, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	signalled := map[process.ID]bool{}
	for {
		for _, id := range a.processesOf(t) {
			known[id] = true
		}
		left := false
		for id := range known {
			if !signalled[id] {
				signalled[id] = true
				_ = id.Signal(signal) // it may have ended by itself
			}
			left = left || id.Alive()
		}
		a.lookAt(ctx, t)
		a.mu.Lock()
		ended := t.ended
		a.mu.Unlock()
		if ended && !left {
			return nil
		}
		select {
		case <-time.After(stopPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// processesOf finds the tenant's processes: the one that asked for it, those
// that use its shares, those that were found to be its own before, and their
// descendants. The pids of the second are the tenant's word, so they count only if the
// kernel confirms them.
func (a *Agent) processesOf(t *tenant) []process.ID {
	a.mu.Lock()
	var roots []process.ID
	if t.process && t.Holder.Alive() {
		roots = append(roots, t.Holder)
	}
	seen, wanted := t.seen.Processes, a.tenantOf(&t.record)
	a.mu.Unlock()
	for _, p := range seen {
		if id, err := process.Find(p.PID); err == nil && p.Live && a.config.Backend.Has(wanted, p.PID) {
			roots = append(roots, id)
		}
	}
	roots = append(roots, a.members.of(t.ID)...)
	found := roots
	for _, root := range roots {
		found = append(found, process.Descendants(root.PID)...)
	}
	slices.SortFunc(found, func(x, y process.ID) int { return x.PID - y.PID })
	found = slices.Compact(found)
	return slices.DeleteFunc(found, func(id process.ID) bool { return id.PID == os.Getpid() || id.PID <= 1 })
}

func describe(ids []process.ID) string {
	text := ""
	for _, id := range ids {
		text += " " + strconv.Itoa(id.PID)
	}
	return text
}
