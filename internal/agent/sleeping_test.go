package agent

import (
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// never is after how long the agent's own looks suspend nobody in a test.
const never = time.Duration(v1alpha1.MaxSuspendAfter)

// of is a user's tenant.
func (u user) of(r *running) *tenant {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tenants[u.created.Tenant.ID]
}

// Who resumes a share by hand finds it on its GPUs for as long as one that has just called: its programs told nothing while they
// were off.
func TestResumedStays(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	r := n.startAs(n.suspends(s, 100*gib))
	one := n.use(r, s, "one", 50*gib, 40*gib, never)
	it := one.of(r)
	r.mu.Lock()
	it.awake = 1
	of := r.tenantOf(&it.record)
	r.mu.Unlock()
	n.must(one.suspend(r, true))
	n.must(one.resume(r))
	r.tendIdle(t.Context(), it, of, time.Duration(monotonic()/2))
	if is := one.is(n, r); is != "" {
		t.Errorf("resumed a moment ago it is %q", is)
	}
}
