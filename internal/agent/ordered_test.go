package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/checkpointer"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

// lodger is a process in a tenancy with key a, which uses the first GPU.
type lodger struct {
	*asker
	n *node
	s *saver
}

func (n *node) lodge(r *running, s *saver, limit, bytes uint64) lodger {
	n.t.Helper()
	dir := n.prepared(r, claimed("a", limit, 0))
	l := lodger{n.asker(0), n, s}
	n.enter(dir, 0, l.pid(), bytes)
	s.has(l.pid(), bytes)
	return l
}

func (l lodger) pid() int { return l.cmd.Process.Pid }

// shown is how listings show the tenancy's suspension, nil for one that runs.
func (l lodger) shown(r *running) *control.Suspended { return l.n.list(r).Tenants[0].Suspended }

var firstOrder = Order{Number: 1, Whom: "pod vision/train-0 of queue vision"}

// TestOrdered has a share leave for somebody's pod: nobody but who ordered it brings it back.
func TestOrdered(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	l := n.lodge(r, s, 50*gib, 40*gib)
	n.must(r.Suspend(t.Context(), "a", firstOrder))
	if got := s.did(); !slices.Equal(got, []string{"lock", "save"}) || n.granted(r) != 0 {
		t.Errorf("to leave it was asked to %s, and %d bytes are granted", got, n.granted(r))
	}
	if is := l.shown(r); is == nil || is.State != control.SuspensionOut || !is.Hold || is.For != firstOrder.Whom || !strings.Contains(is.By, firstOrder.Whom) {
		t.Errorf("it is shown as %+v", is)
	}
	id := n.list(r).Tenants[0].ID
	_, err := r.resume(t.Context(), root, control.ResumeParams{Tenant: id})
	if control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), firstOrder.Whom) {
		t.Errorf("by hand: %v", err)
	}
	// Who suspends it by hand, too, changes nothing.
	for _, hold := range []bool{false, true} {
		_, err := r.suspend(t.Context(), root, control.SuspendParams{Tenant: id, Hold: hold})
		n.must(err)
	}
	if got := r.Ordered(); !maps.Equal(got, map[string]Order{"a": firstOrder}) {
		t.Errorf("ordered are %v", got)
	}
	// The same order again asks nothing, and the next one only says for whom.
	second := Order{Number: 2, Whom: "pod a/b"}
	n.must(r.Suspend(t.Context(), "a", firstOrder))
	n.must(r.Suspend(t.Context(), "a", second))
	if is := l.shown(r); len(s.did()) > 0 || is.For != second.Whom || r.Ordered()["a"] != second {
		t.Errorf("with the next order it is shown as %+v", is)
	}
	n.must(r.Resume(t.Context(), "a"))
	n.must(r.Resume(t.Context(), "a"))
	if got := s.did(); !slices.Equal(got, []string{"restore", "unlock"}) || l.shown(r) != nil || len(r.Ordered()) > 0 || n.granted(r) != 50*gib {
		t.Errorf("to come back it was asked to %s, and is %+v", got, l.shown(r))
	}
}

// TestOrderedOfSuspended has an order for a share that somebody has suspended already: from then on it is the order's.
func TestOrderedOfSuspended(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	l := n.lodge(r, s, 50*gib, 40*gib)
	_, err := r.suspend(t.Context(), root, control.SuspendParams{Tenant: n.list(r).Tenants[0].ID})
	n.must(err)
	n.must(r.Suspend(t.Context(), "a", firstOrder))
	if is := l.shown(r); is == nil || !is.Hold || is.For != firstOrder.Whom {
		t.Errorf("it is shown as %+v", is)
	}
	n.must(r.Resume(t.Context(), "a"))
	if is := l.shown(r); is != nil {
		t.Errorf("with its order taken back it is shown as %+v", is)
	}
}

// TestOrderRefused has the driver refuse what an order wants: the share stays, or is brought back, and it is said why.
func TestOrderRefused(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	l := n.lodge(r, s, 50*gib, 40*gib)
	for _, c := range []struct {
		act  suspension.Act
		text string
	}{{suspension.Lock, "it works"}, {suspension.Save, "does not take process"}} {
		s.mu.Lock()
		s.refuse = func(act suspension.Act, pid int) error {
			if act != c.act {
				return nil
			}
			return &checkpointer.Refusal{Act: act, PID: pid, Result: 600}
		}
		s.mu.Unlock()
		err := r.Suspend(t.Context(), "a", firstOrder)
		if control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("a driver that refuses to %s: %v", c.act, err)
		}
		if got := r.Ordered(); len(got) > 0 {
			t.Errorf("an order that came to nothing is kept: %v", got)
		}
		n.must(r.Resume(t.Context(), "a"))
		if !s.in(suspension.Running, l.pid()) || n.granted(r) != 50*gib || n.list(r).SwapMemory.Granted != 0 {
			t.Error("it is not as before")
		}
	}
	if err := r.Suspend(t.Context(), "b", firstOrder); control.CodeOf(err) != control.CodeNotFound {
		t.Errorf("nobody: %v", err)
	}
	r.stopAgent()
	r = n.startAs(n.suspends(s, 30*gib))
	if err := r.Suspend(t.Context(), "a", firstOrder); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "of the 30Gi of host memory") {
		t.Errorf("without room in host memory: %v", err)
	}
}

// TestOrderOutlivesAgents has agents end while a share leaves for an order and while it comes back: the next one knows the order, and
// goes on whoever asks.
func TestOrderOutlivesAgents(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	l := n.lodge(r, s, 50*gib, 40*gib)
	for _, act := range []suspension.Act{suspension.Lock, suspension.Save, suspension.Restore, suspension.Unlock} {
		s.mu.Lock()
		s.refuse = func(a suspension.Act, _ int) error {
			if a != act {
				return nil
			}
			s.refuse = nil
			r.cancel()
			return checkpointer.ErrEnded
		}
		s.mu.Unlock()
		leaves := act == suspension.Lock || act == suspension.Save
		err := r.Suspend(t.Context(), "a", firstOrder)
		if !leaves {
			err = errors.Join(err, r.Resume(t.Context(), "a"))
		}
		if control.CodeOf(err) == control.CodeRefused {
			t.Errorf("an agent that ends says %v", err)
		}
		r.stopAgent()
		r = n.startAs(n.suspends(s, 100*gib))
		if got := r.Ordered(); leaves != maps.Equal(got, map[string]Order{"a": firstOrder}) {
			t.Errorf("after one that ended while it was to %s ordered are %v", act, got)
		}
		if leaves {
			n.must(r.Suspend(t.Context(), "a", firstOrder))
		} else {
			n.must(r.Resume(t.Context(), "a"))
		}
		if want := map[bool]suspension.State{true: suspension.Saved, false: suspension.Running}[leaves]; !s.in(want, l.pid()) {
			t.Errorf("after one that ended while it was to %s the process is not as wanted", act)
		}
	}
}

// TestOrderGivenUp has whoever waits for a departure give up: it goes on, and can be taken back.
func TestOrderGivenUp(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	begins, goOn := make(chan struct{}), make(chan struct{})
	c := n.suspends(s, 100*gib)
	c.Step = func(name string) {
		if name == "suspend-save" {
			close(begins)
			<-goOn
		}
	}
	r := n.startAs(c)
	l := n.lodge(r, s, 50*gib, 40*gib)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Suspend(ctx, "a", firstOrder) }()
	<-begins
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(goOn)
	n.must(r.Suspend(t.Context(), "a", firstOrder))
	n.must(r.Resume(t.Context(), "a"))
	if !s.in(suspension.Running, l.pid()) {
		t.Error("the process is not back")
	}
}
