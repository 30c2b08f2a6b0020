package agent

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

// gated is a driver that counts how often it is asked for processes, and lets the test
// hold an answer back.
type gated struct {
	*lister
	asked atomic.Int32
	gate  chan struct{}
}

func (g *gated) Holdings(gpus []int) []nvml.Holding {
	g.asked.Add(1)
	<-g.gate
	return g.lister.Holdings(gpus)
}

// However many list at once, one look serves all who asked before it began, and nobody
// gets one that began before they asked. Who gave up is not waited for.
func TestListsAtOnceShareALook(t *testing.T) {
	n := newNode(t)
	driver := &gated{lister: n.driver, gate: make(chan struct{})}
	c := n.settings(n.backend)
	c.Driver = driver
	a, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var lists sync.WaitGroup
	list := func() {
		lists.Go(func() {
			if _, err := a.list(t.Context(), root, struct{}{}); err != nil {
				t.Error(err)
			}
		})
	}
	list()
	eventually(t, "the first look is under way", func() bool { return driver.asked.Load() == 1 })
	const many = 100
	for range many {
		list()
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.list(gone, root, struct{}{}); !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up: %v", err)
	}
	eventually(t, "all others wait", func() bool {
		a.listings.mu.Lock()
		defer a.listings.mu.Unlock()
		return a.listings.next != nil && a.listings.next.wanted == many+1 // with who gave up
	})
	close(driver.gate)
	lists.Wait()
	if asked := driver.asked.Load(); asked != 2 {
		t.Errorf("%d looks for %d lists", asked, many+1)
	}
}

// A listing that is shared shows each asker what that one may see.
func TestSharedListsHideCommands(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.grant(r, n.asker(os.Getuid()), askOn("1", gib))
	var lists sync.WaitGroup
	for i := range 40 {
		peer, words := root, 2
		if i%2 == 0 {
			peer, words = control.NewPeer(process.ID{}, bob, nil, nil), 1
		}
		lists.Go(func() {
			l, err := r.list(t.Context(), peer, struct{}{})
			if err != nil || len(l.Tenants) != 1 || len(l.Tenants[0].Command) != words {
				t.Errorf("%+v, %v: want %d words", l, err, words)
			}
		})
	}
	lists.Wait()
}

// Who scrapes causes no look while the agent looks by itself, and gets a fresh one where it does not.
func TestRecentCausesNoLook(t *testing.T) {
	n := newNode(t)
	driver := &gated{lister: n.driver, gate: make(chan struct{})}
	close(driver.gate)
	c := n.settings(n.backend)
	c.Driver, c.Interval = driver, time.Minute
	a, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		l, err := a.Recent(t.Context())
		if err != nil || len(l.GPUs) != len(a.gpus) {
			t.Fatalf("%+v, %v", l, err)
		}
	}
	if asked := driver.asked.Load(); asked != 1 {
		t.Errorf("%d looks for ten scrapes", asked)
	}
	later := c.Now
	a.config.Now = func() time.Time { return later().Add(3 * c.Interval) }
	if _, err := a.Recent(t.Context()); err != nil || driver.asked.Load() != 2 {
		t.Errorf("after a long time without a look: %v, %d looks", err, driver.asked.Load())
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Recent(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up: %v", err)
	}
}
