package agent

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// waiter is a request that waits, with what it is told.
type waiter struct {
	asker  *asker
	params control.CreateParams
	told   chan control.Queued
	first  control.Queued
	done   chan error
	cancel context.CancelFunc
	got    *control.Created
}

// leave ends the asker and its connection.
func (a *asker) leave() {
	a.kill()
	a.hangUp()
}

// wait asks for a share and waits for it; it returns when the request is in the queue.
func (n *node) wait(r *running, a *asker, p control.CreateParams) *waiter {
	n.t.Helper()
	w := n.asks(r, a, p)
	select {
	case w.first = <-w.told:
		w.params.Ticket, w.params.Since = w.first.Ticket, w.first.Since
	case err := <-w.done:
		n.t.Fatalf("%+v does not wait: %v", p.Request, err)
	}
	return w
}

func (n *node) asks(r *running, a *asker, p control.CreateParams) *waiter {
	n.t.Helper()
	p.Wait = true
	ctx, cancel := context.WithCancel(n.t.Context())
	w := &waiter{asker: a, params: p, told: make(chan control.Queued, 100), done: make(chan error, 1), cancel: cancel}
	ended := make(chan struct{})
	n.t.Cleanup(func() { // who waits no more saves that
		cancel()
		<-ended
	})
	ctx = control.Telling(ctx, func(progress any) { w.told <- progress.(control.Queued) })
	go func() {
		defer close(ended)
		var err error
		w.got, err = r.create(ctx, a.peer, p)
		w.done <- err
	}()
	return w
}

// again is the request of the same asker to the next agent.
func (n *node) again(r *running, w *waiter) *waiter {
	n.t.Helper()
	return n.asks(r, w.asker, w.params)
}

// crowd has somebody have all of a GPU and others wait for so much of it, and stops the agent under them. Since is when
// they began to wait.
func (n *node) crowd(r *running, waiters int, memory uint64) (full *asker, all []*waiter, since []time.Time) {
	n.t.Helper()
	full = n.asker(os.Getuid())
	n.grant(r, full, askOn(firstID, 80*gib))
	for range waiters {
		all = append(all, n.wait(r, n.asker(os.Getuid()), askOn(firstID, memory)))
	}
	since = n.queued(r)
	r.stopAgent()
	for _, w := range all {
		w.cancel()
		<-w.done
	}
	return full, all, since
}

func (n *node) queued(r *running) (since []time.Time) {
	n.t.Helper()
	for _, w := range n.list(r).Waiting {
		since = append(since, w.Since)
	}
	return since
}

// Who waits keeps the place when the agent starts again, in whatever order they come
// back; a place that nobody comes back to is dropped, and a forged ticket gets nothing.
func TestPlacesOutliveTheAgent(t *testing.T) {
	n := newNode(t)
	r := n.start()
	full, all, before := n.crowd(r, 4, 40*gib)
	r = n.start()
	if after := n.queued(r); !slices.EqualFunc(before, after, time.Time.Equal) {
		t.Fatalf("waiting since %v, before %v", after, before)
	}
	forged := askOn(firstID, gib)
	forged.Ticket = all[0].params.Ticket + "x"
	stranger := n.wait(r, n.asker(os.Getuid()), forged)
	stolen := askOn(firstID, gib)
	stolen.Ticket = all[0].params.Ticket
	thief := n.wait(r, n.asker(4321), stolen)
	third, second, first := n.again(r, all[2]), n.again(r, all[1]), n.again(r, all[0])
	for place, w := range map[int]*waiter{1: first, 2: second, 3: third} {
		if told := <-w.told; told.Place != place || told.Ticket != w.params.Ticket {
			t.Errorf("told %+v, want place %d", told, place)
		}
	}
	twice := n.wait(r, n.asker(os.Getuid()), all[1].params)
	for _, w := range []*waiter{stranger, thief, twice} {
		if slices.ContainsFunc(all, func(o *waiter) bool { return o.params.Ticket == w.params.Ticket }) {
			t.Errorf("a ticket was given twice: %s", w.params.Ticket)
		}
	}
	full.leave()
	for _, w := range []*waiter{first, second} {
		if err := <-w.done; err != nil || w.got.Tenant.Shares[0].Limit != 40*gib {
			t.Errorf("%v", err)
		}
	}
	second.asker.leave()
	if err := <-third.done; err != nil {
		t.Error(err)
	}
	r.config.Now = func() time.Time { return time.Now().Add(time.Hour) }
	first.asker.leave()
	r.dropUnclaimed(t.Context())
	for _, w := range []*waiter{stranger, thief} {
		if err := <-w.done; err != nil {
			t.Errorf("the place of who did not come back is kept: %v", err)
		}
	}
	twice.cancel()
	if err := <-twice.done; err == nil {
		t.Error("granted though it was given up")
	}
}

// An agent that dies after it granted a waiting request, and before it said so, has
// granted nothing: who asked comes first, and what was made for them ends.
func TestLostGrantIsAskedForAgain(t *testing.T) {
	n := newNode(t)
	r := n.start()
	full := n.asker(os.Getuid())
	n.grant(r, full, askOn(firstID, 80*gib))
	w := n.wait(r, n.asker(os.Getuid()), askOn(firstID, 70*gib))
	full.leave()
	if err := <-w.done; err != nil {
		t.Fatal(err)
	}
	r.stopAgent() // as if the answer was never read
	r = n.start()
	again := n.again(r, w)
	if err := <-again.done; err != nil {
		t.Fatal(err)
	}
	if l := n.list(r); len(l.Tenants) != 1 || l.GPUs[0].Granted != 70*gib || len(l.Waiting) > 0 {
		t.Errorf("%+v", l)
	}
}

// An agent that dies at any step of creating a share, and whose asker asks the next one
// with the same ticket, leaves nothing that keeps room: there is one share in the end.
func TestCrashWhileCreating(t *testing.T) {
	for _, step := range []string{"create-admitted", "create-saved", "create-made", "create-held"} {
		t.Run(step, func(t *testing.T) {
			n := newNode(t)
			asker := n.asker(os.Getuid())
			p := askOn(firstID, 50*gib)
			p.Ticket = "a secret of the asker's"
			if !n.crashing(step, func(r *running) { _, _ = r.create(t.Context(), asker.peer, p) }) {
				t.Fatal("there is no such step")
			}
			if _, err := os.Lstat("record"); err == nil {
				t.Error("a record was written where no tenant is")
			}
			r := n.start()
			if tenants := n.list(r).Tenants; step == "create-admitted" && len(tenants) > 0 {
				t.Errorf("nothing was made, but there is %+v", tenants)
			}
			created := n.grant(r, asker, p)
			l := n.list(r)
			if len(l.Tenants) != 1 || l.Tenants[0].ID != created.Tenant.ID || l.GPUs[0].Granted != 50*gib || len(l.Waiting) > 0 {
				t.Errorf("%+v", l)
			}
			if dirs := n.directories(); len(dirs) != 1 {
				t.Errorf("directories %v", dirs)
			}
			// The ticket is used up: the same process may have another share.
			other := askOn(otherID, gib)
			other.Ticket = p.Ticket
			n.grant(r, asker, other)
			if tenants := n.list(r).Tenants; len(tenants) != 2 {
				t.Errorf("%+v", tenants)
			}
			asker.leave()
			eventually(t, "both have ended", func() bool { return len(n.list(r).Tenants) == 0 })
		})
	}
}

// Nobody ends another's share with a ticket, be it their own or guessed.
func TestTicketsAreTheirAskers(t *testing.T) {
	n := newNode(t)
	r := n.start()
	asker := n.asker(os.Getuid())
	p := askOn(firstID, gib)
	p.Ticket = "a secret of the asker's"
	n.grant(r, asker, p)
	r.stopAgent()
	r = n.start()
	n.grant(r, n.asker(os.Getuid()), p)
	n.grant(r, n.asker(4321), p)
	if tenants := n.list(r).Tenants; len(tenants) != 3 {
		t.Errorf("%+v", tenants)
	}
}
