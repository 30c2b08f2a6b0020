package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// Nobody gave notice of deaths while no agent ran: the next agent looks at every
// tenant before anything else, however many there are.
func TestDeathsWithoutAnAgentAreReaped(t *testing.T) {
	n := newNode(t)
	a := n.idle()
	const count = 3 * few
	for i := range count {
		dir := n.prepared(&running{Agent: a}, claimed(fmt.Sprint(i), gib, 0))
		n.enter(dir, 0, 1000000+i, gib).die()
	}
	next := n.idle()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	next.Run(ctx)
	eventually(t, "all are reaped", func() bool { return n.reaps.Load() >= count }) // one that takes long is not waited for
	if got := n.reaps.Load(); got != count {
		t.Errorf("%d of %d were reaped", got, count)
	}
}

// What could not be reaped when notice was given is tried again in every round, also
// of many tenants: the driver may take seconds to close its files.
func TestUnreapedDeathsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		a := n.idle()
		var dirs []string
		for i := range 3 * few {
			dirs = append(dirs, n.prepared(&running{Agent: a}, claimed(fmt.Sprint(i), gib, 0)))
		}
		n.closing.Store(true)
		for _, dir := range dirs {
			n.enter(dir, 0, 4711, gib).die()
		}
		a.sweep(t.Context())
		n.closing.Store(false)
		n.reaps.Store(0)
		a.patrol(t.Context())
		a.running.Wait()
		if got := int(n.reaps.Load()); got != len(dirs) {
			t.Errorf("%d of %d were tried again in the next round", got, len(dirs))
		}
	})
}

// A lock that the kernel releases long after its notice is seen to be free, and a new
// notice is followed up at once although an old one is not done with.
func TestLateDeathIsReaped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		a := n.idle()
		dir := n.prepared(&running{Agent: a}, claimed("a", gib, 0))
		process := n.enter(dir, 0, 4711, gib)
		a.lookSoon(t.Context(), tenancyID("a"))
		time.Sleep(400 * time.Millisecond) // of the bubble's clock
		process.die()
		before := time.Now()
		a.lookSoon(t.Context(), tenancyID("a"))
		synctest.Wait()
		if got := n.reaps.Load(); got != 1 {
			t.Errorf("reaped %d times at once after the second notice", got)
		}
		a.running.Wait()
		process = n.enter(dir, 0, 4711, gib)
		a.lookSoon(t.Context(), tenancyID("a"))
		time.Sleep(400 * time.Millisecond)
		process.die() // without another notice
		a.running.Wait()
		if got := n.reaps.Load(); got != 2 {
			t.Errorf("reaped %d times, the last %s after its notice", got, time.Since(before))
		}
	})
}

// stuck is a backend that cannot remove tenants for a while.
type stuck struct {
	*pages
	fault error
}

func (b *stuck) Undo(ctx context.Context, t backend.Tenant) error {
	if b.fault != nil {
		return b.fault
	}
	return b.pages.Undo(ctx, t)
}

// A tenancy that could not be released is still watched.
func TestFailedReleaseKeepsTheNotices(t *testing.T) {
	n := newNode(t)
	b := &stuck{pages: n.backend}
	a := n.idleWith(b)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		a.Run(ctx)
		close(ended)
	}()
	defer func() { cancel(); <-ended }()
	dir := n.prepared(&running{Agent: a}, claimed("a", gib, 0))
	b.fault = errors.New("busy")
	if err := a.Release(t.Context(), "a"); !errors.Is(err, b.fault) {
		t.Fatal(err)
	}
	n.enter(dir, 0, os.Getpid(), gib).die()
	eventually(t, "the dead is reaped", func() bool { return n.reaps.Load() > 0 })
	b.fault = nil
	if err := a.Release(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(string(tenantdir.Dir(dir))); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
