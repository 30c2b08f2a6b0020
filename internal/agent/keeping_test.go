package agent

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
)

// eight is a machine of eight GPUs with 22 GiB free each, of which Ada may have 24 GiB;
// holders have the rest, in their order.
func eight(t *testing.T) (n *node, r *running, holders []*asker) {
	t.Helper()
	n = newNode(t)
	n.backend.more = 6
	r = n.ruled("users: {ada: {memory: 24Gi}}")
	for i := range 8 {
		holders = append(holders, n.asker(bob))
		p := askOn(strconv.Itoa(i), 2*gib)
		if i == 0 {
			p.Request.Memory = v1alpha1.Bytes(58 * gib)
		}
		p.Request.Name = "on-" + strconv.Itoa(i)
		n.grant(r, holders[i], p)
	}
	return n, r, holders
}

// Who waits for any GPU closes one to others, and not all, however often they ask beyond
// what they may have; and is served where they wait, or where there is room before.
func TestWaitersKeepWhatTheyAskFor(t *testing.T) {
	n, r, holders := eight(t)
	first := n.wait(r, n.asker(ada), ask(23*gib))
	for range 3 {
		n.wait(r, n.asker(ada), ask(23*gib))
	}
	waiting := n.list(r).Waiting
	if len(waiting[0].Keeps) != 1 || len(waiting[1].Keeps)+len(waiting[2].Keeps)+len(waiting[3].Keeps) != 0 {
		t.Fatalf("%+v", waiting)
	}
	keeps := waiting[0].Keeps[0]
	more := v1alpha1.Bytes(3 * gib)
	for i := range 8 {
		text, _ := n.refusal(r, bob, askOn(strconv.Itoa(i), gib))
		if kept := i == keeps; kept != strings.Contains(text, "waited longer for GPU "+strconv.Itoa(i)) || !kept && text != "" {
			t.Errorf("GPU %d: %q, and GPU %d is kept", i, text, keeps)
		}
		if i == 0 {
			continue
		}
		_, err := r.set(t.Context(), holders[i].peer, control.SetParams{Tenant: "on-" + strconv.Itoa(i), Memory: &more})
		if (err != nil) != (i == keeps) {
			t.Errorf("more of GPU %d: %v, and GPU %d is kept", i, err, keeps)
		}
	}
	if got := n.grant(r, n.asker(bob), ask(10*gib)).Tenant.Shares[0].Index; got == keeps {
		t.Errorf("a request for any GPU got GPU %d", got)
	}
	holders[keeps].leave()
	if err := <-first.done; err != nil || first.got.Tenant.Shares[0].Index != keeps {
		t.Errorf("%+v, %v", first.got, err)
	}
}

// A waiter is served where room comes first, before those behind it.
func TestWaitersGoWhereRoomIs(t *testing.T) {
	n, r, holders := eight(t)
	first := n.wait(r, n.asker(bob), ask(23*gib))
	behind := n.wait(r, n.asker(eve), ask(23*gib))
	waiting := n.list(r).Waiting
	if len(waiting[1].Keeps) != 1 || waiting[0].Keeps[0] == waiting[1].Keeps[0] {
		t.Fatalf("%+v", waiting)
	}
	if told := behind.first; told.Place != 2 || told.Of != 2 {
		t.Errorf("told %+v", told)
	}
	holders[waiting[1].Keeps[0]].leave() // which is the second's
	if err := <-first.done; err != nil || first.got.Tenant.Shares[0].Index != waiting[1].Keeps[0] {
		t.Errorf("%+v, %v", first.got, err)
	}
	again := n.list(r).Waiting
	if len(again) != 1 || len(again[0].Keeps) != 1 || again[0].Keeps[0] == waiting[1].Keeps[0] {
		t.Errorf("%+v", again)
	}
}

// A waiter stays with what it keeps until that can serve it no more, also if another GPU
// has more room meanwhile.
func TestWaitersStayWithTheirChoice(t *testing.T) {
	n, r, _ := eight(t)
	n.wait(r, n.asker(bob), ask(23*gib))
	keeps := func() []int { return n.list(r).Waiting[0].Keeps }
	first := keeps()
	less := v1alpha1.Bytes(3 * gib / 2)
	other := (first[0] + 1) % 8
	if other == 0 {
		other = 1
	}
	if _, err := r.set(t.Context(), control.NewPeer(process.ID{}, bob, nil, nil), control.SetParams{Tenant: "on-" + strconv.Itoa(other), Memory: &less}); err != nil {
		t.Fatal(err)
	}
	if now := keeps(); !slices.Equal(now, first) {
		t.Errorf("GPUs %v are kept, %v before another had more room", now, first)
	}
	r.NoteFaults(map[string]string{r.gpus[first[0]].UUID: "it fell off the bus"})
	moved := keeps()
	if len(moved) != 1 || moved[0] != other {
		t.Errorf("GPUs %v are kept while GPU %d is lost, want GPU %d", moved, first[0], other)
	}
	r.NoteFaults(nil)
	if now := keeps(); !slices.Equal(now, moved) {
		t.Errorf("GPUs %v are kept, %v before the first was healthy again", now, moved)
	}
}

// What all of a user's waiters keep, with what the user has, is not more GPUs than the user
// may have; and of several GPUs for one request, only so many are new to the user.
func TestWaitersKeepWithinTheirLimit(t *testing.T) {
	several := ask(23 * gib)
	several.Request.GPUs = 2
	var each []control.CreateParams
	for i := range 8 {
		each = append(each, askOn(strconv.Itoa(i), 23*gib))
	}
	for name, c := range map[string]struct {
		more int
		asks []control.CreateParams
	}{
		"eight waiters for one each": {6, each},
		"one for two":                {2, []control.CreateParams{several}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.backend.more = c.more
			r := n.ruled("users: {ada: {gpus: 2}}")
			for i := range 2 + c.more {
				n.grant(r, n.asker(bob), askOn(strconv.Itoa(i), []uint64{58 * gib, 2 * gib}[min(i, 1)]))
			}
			n.grant(r, n.asker(ada), askOn("3", gib))
			for _, p := range c.asks {
				n.wait(r, n.asker(ada), p)
			}
			var kept []int
			for _, w := range n.list(r).Waiting {
				kept = append(kept, w.Keeps...)
			}
			if !slices.Equal(kept, []int{0, 3}) {
				t.Errorf("GPUs %v are kept of one who may have 2 and has GPU 3", kept)
			}
		})
	}
}
