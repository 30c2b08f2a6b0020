package agent

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// An instance that was made for a user counts whole, one that they join counts with their part, and the SMs of a whole
// instance count as cores.
func TestInstancesCountAgainstLimits(t *testing.T) {
	q := newQuarry(t)
	r := q.run("users: {ada: {memory: 50Gi, cores: 60}}")
	part := within("7g.80gb", v1alpha1.BackendSlice, gib)
	text, code := q.refusal(r, ada, part)
	if want := "the request needs 80Gi more, and the administrator lets you have at most 50Gi in all (a MIG instance 7g.80gb is made for it and counts whole): ask for a part of a 4g.40gb at most or add --wait to queue for a part of somebody else's 7g.80gb"; code != control.CodeRefused || !strings.Contains(text, want) {
		t.Errorf("a part of a whole GPU: %s, %s; want %q", code, text, want)
	}
	holder := q.asker(bob)
	q.grant(r, holder, part)
	joined := q.asker(ada)
	half := within("7g.80gb", v1alpha1.BackendSlice, 40*gib)
	half.Request.Cores = 50
	q.grant(r, joined, half)
	if had := r.had(ada); had.memory != 40*gib || had.cores != 50 {
		t.Errorf("who joined an instance has %+v", had)
	}
	joined.end()
	holder.end()
	q.becomes()
	three := q.asker(ada)
	q.grant(r, three, within("3g.40gb", v1alpha1.BackendSlice, gib))
	second := q.asker(ada)
	more := within("3g.40gb", v1alpha1.BackendSlice, 20*gib)
	more.Request.Cores = 30
	name := q.grant(r, second, more).Tenant.Name
	if had := r.had(ada); had.memory != 40*gib || had.cores != 42 {
		t.Errorf("for whom an instance of 3 in 7 slices was made has %+v", had)
	}
	cores, memory := 90, v1alpha1.Bytes(30*gib)
	if _, err := r.set(t.Context(), second.peer, control.SetParams{Tenant: name, Cores: &cores, Memory: &memory}); err != nil {
		t.Errorf("to grow in an instance that counts whole: %v", err)
	}
	if text, code := q.refusal(r, ada, instanceOf("2g.20gb")); code != control.CodeRefused || !strings.Contains(text, "you have 40Gi of memory") {
		t.Errorf("beyond the memory: %s, %s", code, text)
	}
	three.end()
	eventually(t, "one share is left", func() bool { return len(q.list(r).Tenants) == 1 })
	if had := r.had(ada); had.memory != 40*gib || had.cores != 42 {
		t.Errorf("after the share for which the instance was made, the user has %+v", had)
	}
	r.stopAgent()
	r = q.run("users: {ada: {memory: 50Gi, cores: 60}}")
	if had := r.had(ada); had.memory != 40*gib {
		t.Errorf("after a restart the user has %+v", had)
	}
	second.end()
	q.becomes()
	q.grant(r, q.asker(ada), instanceOf("3g.40gb"))
	if had := r.had(ada); had.memory != 40*gib || had.cores != 42 {
		t.Errorf("with a whole instance the user has %+v", had)
	}
	if text, code := q.refusal(r, ada, instanceOf("7g.80gb")); code != control.CodeInvalid || !strings.Contains(text, "at most 50Gi") {
		t.Errorf("a whole GPU: %s, %s", code, text)
	}
}

// Who waits for a part of an instance that would have to be made, and may not have all of it, keeps no GPU from others. One
// that joins another user's instance takes a part, and may wait for room there.
func TestWaitingBeyondALimitKeepsNoInstance(t *testing.T) {
	q := newQuarry(t)
	r := q.run("users: {ada: {memory: 50Gi}}")
	waits := q.wait(r, q.asker(ada), within("7g.80gb", v1alpha1.BackendSlice, gib))
	if kept := q.list(r).Waiting[0].Keeps; len(kept) != 0 {
		t.Errorf("kept for what exceeds the user's limit: GPUs %v", kept)
	}
	small := q.asker(bob)
	q.grant(r, small, instanceOf("1g.10gb"))
	small.end()
	q.becomes()
	q.grant(r, q.asker(bob), within("7g.80gb", v1alpha1.BackendSlice, 60*gib))
	if err := <-waits.done; err != nil {
		t.Fatal(err)
	}
	q.wait(r, q.asker(ada), within("7g.80gb", v1alpha1.BackendSlice, 30*gib))
	if kept := q.list(r).Waiting[0].Keeps; len(kept) != 1 || kept[0] != 0 {
		t.Errorf("kept for a part of another user's instance: GPUs %v", kept)
	}
}

// had is what a user has of their limits.
func (r *running) had(uid int) held {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heldBy(uid, nil)
}

// Parts of an instance divide what the driver leaves of it, also those that were granted before it was made and that is known.
func TestPartsDivideWhatTheDriverLeaves(t *testing.T) {
	const kept = 12 << 20
	q := newQuarry(t)
	q.mig.Reserve(kept)
	r := q.run("")
	var total uint64
	for range 2 {
		half := within("7g.80gb", v1alpha1.BackendSlice, 0)
		half.Request.Memory = v1alpha1.Percent(50)
		total += q.grant(r, q.asker(ada), half).Tenant.Shares[0].Limit
	}
	if want := uint64(80*gib - kept); total > want || total < want-(2<<20) {
		t.Errorf("two halves have %d bytes, and the instance has %d", total, want)
	}
}
