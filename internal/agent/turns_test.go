package agent

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
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

// line plays the queue of an agent step by step, in whatever order its waiters wake up,
// and knows by itself what is free and who waits for what.
type line struct {
	t       *testing.T
	agent   *Agent
	random  *rand.Rand
	shares  []*tenant
	waiters []*standing
}

// standing is one who waits.
type standing struct {
	ticket *ticket
	who    requester
	params control.CreateParams
	gpus   []string
}

func (l *line) ask() *standing {
	memory := uint64(1+l.random.IntN(12)) * gib
	if l.random.IntN(4) == 0 {
		memory = uint64(1+l.random.IntN(80)) * gib
	}
	among := [][]string{nil, {firstID}, {otherID}, {firstID, otherID}}[l.random.IntN(4)]
	p := control.CreateParams{Layer: control.LayerEnv, Wait: l.random.IntN(3) > 0, Request: v1alpha1.ShareRequest{
		Memory: v1alpha1.Bytes(memory), Among: among, Cores: l.random.IntN(3) * 30, GPUs: 1,
	}}
	if len(among) != 1 && l.random.IntN(3) == 0 {
		p.Request.GPUs = 2
	}
	p.Request.Default()
	s := &standing{params: p, who: l.agent.requester(0, !p.Wait)}
	for _, uuid := range []string{firstID, otherID} {
		if (among == nil || slices.Contains(among, uuid)) && memory <= l.capacity(uuid) {
			s.gpus = append(s.gpus, uuid)
		}
	}
	s.who.request = alloc.Request{Count: p.Request.GPUs, Among: alloc.Names(strings.Join(among, "|")), Memory: p.Request.Memory, Cores: p.Request.Guaranteed(p.Request.Cores)}
	return s
}

func (l *line) capacity(uuid string) uint64 {
	return map[string]uint64{firstID: 80 * gib, otherID: 24 * gib}[uuid]
}

// free is whether a request fits on a GPU beside what is there.
func (l *line) free(s *standing, uuid string) bool {
	memory, cores := s.params.Request.Memory.Of(l.capacity(uuid)), s.who.request.Cores
	for _, t := range l.shares {
		for _, one := range t.Shares {
			if one.UUID == uuid {
				memory, cores = memory+one.Limit, cores+one.Guaranteed(one.Cores)
			}
		}
	}
	return memory <= l.capacity(uuid) && cores <= 100
}

// ahead are the GPUs for which somebody waits who came before.
func (l *line) ahead(s *standing) (gpus []string, place int) {
	place = 1
	for _, o := range l.waiters {
		if o == s {
			break
		}
		gpus = append(gpus, o.gpus...)
		if slices.ContainsFunc(o.gpus, func(uuid string) bool { return slices.Contains(s.gpus, uuid) }) {
			place++
		}
	}
	return gpus, place
}

// fits is whether a request could have room without overtaking.
func (l *line) fits(s *standing) bool {
	ahead, _ := l.ahead(s)
	room := 0
	for _, uuid := range s.gpus {
		if !slices.Contains(ahead, uuid) && l.free(s, uuid) {
			room++
		}
	}
	return room >= s.params.Request.GPUs
}

// wake lets one ask or look again, and judges what became of it.
func (l *line) wake(s *standing) (served bool) {
	l.t.Helper()
	l.agent.mu.Lock()
	defer l.agent.mu.Unlock()
	waited := s.ticket != nil
	fits := l.fits(s)
	ahead, place := l.ahead(s)
	t, mine, err := l.agent.try(context.Background(), root, s.who, s.params, s.ticket)
	if (err == nil && t != nil) != fits {
		l.t.Fatalf("%+v fits: %t; but %+v, %v", s.params.Request, fits, t, err)
	}
	s.ticket = mine
	switch {
	case t != nil:
		for _, one := range t.Shares {
			if slices.Contains(ahead, one.UUID) {
				l.t.Fatalf("%+v overtook on %s", s.params.Request, one.UUID)
			}
		}
		l.shares = append(l.shares, t)
		if waited {
			l.agent.queue = slices.DeleteFunc(l.agent.queue, func(o *ticket) bool { return o == mine })
			l.waiters = slices.DeleteFunc(l.waiters, func(o *standing) bool { return o == s })
		}
		return true
	case err == nil && !waited:
		l.waiters = append(l.waiters, s)
	case s.params.Wait && err != nil:
		l.t.Fatalf("%+v does not wait: %v", s.params.Request, err)
	}
	if err != nil {
		return false
	}
	if got, of := l.agent.standing(mine); got != place || of < got {
		l.t.Fatalf("place %d of %d, want %d", got, of, place)
	}
	return false
}

// settle wakes all until nobody is served any more.
func (l *line) settle() {
	l.t.Helper()
	for served := true; served; {
		served = false
		all := slices.Clone(l.waiters)
		l.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, s := range all {
			served = l.wake(s) || served
		}
	}
	for _, s := range l.waiters {
		if l.fits(s) {
			l.t.Fatalf("%+v fits and waits", s.params.Request)
		}
	}
}

// end ends a share.
func (l *line) end() {
	at := l.random.IntN(len(l.shares))
	l.agent.mu.Lock()
	defer l.agent.mu.Unlock()
	if err := l.agent.forget(l.shares[at]); err != nil {
		l.t.Fatal(err)
	}
	l.shares = slices.Delete(l.shares, at, at+1)
}

// In whatever order waiters wake up: nobody is overtaken on a GPU for which they wait,
// everybody is served who fits without overtaking, and everybody in the end.
func TestLawsOfTheLine(t *testing.T) {
	for seed := range uint64(16) {
		n := newNode(t)
		l := &line{t: t, agent: n.idle(), random: rand.New(rand.NewPCG(seed, 1))}
		for range 60 {
			switch pick := l.random.IntN(5); {
			case pick < 3:
				if s := l.ask(); len(s.gpus) >= s.params.Request.GPUs {
					l.wake(s)
				}
			case pick == 3 && len(l.shares) > 0:
				l.end()
			case len(l.waiters) > 0:
				l.wake(l.waiters[l.random.IntN(len(l.waiters))])
			}
			if l.random.IntN(3) == 0 {
				l.settle()
			}
		}
		for l.settle(); len(l.shares) > 0; l.settle() {
			l.end()
		}
		if len(l.waiters) > 0 || len(l.agent.queue) > 0 {
			t.Fatalf("seed %d: %d wait on an idle machine", seed, len(l.waiters))
		}
	}
}
