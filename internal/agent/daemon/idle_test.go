package daemon

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// tenants is a ledger whose number of tenants the test sets.
type tenants struct {
	mu      sync.Mutex
	n       int
	changed chan struct{}
}

func (l *tenants) InUse() (int, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n, l.changed
}

func (l *tenants) set(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n = n
	close(l.changed)
	l.changed = make(chan struct{})
}

// An agent ends when nobody was connected and nobody had a share for a while, and
// not before. The clock is the test's own.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, i := &tenants{changed: make(chan struct{})}, newIdle()
		var ended atomic.Bool
		go func() {
			i.wait(t.Context(), ledger)
			ended.Store(true)
		}()
		after := func(step string, wait time.Duration, want bool) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if ended.Load() != want {
				t.Errorf("%s: ended is %t", step, !want)
			}
		}
		after("before anybody connects", firstLinger-time.Millisecond, false)
		i.connections(1)
		after("with a connection", time.Hour, false)
		ledger.set(1)
		i.connections(0)
		after("with a share", time.Hour, false)
		ledger.set(0)
		after("just after the last share", linger-time.Millisecond, false)
		ledger.set(1)
		ledger.set(0)
		after("after one more share", linger-time.Millisecond, false)
		after("idle", time.Millisecond, true)
	})
}

// An agent that is told to end waits for no share.
func TestIdleEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	i := newIdle()
	i.connections(1)
	i.wait(ctx, &tenants{changed: make(chan struct{})})
}
