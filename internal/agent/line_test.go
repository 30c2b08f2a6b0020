package agent

import (
	"context"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/process"
)

// line plays the queue of an agent step by step, in whatever order its waiters wake up,
// and knows by itself what is free and who may go where. Ada may have shares on one GPU;
// root has no limits.
type line struct {
	t       *testing.T
	agent   *Agent
	random  *rand.Rand
	shares  []*tenant
	waiters []*standing
	before  map[*standing]holding // at the last check
}

// standing is one who waits.
type standing struct {
	ticket *ticket
	who    requester
	params control.CreateParams
	gpus   gpuSet // that serve it on an idle machine
}

// holding is what a waiter keeps, and what was granted of every GPU then.
type holding struct {
	gpus    gpuSet
	granted []alloc.GPU
}

const adaMemory = 30 * gib

func (l *line) ask() *standing {
	memory := uint64(1+l.random.IntN(12)) * gib
	if l.random.IntN(4) == 0 {
		memory = uint64(1+l.random.IntN(80)) * gib
	}
	uid := 0
	if l.random.IntN(4) == 0 {
		uid, memory = ada, min(memory, adaMemory)
	}
	var among []string
	for _, gpu := range l.agent.gpus {
		if l.random.IntN(2) == 0 {
			among = append(among, gpu.UUID)
		}
	}
	if l.random.IntN(3) == 0 {
		among = nil
	}
	p := control.CreateParams{Layer: control.LayerEnv, Wait: l.random.IntN(3) > 0, Request: v1alpha1.ShareRequest{
		Memory: v1alpha1.Bytes(memory), Among: among, Cores: l.random.IntN(3) * 30, GPUs: 1,
	}}
	if len(among) != 1 && uid == 0 && l.random.IntN(3) == 0 {
		p.Request.GPUs = 2
	}
	p.Request.Default()
	s := &standing{params: p, who: l.agent.requester(uid, !p.Wait)}
	for i, gpu := range l.agent.gpus {
		if (among == nil || slices.Contains(among, gpu.UUID)) && memory <= gpu.Capacity() {
			s.gpus |= 1 << i
		}
	}
	s.who.request = alloc.Request{Count: p.Request.GPUs, Among: alloc.Names(strings.Join(among, "|")), Memory: p.Request.Memory, Cores: p.Request.Guaranteed(p.Request.Cores)}
	return s
}

// granted is what the shares have of each GPU, counted without the agent.
func (l *line) granted() []alloc.GPU {
	all := make([]alloc.GPU, len(l.agent.gpus))
	for i, gpu := range l.agent.gpus {
		all[i].Capacity = gpu.Capacity()
		for _, t := range l.shares {
			for _, one := range t.Shares {
				if one.UUID == gpu.UUID {
					all[i].Granted, all[i].Cores = all[i].Granted+one.Limit, all[i].Cores+one.Guaranteed(one.Cores)
				}
			}
		}
	}
	return all
}

// had is what Ada has.
func (l *line) had() (gpus gpuSet, memory uint64) {
	for _, t := range l.shares {
		for _, one := range t.Shares {
			if t.UID == ada {
				gpus, memory = gpus|l.agent.setOf([]string{one.UUID}), memory+one.Limit
			}
		}
	}
	return gpus, memory
}

// room are the GPUs on which a request fits beside what is there, within its user's limits.
func (l *line) room(s *standing) (set gpuSet) {
	gpus, memory := l.had()
	need := s.params.Request.Memory.Of(0)
	if s.who.uid == ada && memory+need > adaMemory {
		return 0
	}
	for i, gpu := range l.granted() {
		if s.gpus.has(1<<i) && gpu.Granted+need <= gpu.Capacity && gpu.Cores+s.who.request.Cores <= 100 {
			set |= 1 << i
		}
	}
	if s.who.uid == ada && gpus != 0 {
		set &= gpus
	}
	return set
}

// ahead are the GPUs that those keep who came before.
func (l *line) ahead(s *standing) (set gpuSet) {
	l.agent.arrange(context.Background())
	for _, o := range l.waiters {
		if o == s {
			break
		}
		set |= o.ticket.keeps
	}
	return set
}

// fits is whether a request could have room without overtaking.
func (l *line) fits(s *standing) bool {
	return bits.OnesCount64(uint64(l.room(s)&^l.ahead(s))) >= s.params.Request.GPUs
}

// next are those who come before one and have room now; of Ada's only the first, because
// her limits may keep the others from being served with it.
func (l *line) next(s *standing) (all []*standing) {
	adas := 0
	for _, o := range l.waiters {
		if o == s {
			break
		}
		if o.who.uid == ada {
			adas++
		}
		if l.fits(o) && (o.who.uid == 0 || adas == 1) {
			all = append(all, o)
		}
	}
	return all
}

// wake lets one ask or look again, and judges what became of it.
func (l *line) wake(s *standing) (served bool) {
	l.t.Helper()
	l.agent.mu.Lock()
	defer l.agent.mu.Unlock()
	waited := s.ticket != nil
	fits, ahead, next := l.fits(s), l.ahead(s), l.next(s)
	t, mine, err := l.agent.try(context.Background(), control.NewPeer(process.ID{}, s.who.uid, nil, nil), s.who, s.params, s.ticket)
	if (err == nil && t != nil) != fits {
		l.t.Fatalf("%+v fits: %t; but %+v, %v", s.params.Request, fits, t, err)
	}
	switch {
	case t != nil:
		for _, one := range t.Shares {
			if ahead&l.agent.setOf([]string{one.UUID}) != 0 {
				l.t.Fatalf("%+v overtook on %s", s.params.Request, one.UUID)
			}
		}
		l.shares = append(l.shares, t)
		if waited {
			l.waiters = slices.DeleteFunc(l.waiters, func(o *standing) bool { return o == s })
		}
		l.judgeTurns(s, next)
	case err == nil && !waited:
		s.ticket = mine
		l.waiters = append(l.waiters, s)
	case s.params.Wait && err != nil:
		l.t.Fatalf("%+v does not wait: %v", s.params.Request, err)
	}
	l.check()
	return t != nil
}

// judgeTurns finds whom a grant overtook: who could have been served before it and cannot
// be now. Nobody is protected from another request of the same user.
func (l *line) judgeTurns(s *standing, next []*standing) {
	l.t.Helper()
	for _, o := range next {
		if !l.fits(o) && (o.who.uid == 0 || o.who.uid != s.who.uid) {
			l.t.Fatalf("%+v took the room of %+v, who came before", s.params.Request, o.params.Request)
		}
	}
}

// check judges what the waiters keep. Agent.mu is held.
func (l *line) check() {
	l.t.Helper()
	l.agent.arrange(context.Background())
	before := l.before
	l.before = map[*standing]holding{}
	had, memory := l.had()
	for _, s := range l.waiters {
		keeps, ahead := s.ticket.keeps, l.ahead(s)
		count := bits.OnesCount64(uint64(keeps))
		if !s.gpus.has(keeps) || count > s.params.Request.GPUs || s.who.uid == 0 && count < s.params.Request.GPUs {
			l.t.Fatalf("%+v keeps %b of %b", s.params.Request, keeps, s.gpus)
		}
		if s.who.uid == 0 && keeps&ahead != 0 && s.gpus&^keeps&^ahead != 0 {
			l.t.Fatalf("%+v keeps %b, which others keep before it, and nobody keeps %b", s.params.Request, keeps, s.gpus&^keeps&^ahead)
		}
		if s.who.uid == ada && keeps != 0 {
			had, memory = had|keeps, memory+s.params.Request.Memory.Of(0)
			if bits.OnesCount64(uint64(had)) > 1 || memory > adaMemory {
				l.t.Fatalf("ada has and keeps %b, %d bytes", had, memory)
			}
		}
		now := holding{keeps, l.granted()}
		if was, ok := before[s]; ok && s.who.uid == 0 {
			l.judgeMove(s, was, now, ahead)
		}
		l.before[s] = now
	}
}

// judgeMove finds out whether a waiter gave up a GPU without need.
func (l *line) judgeMove(s *standing, was, now holding, ahead gpuSet) {
	l.t.Helper()
	better := l.room(s) & now.gpus &^ was.gpus &^ ahead
	for i := range now.granted {
		left := was.gpus.has(1<<i) && !now.gpus.has(1<<i)
		taken := now.granted[i].Granted > was.granted[i].Granted || now.granted[i].Cores > was.granted[i].Cores
		if left && better == 0 && !taken && !ahead.has(1<<i) {
			l.t.Fatalf("%+v kept %b and keeps %b", s.params.Request, was.gpus, now.gpus)
		}
	}
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
func (l *line) end(at int) {
	l.t.Helper()
	l.agent.mu.Lock()
	defer l.agent.mu.Unlock()
	if err := l.agent.forget(l.shares[at]); err != nil {
		l.t.Fatal(err)
	}
	l.shares = slices.Delete(l.shares, at, at+1)
	l.check()
}

// drain ends the shares on what the first waiter keeps, or those of its user while that
// is nothing, and no others: then it is served.
func (l *line) drain() {
	l.t.Helper()
	first := l.waiters[0]
	keeps := first.ticket.keeps
	for slices.Contains(l.waiters, first) {
		if first.who.uid == ada { // who may serve another request of hers meanwhile
			keeps = first.ticket.keeps
		}
		at := slices.IndexFunc(l.shares, func(t *tenant) bool {
			return keeps == 0 && t.UID == first.who.uid ||
				slices.ContainsFunc(t.Shares, func(one share) bool { return keeps&l.agent.setOf([]string{one.UUID}) != 0 })
		})
		if at < 0 {
			l.t.Fatalf("%+v keeps %b, where nothing is left, and is not served", first.params.Request, keeps)
		}
		l.end(at)
		l.settle()
	}
}

// In whatever order waiters wake up: nobody is overtaken on a GPU that they keep, nor by
// anybody who comes later where they have room; nobody keeps more GPUs than they ask for
// and may have, and stays with them; everybody is served who fits without overtaking, and
// everybody when what they keep is free.
func TestLawsOfTheLine(t *testing.T) {
	for seed := range uint64(16) {
		n := newNode(t)
		n.backend.more = 2
		c := n.settings(n.backend)
		c.Rules = n.rules("users: {ada: {gpus: 1, memory: 30Gi}}")
		agent, err := New(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		l := &line{t: t, agent: agent, random: rand.New(rand.NewPCG(seed, 1))}
		for range 80 {
			switch pick := l.random.IntN(5); {
			case pick < 3:
				if s := l.ask(); bits.OnesCount64(uint64(s.gpus)) >= s.params.Request.GPUs {
					l.wake(s)
				}
			case pick == 3 && len(l.shares) > 0:
				l.end(l.random.IntN(len(l.shares)))
			case len(l.waiters) > 0:
				l.wake(l.waiters[l.random.IntN(len(l.waiters))])
			}
			if l.random.IntN(3) == 0 {
				l.settle()
			}
		}
		for l.settle(); len(l.waiters) > 0; l.settle() {
			l.drain()
		}
		if len(l.agent.queue) > 0 {
			t.Fatalf("seed %d: %d are in the queue", seed, len(l.agent.queue))
		}
	}
}
