package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// A request that waits for one GPU holds nobody up who can have another.
func TestWaitersForOtherGPUsGoOn(t *testing.T) {
	n := newNode(t)
	r := n.start()
	full := n.asker(os.Getuid())
	n.grant(r, full, askOn("0", 80*gib))
	first := n.wait(r, n.asker(os.Getuid()), askOn("0", 80*gib))
	other := n.asks(r, n.asker(os.Getuid()), askOn("1", 4*gib))
	anywhere := n.asks(r, n.asker(os.Getuid()), ask(4*gib))
	for what, w := range map[string]*waiter{"for the other GPU": other, "for any GPU": anywhere} {
		if err := <-w.done; err != nil || w.got.Tenant.Shares[0].UUID != otherID {
			t.Errorf("%s: %+v, %v", what, w.got, err)
		}
	}
	behind := n.wait(r, n.asker(os.Getuid()), askOn("0", gib))
	beside := n.wait(r, n.asker(os.Getuid()), askOn("1", 20*gib))
	for what, c := range map[string]struct {
		w         *waiter
		place, of int
	}{"behind": {behind, 2, 2}, "beside": {beside, 1, 1}} {
		if told := c.w.first; told.Place != c.place || told.Of != c.of {
			t.Errorf("%s is told %+v", what, told)
		}
	}
	full.leave()
	if err := <-first.done; err != nil {
		t.Error(err)
	}
}

// Who does not wait takes no GPU for which others wait, and neither does who has a share
// there and wants more; other GPUs are theirs.
func TestNobodyOvertakesWhoWaits(t *testing.T) {
	n := newNode(t)
	r := n.start()
	owner := n.asker(os.Getuid())
	held := n.grant(r, owner, askOn("0", 10*gib))
	first := n.wait(r, n.asker(os.Getuid()), askOn("0", 80*gib))
	over := askOn("0", gib)
	over.Request.Overcommit = true
	for what, p := range map[string]control.CreateParams{"less": askOn("0", gib), "overcommitted": over} {
		text, code := n.refusal(r, os.Getuid(), p)
		if code != control.CodeRefused || !strings.Contains(text, "waited longer for GPU 0") || !strings.Contains(text, "add --wait") || strings.Contains(text, "overcommit") {
			t.Errorf("%s: %q (%s)", what, text, code)
		}
	}
	if got := n.grant(r, n.asker(os.Getuid()), ask(gib)).Tenant.Shares[0].UUID; got != otherID {
		t.Errorf("a request for any GPU got %s", got)
	}
	more, less, cores := v1alpha1.Bytes(11*gib), v1alpha1.Bytes(9*gib), 10
	for what, p := range map[string]control.SetParams{"memory": {Memory: &more}, "cores": {Cores: &cores}, "overcommitted": {Memory: &more, Overcommit: true}} {
		p.Tenant = held.Tenant.ID
		if _, err := r.set(t.Context(), owner.peer, p); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "wait for GPU 0") {
			t.Errorf("more %s: %v", what, err)
		}
	}
	if _, err := r.set(t.Context(), owner.peer, control.SetParams{Tenant: held.Tenant.ID, Memory: &less}); err != nil {
		t.Error(err)
	}
	first.cancel()
	<-first.done
	if _, err := r.set(t.Context(), owner.peer, control.SetParams{Tenant: held.Tenant.ID, Memory: &more}); err != nil {
		t.Error(err)
	}
}

// What would not fit on an idle machine is refused at once, whoever waits.
func TestWhatNeverFitsDoesNotWait(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.grant(r, n.asker(os.Getuid()), askOn("0", 80*gib))
	n.wait(r, n.asker(os.Getuid()), ask(80*gib))
	two := ask(30 * gib)
	two.Request.GPUs = 2
	for what, p := range map[string]control.CreateParams{"more than any GPU": ask(81 * gib), "more than this GPU": askOn("1", 25*gib), "on two": two} {
		p.Wait = true
		if text, code := n.refusal(r, os.Getuid(), p); code != control.CodeInvalid {
			t.Errorf("%s: %q (%s)", what, text, code)
		}
	}
}

// Whom only their own limits keep waiting holds nobody up, but where they may go.
func TestLimitedWaiters(t *testing.T) {
	n := newNode(t)
	r := n.ruled("users: {ada: {gpus: 1, memory: 30Gi}}")
	n.grant(r, n.asker(ada), askOn("1", 4*gib))
	full := n.asker(bob)
	n.grant(r, full, askOn("1", 20*gib))
	memory := n.wait(r, n.asker(ada), askOn("0", 27*gib))
	room := n.wait(r, n.asker(ada), ask(3*gib))
	n.grant(r, n.asker(bob), askOn("0", 4*gib)) // nobody may go there before
	behind := n.wait(r, n.asker(bob), askOn("1", gib))
	if told := behind.first; told.Place != 2 {
		t.Errorf("told %+v", told)
	}
	full.leave()
	for _, w := range []*waiter{room, behind} {
		if err := <-w.done; err != nil || w.got.Tenant.Shares[0].UUID != otherID {
			t.Errorf("%+v, %v", w.got, err)
		}
	}
	memory.cancel()
	<-memory.done
}

// A place is one in the line for the GPUs of its request, also after a restart: a request
// for others begins at the end.
func TestPlacesAreForTheirGPUs(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.grant(r, n.asker(os.Getuid()), askOn(firstID, 80*gib))
	n.grant(r, n.asker(os.Getuid()), askOn(otherID, 24*gib))
	first := n.wait(r, n.asker(os.Getuid()), askOn(firstID, 40*gib))
	second := n.wait(r, n.asker(os.Getuid()), askOn(otherID, 20*gib))
	r.stopAgent()
	for _, w := range []*waiter{first, second} {
		w.cancel()
		<-w.done
	}
	r = n.start()
	moved := first.params
	moved.Request.Among = []string{otherID}
	moved.Request.Memory = v1alpha1.Bytes(4 * gib)
	late := n.wait(r, first.asker, moved)
	if told := late.first; told.Place != 2 || told.Ticket == first.params.Ticket {
		t.Errorf("told %+v", told)
	}
	again := n.wait(r, second.asker, second.params)
	if told := again.first; told.Place != 1 || told.Ticket != second.params.Ticket {
		t.Errorf("told %+v", told)
	}
}
