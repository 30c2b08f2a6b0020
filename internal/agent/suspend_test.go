package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/checkpointer"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

func TestSuspend(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	if err := one.suspend(r, false); err != nil {
		t.Fatal(err)
	}
	if got := s.did(); !slices.Equal(got, []string{"lock", "save"}) {
		t.Errorf("to leave it was asked to %s", got)
	}
	l := n.list(r)
	if l.GPUs[0].Granted != 0 || one.is(n, r) != control.SuspensionOut {
		t.Errorf("%d bytes are granted, and it is %q", l.GPUs[0].Granted, one.is(n, r))
	}
	// Its room is another's now.
	two := n.use(r, s, "two", 60*gib, 60*gib, 0)
	resumed := make(chan error, 1)
	go func() { resumed <- one.resume(r) }()
	eventually(t, "it waits for room", func() bool {
		s := n.list(r).Tenants[0].Suspended
		return s != nil && s.State == control.SuspensionWaiting && strings.Contains(s.Reason, "GPU 0")
	})
	if got := s.did(); len(got) > 0 {
		t.Errorf("without room it was asked to %s", got)
	}
	two.end(r, s)
	if err := <-resumed; err != nil {
		t.Fatal(err)
	}
	if got := s.did(); !slices.Equal(got, []string{"restore", "unlock"}) {
		t.Errorf("to come back it was asked to %s", got)
	}
	if l := n.list(r); l.GPUs[0].Granted != 50*gib || one.is(n, r) != "" {
		t.Errorf("%d bytes are granted, and it is %q", l.GPUs[0].Granted, one.is(n, r))
	}
}

// Who suspends or resumes a share is told what it has of the GPU then, and not what it had when the driver was asked last.
func TestSuspendTellsWhatIsThere(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	has := func(v *control.Tenant, err error, want uint64) {
		t.Helper()
		if err != nil || v.Shares[0].Observed == nil || *v.Shares[0].Observed != want {
			t.Fatalf("want %d bytes: %+v, %v", want, v, err)
		}
	}
	has(&n.list(r).Tenants[0], nil, 40*gib)
	for range 2 {
		v, err := r.suspend(t.Context(), root, control.SuspendParams{Tenant: one.created.Tenant.ID, Hold: true})
		has(v, err, 0)
		v, err = r.resume(t.Context(), root, control.ResumeParams{Tenant: one.created.Tenant.ID})
		has(v, err, 40*gib)
	}
}

// TestRoomAtDriver has somebody without a share in the room of one that comes back: it waits until the driver has it free.
func TestRoomAtDriver(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	if err := one.suspend(r, false); err != nil {
		t.Fatal(err)
	}
	s.fill(41 * gib)
	resumed := make(chan error, 1)
	go func() { resumed <- one.resume(r) }()
	eventually(t, "it waits for the driver", func() bool {
		l := n.list(r)
		s := l.Tenants[0].Suspended
		return s != nil && s.State == control.SuspensionWaiting && strings.Contains(s.Reason, "39Gi free") && l.GPUs[0].Granted == 50*gib
	})
	s.fill(40 * gib)
	if err := <-resumed; err != nil || !s.in(suspension.Running, one.pid()) {
		t.Error(err)
	}
}

func TestSuspendSeveral(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 10*gib, 0)
	other := n.asker(0)
	n.enter(one.created.Tenant.Dir, 1, other.cmd.Process.Pid, gib)
	s.has(other.cmd.Process.Pid, gib)
	if err := one.suspend(r, false); err != nil {
		t.Fatal(err)
	}
	if err := one.resume(r); err != nil {
		t.Fatal(err)
	}
	if got, want := s.did(), []string{"lock", "lock", "save", "save", "restore", "restore", "unlock", "unlock"}; !slices.Equal(got, want) {
		t.Errorf("it was asked to %s", got)
	}
	// A lock that does not succeed undoes the others.
	s.refuse = func(act suspension.Act, pid int) error {
		if act == suspension.Lock && pid == other.cmd.Process.Pid {
			return &checkpointer.Refusal{Act: act, PID: pid, Result: 600}
		}
		return nil
	}
	err := one.suspend(r, false)
	if control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "it works") {
		t.Errorf("one that works: %v", err)
	}
	eventually(t, "all run", func() bool { return s.in(suspension.Running, one.pid(), other.cmd.Process.Pid) && one.is(n, r) == "" })
}

// TestSuspendedByAnother has the next agent go on from each step of the one before.
func TestSuspendedByAnother(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	for _, goal := range []suspension.State{suspension.Saved, suspension.Running} {
		for _, act := range []suspension.Act{suspension.Lock, suspension.Save, suspension.Restore, suspension.Unlock} {
			for _, carried := range []bool{false, true} {
				s.mu.Lock()
				s.refuse = func(a suspension.Act, pid int) error {
					if a != act {
						return nil
					}
					s.refuse = nil
					if carried {
						s.states[pid] = a.To()
						s.show()
					}
					r.cancel()
					return checkpointer.ErrEnded
				}
				s.mu.Unlock()
				if goal == suspension.Saved {
					_ = one.suspend(r, true) // the agent may end under it
				} else {
					_ = one.resume(r)
				}
				s.mu.Lock()
				s.refuse = nil
				s.mu.Unlock()
				r.stopAgent()
				r = n.startAs(n.suspends(s, 100*gib))
				eventually(t, "the next agent has gone on", func() bool {
					is := one.is(n, r)
					return s.in(goal, one.pid()) && (is == control.SuspensionOut) == (goal == suspension.Saved) && (is == "") == (goal == suspension.Running)
				})
			}
		}
	}
}

// TestSuspendAskedBefore has the driver end what a helper that was killed had asked, after the next look and before the next
// question, which it then refuses.
func TestSuspendAskedBefore(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	for _, act := range []suspension.Act{suspension.Lock, suspension.Save, suspension.Restore, suspension.Unlock} {
		asked := 0
		s.mu.Lock()
		s.refuse = func(a suspension.Act, pid int) error {
			if a != act {
				return nil
			}
			if asked++; asked == 1 {
				return checkpointer.ErrEnded
			}
			s.refuse, s.states[pid] = nil, a.To()
			s.show()
			return &checkpointer.Refusal{Act: a, PID: pid, Result: 401}
		}
		s.mu.Unlock()
		if err := one.suspend(r, true); err != nil {
			t.Errorf("%s: %v", act, err)
		}
		if err := one.resume(r); err != nil {
			t.Errorf("%s: %v", act, err)
		}
		if asked != 2 {
			t.Errorf("%s: it was asked %d times", act, asked)
		}
	}
}

// TestResumeWithoutHostMemory has an agent that gives no host memory find a share that the one before has suspended.
func TestResumeWithoutHostMemory(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	if err := one.suspend(r, true); err != nil {
		t.Fatal(err)
	}
	r.stopAgent()
	r = n.startAs(n.suspends(s, 0))
	if err := one.resume(r); err != nil {
		t.Error(err)
	}
	if err := one.suspend(r, true); err == nil || !strings.Contains(err.Error(), "gives shares no host memory") {
		t.Error(err)
	}
}

func TestUnsuspendable(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 30*gib))
	one := n.use(r, s, "one", 50*gib, 10*gib, 0)
	for _, c := range []struct {
		about, text string
		code        control.Code
		make, undo  func()
	}{
		{"an old driver", "driver 570 or later", control.CodeInvalid, func() { s.none = true }, func() { s.none = false }},
		{"a process beside the library", "without Divvy's library", control.CodeRefused, func() {
			other := n.asker(0)
			r.members.remember(mustFind(t, other.cmd.Process.Pid), one.created.Tenant.ID, time.Now())
			s.has(other.cmd.Process.Pid, gib)
		}, func() {
			s.mu.Lock()
			for pid := range s.states {
				if pid != one.pid() {
					delete(s.states, pid)
				}
			}
			s.show()
			s.mu.Unlock()
		}},
		{"a lost process", fmt.Sprintf("calls wait for ever: end it by `kill -9 %d`", one.pid()), control.CodeRefused, func() { s.states[one.pid()] = suspension.Failed }, func() { s.states[one.pid()] = suspension.Running }},
		{"one that somebody else locked", "somebody else", control.CodeRefused, func() { s.states[one.pid()] = suspension.Locked }, func() { s.states[one.pid()] = suspension.Running }},
		{"too little host memory", "of the 30Gi of host memory", control.CodeRefused, func() {}, func() {}},
	} {
		c.make()
		err := one.suspend(r, false)
		if control.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.about, err)
		}
		c.undo()
	}
	if got := s.did(); len(got) > 0 {
		t.Errorf("refused, it was asked to %s", got)
	}
	without := n.settings(believing{n.backend})
	r.stopAgent()
	r = n.startAs(without)
	if err := one.suspend(r, false); err == nil || !strings.Contains(err.Error(), "--swap-memory") {
		t.Errorf("without host memory: %v", err)
	}
}

// TestSuspendedIsStopped ends a share that is out, and one whose process dies there.
func TestSuspendedIsStopped(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	if err := one.suspend(r, true); err != nil {
		t.Fatal(err)
	}
	one.end(r, s)
	eventually(t, "it is gone", n.gone(r, one.created))
	two := n.use(r, s, "two", 80*gib, 40*gib, 0)
	if err := two.suspend(r, true); err != nil {
		t.Errorf("host memory is not free again: %v", err)
	}
}

func TestSuspendGivenUp(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	n.use(r, s, "two", 20*gib, 10*gib, 0)
	if err := one.suspend(r, true); err != nil {
		t.Fatal(err)
	}
	n.use(r, s, "three", 55*gib, 50*gib, 0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.resume(ctx, root, control.ResumeParams{Tenant: "one"})
		done <- err
	}()
	eventually(t, "it waits", func() bool { return one.is(n, r) == control.SuspensionWaiting })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if is := one.is(n, r); is != control.SuspensionWaiting {
		t.Errorf("who gave up waiting left it %q", is)
	}
	// It can be held out again, and leaves its place in the queue.
	if err := one.suspend(r, true); err != nil {
		t.Error(err)
	}
	eventually(t, "it waits no more", func() bool { return one.is(n, r) == control.SuspensionOut })
}

func mustFind(t *testing.T, pid int) process.ID {
	t.Helper()
	id, err := process.Find(pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestSuspendedIsChanged changes a share whose room is another's: it takes nothing of its GPU before it comes back.
func TestSuspendedIsChanged(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 70*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	if err := one.suspend(r, true); err != nil {
		t.Fatal(err)
	}
	two := n.use(r, s, "two", 75*gib, 60*gib, 0)
	set := func(memory uint64) error {
		_, err := r.set(t.Context(), root, control.SetParams{Tenant: one.created.Tenant.ID, Memory: new(v1alpha1.Bytes(memory))})
		return err
	}
	if err := set(60 * gib); err != nil {
		t.Errorf("more, which host memory has: %v", err)
	}
	if err := set(45 * gib); err != nil {
		t.Errorf("less: %v", err)
	}
	if err := set(75 * gib); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "host memory") {
		t.Errorf("more than host memory has: %v", err)
	}
	two.end(r, s)
	if err := one.resume(r); err != nil {
		t.Fatal(err)
	}
	if l := n.list(r); l.GPUs[0].Granted != 45*gib {
		t.Errorf("%d bytes are granted", l.GPUs[0].Granted)
	}
}
