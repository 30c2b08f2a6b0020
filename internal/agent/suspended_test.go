package agent

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// A tenant counts on its GPUs, then there and on the host, then on the host alone, and back; so it does for the next agent.
func TestSuspendedCounts(t *testing.T) {
	n := newNode(t)
	r := n.swapping(20 * gib)
	id := n.grant(r, n.asker(0), suspending("1", 16*gib)).Tenant.ID
	counts := func(state Away, gpu, host uint64) {
		t.Helper()
		r.stopAgent()
		r = n.swapping(20 * gib)
		l := n.list(r)
		if got, err := r.AwayOf(id); err != nil || got != state || l.GPUs[1].Granted != gpu || l.SwapMemory.Granted != host {
			t.Errorf("%q, %v: %d of the GPU and %d of the host, want %q with %d and %d", got, err, l.GPUs[1].Granted, l.SwapMemory.Granted, state, gpu, host)
		}
	}
	counts(AwayNot, 16*gib, 0)
	n.must(r.ReserveHost(t.Context(), id))
	counts(AwayLeaving, 16*gib, 16*gib)
	n.must(r.LeaveGPUs(t.Context(), id))
	counts(AwayOut, 0, 16*gib)
	n.must(r.EnterGPUs(t.Context(), id))
	counts(AwayEntering, 16*gib, 16*gib)
	n.must(r.ReturnHost(t.Context(), id))
	counts(AwayNot, 16*gib, 0)
	n.must(r.ReserveHost(t.Context(), id))
	n.must(r.ReturnHost(t.Context(), id)) // it was not suspended after all
	counts(AwayNot, 16*gib, 0)
	for name, err := range map[string]error{
		"leave": r.LeaveGPUs(t.Context(), id), "enter": r.EnterGPUs(t.Context(), id), "stay": r.StayAway(t.Context(), id),
	} {
		if !errors.Is(err, ErrNotAway) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.ReserveHost(t.Context(), "nobody"); control.CodeOf(err) != control.CodeNotFound {
		t.Error(err)
	}
}

// Host memory for a suspended tenant is given as that for swap shares is.
func TestSuspendedNeedsHostMemory(t *testing.T) {
	n := newNode(t)
	r := n.swapping(20 * gib)
	swaps := n.grant(r, n.asker(0), swap("0", 8*gib, 0)).Tenant.ID
	id := n.grant(r, n.asker(0), suspending("1", 16*gib)).Tenant.ID
	if err := r.ReserveHost(t.Context(), id); !alloc.Waits(err) || !strings.Contains(err.Error(), "12Gi of the 20Gi of host memory for swapped and suspended shares is left, and this needs 16Gi") {
		t.Errorf("%v", err)
	}
	if err := r.ReserveHost(t.Context(), swaps); control.CodeOf(err) != control.CodeInvalid || !strings.Contains(err.Error(), "the driver cannot suspend") {
		t.Errorf("%v", err)
	}
	r.stopAgent()
	r = n.swapping(0)
	if err := r.ReserveHost(t.Context(), id); control.CodeOf(err) != control.CodeInvalid || !strings.Contains(err.Error(), "gives shares no host memory") {
		t.Errorf("%v", err)
	}
}

// Others may have the GPU of a suspended tenant. It waits for its room then, is told for what, and nobody gets in before it.
func TestSuspendedWaitsForItsRoom(t *testing.T) {
	n := newNode(t)
	r := n.swapping(64 * gib)
	id := n.grant(r, n.asker(0), suspending("1", 16*gib)).Tenant.ID
	waiting := n.wait(r, n.asker(0), askOn("1", 12*gib))
	n.must(r.ReserveHost(t.Context(), id))
	changed := r.Changed()
	n.must(r.LeaveGPUs(t.Context(), id))
	<-changed
	if err := <-waiting.done; err != nil {
		t.Fatal(err)
	}
	for range 2 { // as often as it asks
		if err := r.EnterGPUs(t.Context(), id); !alloc.Waits(err) || !strings.Contains(err.Error(), "GPU 1 has 12Gi of 24Gi not granted and the share needs 16Gi; root/train_it-2 holds 12Gi") {
			t.Fatal(err)
		}
	}
	if got, _ := n.refusal(r, 0, askOn("1", gib)); !strings.Contains(got, "other requests have waited longer for GPU 1") {
		t.Errorf("another one: %q", got)
	}
	n.grant(r, n.asker(0), askOn("0", gib))
	changed = r.Changed()
	waiting.asker.leave()
	for err := r.EnterGPUs(t.Context(), id); err != nil; err = r.EnterGPUs(t.Context(), id) {
		if !alloc.Waits(err) {
			t.Fatal(err)
		}
		<-changed
		changed = r.Changed()
	}
	n.must(r.ReturnHost(t.Context(), id))
	n.grant(r, n.asker(0), askOn("1", gib))
	n.must(r.ReserveHost(t.Context(), id))
	n.must(r.LeaveGPUs(t.Context(), id))
	n.grant(r, n.asker(0), askOn("1", 20*gib))
	if err := r.EnterGPUs(t.Context(), id); !alloc.Waits(err) {
		t.Fatal(err)
	}
	n.must(r.StayAway(t.Context(), id)) // and keeps nobody away any more
	n.grant(r, n.asker(0), askOn("1", gib))
}

// A suspended tenant can be changed; that there is room is seen when it comes back.
func TestSetOfASuspendedShare(t *testing.T) {
	n := newNode(t)
	r := n.swapping(24 * gib)
	id := n.grant(r, n.asker(0), suspending("1", 16*gib)).Tenant.ID
	n.must(r.ReserveHost(t.Context(), id))
	n.must(r.LeaveGPUs(t.Context(), id))
	n.grant(r, n.asker(0), askOn("1", 20*gib))
	for memory, want := range map[string]string{"20Gi": "", "25Gi": "memory 25Gi is more than GPU 1 has for tenants", "4Gi": ""} {
		amount, err := v1alpha1.ParseMemory(memory)
		n.must(err)
		_, err = r.set(t.Context(), root, control.SetParams{Tenant: id, Memory: &amount})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", memory, err, want)
		}
	}
}

// One that waits to come back is in nobody's way but others': it can have more memory and more cores, and waits for that then.
func TestSetOfOneThatWaitsForItsRoom(t *testing.T) {
	n := newNode(t)
	r := n.swapping(64 * gib)
	id := n.grant(r, n.asker(0), suspending("1", 10*gib)).Tenant.ID
	n.must(r.ReserveHost(t.Context(), id))
	n.must(r.LeaveGPUs(t.Context(), id))
	other := n.grant(r, n.asker(0), askOn("1", 16*gib)).Tenant.ID
	for _, memory := range []uint64{10 * gib, 12 * gib} {
		if err := r.EnterGPUs(t.Context(), id); !alloc.Waits(err) || !strings.Contains(err.Error(), fmt.Sprintf("the share needs %dGi", memory/gib)) {
			t.Fatal(err)
		}
		_, err := r.set(t.Context(), root, control.SetParams{Tenant: id, Memory: new(v1alpha1.Bytes(12 * gib)), Cores: new(30)})
		n.must(err)
	}
	if _, err := r.set(t.Context(), root, control.SetParams{Tenant: other, Memory: new(v1alpha1.Bytes(17 * gib))}); err == nil || !strings.Contains(err.Error(), "came before") {
		t.Errorf("its neighbour's: %v", err)
	}
}

// A share that was granted beyond what its GPU has comes back when it no longer is: its neighbours could take the free memory
// within their limits while it is restored, and a process that finds no room is lost.
func TestOvercommittedComesBack(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 200*gib))
	one := n.use(r, s, "one", 50*gib, 10*gib, 0)
	two := n.useBeyond(r, s)
	n.must(two.suspend(r, true))
	done := make(chan error, 1)
	go func() { done <- two.resume(r) }()
	eventually(t, "it waits, or is back", func() bool {
		is := two.is(n, r)
		return is == control.SuspensionWaiting || is == ""
	})
	if is := two.is(n, r); is != control.SuspensionWaiting || !s.in(suspension.Saved, two.pid()) {
		t.Errorf("beside a neighbour whose limit leaves it no room it is %q", is)
	}
	one.end(r, s)
	n.must(<-done)
	if !s.in(suspension.Running, two.pid()) {
		t.Error("it does not run")
	}
}

// So it does when it is turned round at its last step.
func TestOvercommittedIsTurnedRound(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	c := n.suspends(s, 200*gib)
	var r *running
	var two user
	var once sync.Once
	c.Step = func(name string) {
		if name == "suspended-save" {
			once.Do(func() { r.comeBack(t.Context(), two.of(r), becauseCalled) })
		}
	}
	r = n.startAs(c)
	one := n.use(r, s, "one", 50*gib, 10*gib, 0)
	two = n.useBeyond(r, s)
	if err := two.suspend(r, false); control.CodeOf(err) != control.CodeRefused {
		t.Errorf("turned round: %v", err)
	}
	eventually(t, "it waits, or is back", func() bool {
		is := two.is(n, r)
		return is == control.SuspensionWaiting || is == ""
	})
	if is := two.is(n, r); is != control.SuspensionWaiting || !s.in(suspension.Saved, two.pid()) {
		t.Errorf("beside a neighbour whose limit leaves it no room it is %q", is)
	}
	one.end(r, s)
	eventually(t, "it is back", func() bool { return two.is(n, r) == "" && s.in(suspension.Running, two.pid()) })
}

// useBeyond is a share that is granted beyond what the first GPU has.
func (n *node) useBeyond(r *running, s *saver) user {
	n.t.Helper()
	a, p := n.asker(0), ask(60*gib)
	p.Request.Name, p.Request.Overcommit, p.Request.Among = "two", true, []string{firstID}
	created := n.grant(r, a, p)
	u := user{asker: a, created: created, slot: n.enter(created.Tenant.Dir, 0, a.cmd.Process.Pid, 20*gib)}
	s.has(u.pid(), 20*gib)
	return u
}
