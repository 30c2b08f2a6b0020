package agent

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
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
	r.mu.Lock()
	dozes := it.dozes
	r.mu.Unlock()
	if is := one.is(n, r); is != "" || dozes {
		t.Errorf("resumed a moment ago it is %q, or will be: %v", is, dozes)
	}
}

// opening is a driver that takes long to open once it is told to.
type opening struct {
	*saver
	slow         atomic.Bool
	begins, goOn chan struct{}
}

func (o *opening) Version(ctx context.Context) (int, error) {
	if o.slow.CompareAndSwap(true, false) {
		close(o.begins)
		<-o.goOn
	}
	return o.saver.Version(ctx)
}

// The gate of a suspended share stays closed while a driver takes long over another that is to be suspended: the gate is valid
// for a second.
func TestGateIsKeptMeanwhile(t *testing.T) {
	n := newNode(t)
	s := newSaver(n)
	o := &opening{saver: s, begins: make(chan struct{}), goOn: make(chan struct{})}
	opens := sync.OnceFunc(func() { close(o.goOn) })
	c := n.suspends(s, 100*gib)
	c.Checkpointer = o
	r := n.startAs(c)
	t.Cleanup(opens) // before the agent is to end
	one, two := n.use(r, s, "one", 30*gib, 20*gib, 0), n.use(r, s, "two", 30*gib, 20*gib, never)
	n.must(one.suspend(r, true))
	it := two.of(r)
	r.lookAt(t.Context(), it)
	o.slow.Store(true)
	r.mu.Lock()
	it.awake, it.Shares[0].SuspendAfter = 1, v1alpha1.MinSuspendAfter
	r.mu.Unlock()
	eventually(t, "the driver is asked", func() bool {
		select {
		case <-o.begins:
			return true
		default:
			return false
		}
	})
	valid := func() uint64 {
		told, err := page.ReadConfig(tenantdir.Dir(one.created.Tenant.Dir).Config())
		n.must(err)
		return told.Device[0].Turn.Valid
	}
	before := valid()
	eventually(t, "the gate is valid for longer", func() bool { return valid() > before })
	opens()
	eventually(t, "the other is suspended", func() bool { return two.is(n, r) == control.SuspensionOut })
}
