package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/checkpointer"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/suspension"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// Whoever wants a share to leave and whoever brings it back do not take each other's host memory.
func TestLeavesWhileItComesBack(t *testing.T) {
	n := newNode(t)
	r := n.swapping(20 * gib)
	id := n.grant(r, n.asker(0), suspending("1", 16*gib)).Tenant.ID
	it := r.tenants[id]
	if err := r.setOut(t.Context(), it, departure{why: "a test"}); !errors.Is(err, ErrNotAway) {
		t.Errorf("without host memory: %v", err)
	}
	n.must(r.ReserveHost(t.Context(), id))
	r.mu.Lock()
	it.Suspended = &suspended{Goal: suspension.Out}
	r.mu.Unlock()
	if err := r.ReturnHost(t.Context(), id); !errors.Is(err, ErrNotAway) || n.list(r).SwapMemory.Granted != 16*gib {
		t.Errorf("of one that is to leave: %v, %d bytes are granted", err, n.list(r).SwapMemory.Granted)
	}
}

// A look that began before a share came back leaves the gate open.
func TestGateStaysOpen(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	n.must(one.suspend(r, false))
	r.mu.Lock()
	it := r.tenants[one.created.Tenant.ID]
	old, of := *it.Suspended, r.tenantOf(&it.record)
	r.mu.Unlock()
	n.must(one.resume(r))
	r.tendOne(t.Context(), it, of, old, false)
	told, err := page.ReadConfig(tenantdir.Dir(one.created.Tenant.Dir).Config())
	if err != nil || told.Device[0].Turn.Order&(1<<page.TurnBits-1) == page.TurnSuspended {
		t.Errorf("the gate of a share that is back is closed: %+v, %v", told.Device[0].Turn, err)
	}
}

// While the driver is not asked, because a GPU changes, a suspension waits and is not turned round.
func TestSuspendWhileNobodyIsAsked(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	hold := func(questions ...string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, q := range questions {
			s.held[q] = mostSilent
		}
	}
	hold("version", "save")
	n.must(one.suspend(r, true))
	if acts := s.did(); !slices.Equal(acts, []string{"lock", "save"}) {
		t.Errorf("after it was suspended: %q", acts)
	}
	hold("restore")
	n.must(one.resume(r))
	if acts := s.did(); !slices.Equal(acts, []string{"restore", "unlock"}) {
		t.Errorf("after it was resumed: %q", acts)
	}
	hold("state")
	n.must(one.suspend(r, true))
}

// Who suspends a share that works is told how it stays out.
func TestSuspendNamesHold(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	c := n.suspends(s, 100*gib)
	var r *running
	var one user
	c.Step = func(name string) {
		if name == "suspend-lock" {
			r.mu.Lock()
			it := r.tenants[one.created.Tenant.ID]
			r.mu.Unlock()
			r.comeBack(t.Context(), it, becauseCalled)
		}
	}
	r = n.startAs(c)
	one = n.use(r, s, "one", 50*gib, 40*gib, 0)
	const want = "one of its programs calls the GPU: `divvy suspend one --hold` keeps it out until `divvy resume one`"
	if err := one.suspend(r, false); control.CodeOf(err) != control.CodeRefused || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// Who loses a process is told how it ends: it waits in the driver and handles no signal.
func TestLostIsTold(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, 0)
	n.must(one.suspend(r, true))
	s.mu.Lock()
	s.refuse = func(act suspension.Act, pid int) error {
		if act != suspension.Restore {
			return nil
		}
		s.states[pid] = suspension.Failed
		return &checkpointer.Refusal{Act: act, PID: pid, Result: 304}
	}
	s.mu.Unlock()
	n.must(one.resume(r))
	want := fmt.Sprintf("the driver lost process %d: its calls wait for ever, so end it by `kill -9 %[1]d`", one.pid())
	if told := n.list(r).Events; !slices.ContainsFunc(told, func(e control.Event) bool { return e.Text == want && e.PID == one.pid() }) {
		t.Errorf("the events are %+v, without %q", told, want)
	}
	if said := n.list(r).Tenants[0].Fault; said != want {
		t.Errorf("the share is listed with %q, want %q", said, want)
	}
	one.kill()
	if said := n.list(r).Tenants; len(said) > 0 && said[0].Fault != "" {
		t.Errorf("after its end the share is listed with %q", said[0].Fault)
	}
}

// What a user may have of the host's memory holds for suspended shares as for swap shares.
func TestSuspendedWithinItsUsersPart(t *testing.T) {
	n := newNode(t)
	c := n.settings(n.backend)
	c.SwapMemory, c.Rules = 64*gib, n.rules("swapMemory: 64Gi\nusers: {ada: {swapMemory: 20Gi}}")
	r := n.startAs(c)
	first := n.grant(r, n.asker(ada), suspending("0", 16*gib)).Tenant.ID
	second := n.grant(r, n.asker(ada), suspending("1", 8*gib)).Tenant.ID
	n.must(r.ReserveHost(t.Context(), first))
	if err := r.ReserveHost(t.Context(), second); !alloc.Waits(err) || !strings.Contains(err.Error(), "16Gi in swapped and suspended shares") {
		t.Errorf("beyond what its user may have: %v", err)
	}
	n.must(r.ReturnHost(t.Context(), first))
	n.must(r.ReserveHost(t.Context(), second))
}

// Two that come back do not both take what the driver has free for one of them, which would lose a process.
func TestRoomAtDriverIsOnes(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	c := n.suspends(s, 100*gib)
	var once sync.Once
	begins, goOn := make(chan struct{}), make(chan struct{})
	c.Step = func(name string) {
		if name == "suspend-restore" {
			once.Do(func() { close(begins); <-goOn })
		}
	}
	r := n.startAs(c)
	one, two := n.use(r, s, "one", 30*gib, 30*gib, 0), n.use(r, s, "two", 30*gib, 30*gib, 0)
	n.must(one.suspend(r, true))
	n.must(two.suspend(r, true))
	s.fill(40 * gib) // of 80
	done := make(chan error, 2)
	go func() { done <- one.resume(r) }()
	<-begins
	go func() { done <- two.resume(r) }()
	eventually(t, "the second waits, or is back", func() bool {
		is := two.is(n, r)
		return is == control.SuspensionWaiting || is == ""
	})
	close(goOn)
	eventually(t, "the first is back", func() bool { return one.is(n, r) == "" })
	if is := two.is(n, r); is != control.SuspensionWaiting {
		t.Errorf("without room the second is %q", is)
	}
	s.fill(0)
	for range 2 {
		n.must(<-done)
	}
	if !s.in(suspension.Running, one.pid(), two.pid()) {
		t.Error("a process is lost")
	}
}
