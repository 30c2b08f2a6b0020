package agent

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/checkpointer"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

// What the driver cannot save may come into being while a share leaves: nothing is saved then, which would lose a process.
func TestUnsavedBeforeTheSave(t *testing.T) {
	for text, befalls := range map[string]func(r *running, s *saver, one user, other process.ID){
		"managed memory": func(_ *running, _ *saver, one user, _ process.ID) { one.slot.has(page.UnsavedManaged) },
		"without Divvy's library": func(r *running, s *saver, one user, other process.ID) {
			r.members.remember(other, one.created.Tenant.ID, time.Now())
			s.has(other.PID, gib)
		},
	} {
		t.Run(text, func(t *testing.T) {
			n := newNode(t)
			s := newSaver(n)
			c := n.suspends(s, 100*gib)
			other := mustFind(t, n.asker(0).cmd.Process.Pid)
			var r *running
			var one user
			var once sync.Once
			c.Step = func(name string) {
				if name == "suspended-lock" {
					once.Do(func() { befalls(r, s, one, other) })
				}
			}
			r = n.startAs(c)
			one = n.use(r, s, "one", 50*gib, 40*gib, 0)
			if err := one.suspend(r, true); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), text) {
				t.Errorf("it is refused with %v, want %q", err, text)
			}
			eventually(t, "it is on its GPUs again", func() bool { return one.is(n, r) == "" })
			if got := s.did(); !slices.Equal(got, []string{"lock", "unlock"}) || !s.in(suspension.Running, one.pid()) {
				t.Errorf("it was asked to %s", got)
			}
		})
	}
}

// A process that joins a share which is out, and that the driver cannot save, is left alone: the share comes back to it, once
// there is room.
func TestUnsavedJoins(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	n.must(one.suspend(r, true))
	two := n.use(r, s, "two", 60*gib, 30*gib, 0)
	s.did()
	other := n.asker(0).cmd.Process.Pid
	n.enter(one.created.Tenant.Dir, 1, other, gib).has(page.UnsavedManaged)
	s.has(other, gib)
	eventually(t, "it waits for room", func() bool { return one.is(n, r) == control.SuspensionWaiting })
	if got := s.did(); len(got) > 0 {
		t.Errorf("it was asked to %s", got)
	}
	two.end(r, s)
	eventually(t, "all run", func() bool { return one.is(n, r) == "" && s.in(suspension.Running, one.pid(), other) })
}

// silenced is a driver that does not tell how far processes are once it is told not to.
type silenced struct {
	*saver
	is    atomic.Bool
	asked atomic.Int64
}

func (m *silenced) State(ctx context.Context, pid int) (suspension.State, error) {
	if m.is.Load() {
		m.asked.Add(1)
		return suspension.Running, checkpointer.ErrEnded
	}
	return m.saver.State(ctx, pid)
}

// A share whose processes' states the driver does not tell any more does not leave for ever.
func TestLeavesNotForEver(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	m := &silenced{saver: s}
	c := n.suspends(s, 100*gib)
	c.Checkpointer = m
	var once sync.Once
	c.Step = func(name string) {
		if name == "suspended-lock" {
			once.Do(func() { m.is.Store(true) })
		}
	}
	r := n.startAs(c)
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	done := make(chan error, 1)
	go func() { done <- one.suspend(r, true) }()
	eventually(t, "it is to come back", func() bool {
		is := one.is(n, r)
		return is == control.SuspensionReturning || is == control.SuspensionWaiting
	})
	m.is.Store(false)
	if err := <-done; control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), checkpointer.ErrEnded.Error()) {
		t.Errorf("it is refused with %v", err)
	}
	eventually(t, "it runs", func() bool { return one.is(n, r) == "" && s.in(suspension.Running, one.pid()) })

	// One that is out stays out: nothing of it waits for the driver.
	n.must(one.suspend(r, true))
	m.is.Store(true)
	asked := m.asked.Load()
	eventually(t, "it is asked for more often than a share that leaves", func() bool { return m.asked.Load() > asked+2*mostSilent })
	if is := one.is(n, r); is != control.SuspensionOut {
		t.Errorf("it is %q", is)
	}
	m.is.Store(false)
}
