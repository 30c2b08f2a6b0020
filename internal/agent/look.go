package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// seen is what a look at a tenant's page found, as the tenant wrote it.
type seen struct {
	usage     []page.Usage
	processes []page.Process
}

// afterNotice are the times between looks after a process closed its page. The
// lock is released just after the notice, and the driver's files later still.
var afterNotice = []time.Duration{
	0, time.Millisecond, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond, 8 * time.Millisecond, 16 * time.Millisecond,
}

// pace bounds how often something is done for one tenant: at once as long as it is
// seldom, and every paceStep if it goes on and on. It is for one goroutine at a
// time; the zero value is ready.
type pace struct{ due time.Time }

const (
	paceStep = 10 * time.Millisecond
	// paceAhead is how far one may run ahead of the steps.
	paceAhead = 200 * time.Millisecond
)

// step returns how long to wait before the next one.
func (p *pace) step(now time.Time) time.Duration {
	if p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(paceStep)
	return max(0, p.due.Sub(now)-paceAhead)
}

// lookSoon follows up a notice of death. Notices that come meanwhile are
// followed up by the same goroutine, so that a tenant that opens and closes
// its page all day, or whose processes die all day, costs one, and at its pace a
// bounded part of a processor.
func (a *Agent) lookSoon(ctx context.Context, id string) {
	a.mu.Lock()
	t := a.tenants[id]
	a.mu.Unlock()
	if t == nil || t.notices.Add(1) > 1 {
		return
	}
	a.running.Go(func() {
		for {
			wait := t.followed.step(time.Now())
			n := t.notices.Load()
			for _, pause := range afterNotice {
				select {
				case <-time.After(wait + pause):
					wait = 0
				case <-ctx.Done():
					return
				}
				if a.lookAt(ctx, t) {
					break
				}
			}
			if t.notices.CompareAndSwap(n, 0) {
				return
			}
		}
	})
}

// lookAt reads a tenant's page, has its dead reaped, and ends the tenant when
// nobody is left. It reports whether the dead were found and are gone.
func (a *Agent) lookAt(ctx context.Context, t *tenant) (reaped bool) {
	t.look.Lock()
	defer t.look.Unlock()
	a.mu.Lock()
	over := t.ended || !t.ready
	a.mu.Unlock()
	if over {
		return true
	}
	a.cut(ctx, t)
	now, live, err := a.read(t)
	if err == nil && now.Dead() {
		before := now.Usage
		err = a.config.Reap(ctx, t.Dir, t.reaperUID())
		if err == nil {
			now, live, err = a.read(t)
		}
		if reaped = err == nil && !now.Dead(); reaped {
			a.tellReaped(t, before, now.Usage)
		}
	}
	if now != nil {
		a.strangers.name(now.Processes, a.config.PIDNamespace)
	}
	a.note(ctx, t, now, err)
	a.mu.Lock()
	over = !t.held() && !live
	a.mu.Unlock()
	if over {
		a.end(ctx, t)
	}
	return reaped
}

// slack is how much more memory a file may take than it has bytes: a tmpfs may
// give it huge pages.
const slack = 4 << 20

// cut takes back what a tenant has beyond its pages. They lie in a file system of
// the whole machine, in which a container could otherwise write without end.
func (a *Agent) cut(ctx context.Context, t *tenant) {
	a.cutFile(ctx, t, tenantdir.Dir(t.Dir).State(), page.SizeOfState+int64(len(t.Shares))*page.SizeOfGPU)
	for i := range t.Shares {
		a.cutFile(ctx, t, tenantdir.Dir(t.Dir).Pulse(i), page.SizeOfPulse)
	}
}

// shorten makes a file as long as each of the sizes in turn. Where its directory is
// the tenant's, another name may lead elsewhere by now.
func shorten(path string, sizes ...int64) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.Join(fmt.Errorf("%s is no regular file", path), err, file.Close())
	}
	var faults []error
	for _, size := range sizes {
		faults = append(faults, file.Truncate(size))
	}
	return errors.Join(append(faults, file.Close())...)
}

func (a *Agent) cutFile(ctx context.Context, t *tenant, path string, size int64) {
	var stat unix.Stat_t
	if unix.Lstat(path, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return // the look that follows tells
	}
	const block = 512 // stat(2)
	taken := max(stat.Size, stat.Blocks*block-slack)
	if taken <= size {
		return
	}
	if _, err := page.ReadConfig(tenantdir.Dir(t.Dir).Config()); err != nil {
		return // pages of another layout may be longer, and libraries use all of them
	}
	// Blocks beyond the end of a file go when it becomes shorter.
	if err := shorten(path, max(stat.Size, size+1), size); err != nil {
		a.config.Log.WarnContext(ctx, "cannot cut a tenant's page", "tenant", t.Name, "error", err)
		return
	}
	text := fmt.Sprintf("its file %s took %d bytes more than its page has: they were cut off", filepath.Base(path), taken-size)
	a.config.Log.WarnContext(ctx, "a tenant wrote beyond its page", "tenant", t.Name, "reason", text)
	a.events.add(control.Event{Kind: control.EventFault, Tenant: t.Name, Text: text})
}

// read returns the page and whether anybody lives. Damage to a page hides
// what is charged, not who lives: locks are the kernel's.
func (a *Agent) read(t *tenant) (now *page.Snapshot, live bool, err error) {
	path := tenantdir.Dir(t.Dir).State()
	now, err = page.ReadState(path, len(t.Shares))
	if err == nil {
		return now, now.Live(), nil
	}
	live, lockErr := page.AnyLive(path)
	return nil, live && lockErr == nil, err
}

// note remembers what was seen, and tells once of a fault.
func (a *Agent) note(ctx context.Context, t *tenant, now *page.Snapshot, fault error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := ""
	if fault != nil {
		text = fault.Error()
	}
	if text != t.fault && fault != nil && !errors.Is(fault, context.Canceled) {
		a.config.Log.WarnContext(ctx, "cannot look after a tenant", "tenant", t.Name, "error", fault)
		a.events.add(control.Event{Kind: control.EventFault, Tenant: t.Name, Text: text})
	}
	t.fault = text
	if now == nil {
		return
	}
	t.seen = seen{usage: now.Usage, processes: now.Processes}
	for i := range t.Shares {
		t.Shares[i].Peak = max(t.Shares[i].Peak, now.Usage[i].Used)
	}
}

func (a *Agent) tellReaped(t *tenant, before, after []page.Usage) {
	for i := range after {
		if before[i].Used > after[i].Used {
			a.events.add(control.Event{
				Kind: control.EventReaped, Tenant: t.Name, UUID: t.Shares[i].UUID,
				Text: fmt.Sprintf("%d MiB of a process that died are free again", (before[i].Used-after[i].Used)>>20),
			})
		}
	}
}

// end removes a tenant of which nobody is left. The directory goes first: an
// agent that dies in between finds a tenant without one, and ends it again.
// t.look is held.
func (a *Agent) end(ctx context.Context, t *tenant) {
	a.notices.remove(t.ID)
	plan := t.plan
	if plan == nil {
		plan = &backend.Plan{Dir: t.Dir}
	}
	if err := a.config.Backend.Undo(ctx, plan); err != nil {
		a.config.Log.WarnContext(ctx, "cannot remove a tenant's directory", "tenant", t.Name, "error", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.forget(t); err != nil {
		a.config.Log.ErrorContext(ctx, "cannot save tenants", "error", err)
	}
	a.events.add(control.Event{Kind: control.EventEnded, Tenant: t.Name, Text: "its last process is gone"})
}
