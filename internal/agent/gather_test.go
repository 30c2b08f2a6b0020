package agent

import (
	"os"
	"slices"
	"testing"
	"time"
)

// Who waits keeps their place when the agent has lost its checkpoint, in whatever order they
// come back, and nobody gets ahead of them, whatever they say.
func TestPlacesOutliveTheCheckpoint(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := n.start()
			full, all, before := n.crowd(r, 3, 70*gib)
			n.spoil(damage)
			gathered := make(chan struct{})
			c := n.settings(n.backend)
			c.Gathered = gathered
			r = n.startAs(c)

			ahead := n.asks(r, n.asker(os.Getuid()), askOn(otherID, gib)) // it would fit
			liar := &waiter{asker: n.asker(os.Getuid()), params: askOn(firstID, 70*gib)}
			eventually(t, "a process starts after the others wait", func() bool {
				if liar.asker.peer.Process.Started().After(before[2]) {
					return true
				}
				liar.asker = n.asker(os.Getuid())
				return false
			})
			liar.params.Since, liar.params.Ticket = time.Unix(1, 0), "a secret of the liar's own"
			late := &waiter{asker: n.asker(os.Getuid()), params: liar.params}
			late.params.Since, late.params.Ticket = time.Now().Add(time.Hour), "a secret of the late one's"
			for i, w := range []*waiter{all[2], liar, all[0], late, all[1]} {
				again := n.again(r, w)
				if at := slices.Index(all, w); at >= 0 {
					all[at] = again
				} else if w == liar {
					liar = again
				} else {
					late = again
				}
				eventually(t, "it is in the queue", func() bool { return len(n.queued(r)) == i+1 })
			}
			after := n.queued(r)
			if !slices.EqualFunc(after[:3], before, time.Time.Equal) || after[3].Before(before[2]) || after[4].After(time.Now()) {
				t.Errorf("waiting since %v, before %v", after, before)
			}
			if l := n.list(r); len(l.Tenants) != 1 || l.Waiting[0].Reason != reasonGathering {
				t.Errorf("somebody is served before all are back: %+v, %+v", l.Tenants, l.Waiting)
			}
			close(gathered)
			if err := <-ahead.done; err != nil {
				t.Errorf("on another GPU: %v", err)
			}
			full.leave()
			for i, w := range append(all, liar) {
				if err := <-w.done; err != nil {
					t.Fatalf("place %d: %v", i+1, err)
				}
				w.asker.leave()
			}
			if err := <-late.done; err != nil {
				t.Error(err)
			}
		})
	}
}

// An agent that finds its checkpoint, or that never had one, serves at once, and goes by
// nobody's word.
func TestNobodyIsGatheredInVain(t *testing.T) {
	n := newNode(t)
	never := make(chan struct{})
	c := n.settings(n.backend)
	c.Gathered = never
	r := n.startAs(c)
	n.grant(r, n.asker(os.Getuid()), askOn(firstID, gib))
	r.stopAgent()
	r = n.startAs(c)
	n.grant(r, n.asker(os.Getuid()), askOn(firstID, gib))
	w := n.asker(os.Getuid())
	p := askOn(firstID, 80*gib)
	p.Since = time.Unix(1, 0)
	waiting := n.wait(r, w, p)
	if waiting.first.Since.Before(w.peer.Process.Started()) {
		t.Errorf("it waits since %v", waiting.first.Since)
	}
}
