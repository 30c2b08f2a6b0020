package pacing

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
)

const (
	// busyTick is between two looks at the pages while somebody on the GPU is active,
	// and yieldTick the same where offline shares give way to online ones: their rates
	// follow what the online ones leave. Nearly all that the arbiter costs is looks.
	busyTick  = 15 * time.Millisecond
	yieldTick = 5 * time.Millisecond
	// steady is how long a decision holds while somebody is active and no page changes
	// in a way that matters. Then only time passes: work under way is counted further,
	// and who waits goes on waiting. The decision then comes with the next look.
	steady = 20 * time.Millisecond
	// slowTick is the longest time between them when deciding takes long. It is
	// below page.StaleNs.
	slowTick = 50 * time.Millisecond
	// restTick is between two decisions while nobody is active. A share that becomes
	// active tells so, and has the rate that was decided for it before.
	restTick = page.LeaseNs * time.Nanosecond
	// calm is how long nobody must have been active for a GPU to rest. It is above
	// page.SilenceNs.
	calm = time.Second
	// openOverdue is for how long after the expected end of its work a process still
	// counts as active. A stopped process never reports the end.
	openOverdue = time.Second
	// sparing bounds what very many shares cost: deciding for a GPU takes at most
	// one part in sparing of a processor's time, and happens less often if needed.
	sparing = 20
	// nothing is how long the loop sleeps when there is nothing to decide. A change
	// wakes it.
	nothing = time.Hour
)

// loop divides the time of this machine's GPUs. One goroutine decides, on a
// thread of its own. It takes no other lock: whoever changes the tenants
// publishes what they are now, and whoever shows or watches takes mu, which is
// held for one round of one GPU at most.
type loop struct {
	log     *slog.Logger
	clock   func() uint64 // CLOCK_MONOTONIC ns
	wake    int           // eventfd
	members atomic.Pointer[[]Member]

	stirring sync.Mutex // held for a moment, alone
	stirred  []string   // tenants that ended a silence
	rests    bool       // some GPU rests, so that the loop must wake for a stir

	mu      sync.Mutex
	tenants map[string]*tenantTime // by tenant id
	gpus    map[string]*gpuTime    // by UUID
	built   *[]Member              // what tenants and gpus were made from
	spoilt  map[string]string      // by tenant id: why it cannot be served, as it was told last
}

// gpuTime is the division of one GPU.
type gpuTime struct {
	uuid   string
	law    arbiter.Law
	replay arbiter.Replay
	watch  arbiter.Watch
	whole  arbiter.Unseen
	shares []*shareTime
	// before are those of the rebuild before, and revised is whether the terms of
	// one have changed since.
	before  []*shareTime
	revised bool
	// unlinked is whether pulses could not be linked, which is tried again when
	// anything changes.
	unlinked bool
	works    []arbiter.Work
	list     []arbiter.Share
	// next is when to look next, last when it was decided last, lively when somebody
	// was active last.
	next, last, lively uint64
	resting            bool
	// decided is whether the budgets are those of the present shares.
	decided bool
	// wholeAt is the end of the driver's last sample of the whole GPU, wholeTaken of the last
	// of which it was asked who did what nobody told of, and excused is when it was last told
	// what the shares may have been charged for and not told.
	wholeAt, wholeTaken, excused uint64
	// outsideBusy is the part of its time that living processes without a share had, as the driver told at outsideTold.
	outsideBusy float64
	outsideTold uint64
	// drivenTo is the end of the driver's last sample that was counted for shares without a limit.
	drivenTo uint64
}

func newLoop(log *slog.Logger) (*loop, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("prepare to divide GPU time: %w", err)
	}
	return &loop{
		log: log, clock: monotonic, wake: wake, tenants: map[string]*tenantTime{}, gpus: map[string]*gpuTime{},
	}, nil
}

// started is one moment by both clocks. Package time reads CLOCK_MONOTONIC too, but
// without a system call, and tells differences only.
var started, startedAt = time.Now(), monotonicNow()

func monotonicNow() uint64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	return uint64(now.Nano())
}

// monotonic is the clock of the pages, in ns.
func monotonic() uint64 { return startedAt + uint64(time.Since(started)) }

// Publish says who has shares now.
func (l *loop) Publish(members []Member) {
	l.members.Store(&members)
	l.rouse()
}

// rouse wakes the loop.
func (l *loop) rouse() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(l.wake, one[:]) // full means that it wakes anyway
}

// run decides until ctx is done.
func (l *loop) run(ctx context.Context) {
	runtime.LockOSThread() // never unlocked: what prioritise sets ends with the thread
	prioritise()
	defer context.AfterFunc(ctx, l.rouse)()
	for ctx.Err() == nil {
		next := l.round(ctx)
		l.sleep(next)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tenants {
		for _, s := range t.shares {
			s.keep(l.clock())
		}
		t.close()
	}
}

// prioritise lets the thread wake on time, as far as it is allowed to.
func prioritise() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10)
}

// sleep returns at a moment of the clock, or when the loop is roused.
func (l *loop) sleep(until uint64) {
	now := l.clock()
	if until <= now {
		return
	}
	timeout := unix.NsecToTimespec(int64(until - now))
	if block(&unix.PollFd{Fd: int32(l.wake), Events: unix.POLLIN}, timeout) {
		var drained [8]byte
		_, _ = unix.Read(l.wake, drained[:])
	}
}

// round decides for every GPU that is due and returns when the next one is.
func (l *loop) round(ctx context.Context) (next uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if members := l.members.Load(); members != l.built {
		l.rebuild(ctx, *members)
		l.built = members
	}
	l.unrest()
	next = l.clock() + uint64(nothing)
	rests := false
	for _, g := range l.gpus {
		if now := l.clock(); g.next <= now {
			g.look(now)
			g.schedule(now, l.clock())
		}
		next, rests = min(next, g.next), rests || g.resting
	}
	if l.rest(rests) {
		return 0
	}
	return next
}

// look reads what the shares did, and decides if that has changed or time has passed.
func (g *gpuTime) look(now uint64) {
	news := !g.decided || now-g.last >= uint64(steady)
	for _, s := range g.shares {
		news = s.read(now) || news
	}
	if news {
		g.last = now
		g.decide(now)
		return
	}
	for _, s := range g.shares {
		if s.unanswered > 0 {
			s.renew(now)
		}
	}
}

// decide divides by what was read, and writes the budgets.
func (g *gpuTime) decide(now uint64) {
	g.works = g.works[:0]
	for _, s := range g.shares {
		g.works = append(g.works, s.works...)
	}
	usage := g.replay.Advance(now, g.works)
	g.list = g.list[:0]
	for _, s := range g.shares {
		g.list = append(g.list, arbiter.Share{Key: s.key, Terms: s.terms, Report: s.account(now, usage[s.key], g.watch.Bias(s.key))})
		if s.active {
			g.lively = now
		}
	}
	g.tellWhole(now, usage)
	for _, s := range g.shares {
		s.tell(now, &g.watch, usage[s.key])
	}
	if g.decided && now-g.lively >= uint64(calm) {
		// Nobody does anything, so what was decided holds.
		for _, s := range g.shares {
			s.renew(now + uint64(restTick))
		}
		return
	}
	for i, budget := range g.law.Divide(now, g.list) {
		s := g.shares[i]
		s.set(now, budget)
		s.driven.turn(now, g.replay.Played(), s.limited())
		if !s.limited() {
			g.acquit(s) // now: where nobody has a limit, nothing is decided for long
		}
	}
	g.decided = true
}

// schedule says when to decide next, after a decision that was begun at now and
// has ended at ended.
func (g *gpuTime) schedule(now, ended uint64) {
	g.resting = false
	switch {
	case !slices.ContainsFunc(g.shares, (*shareTime).limited):
		g.next = now + uint64(nothing)
	case now-g.lively < uint64(calm):
		// All GPUs are due at the same moments: the loop wakes once for them.
		tick := uint64(busyTick)
		if slices.ContainsFunc(g.shares, (*shareTime).yields) {
			tick = uint64(yieldTick)
		}
		g.next = (now/tick + 1) * tick
		if long := min(sparing*(ended-now), uint64(slowTick)); long > tick {
			g.next = now + long
		}
	default:
		g.resting, g.next = true, (now/uint64(restTick)+1)*uint64(restTick)
	}
}

// tellSpoilt tells once why a tenant cannot be served. The look that every tenant gets tells of its pages.
func (l *loop) tellSpoilt(ctx context.Context, id string, err error) {
	if l.spoilt[id] == err.Error() {
		return
	}
	if l.spoilt == nil {
		l.spoilt = map[string]string{}
	}
	l.spoilt[id] = err.Error()
	l.log.WarnContext(ctx, "cannot divide GPU time for a tenant", "tenant", id, "error", err)
}

// rebuild takes up who came, who went and whose terms changed. The GPUs of these
// are then decided anew; for the others nothing has changed.
func (l *loop) rebuild(ctx context.Context, members []Member) {
	present := map[string]bool{}
	for _, g := range l.gpus {
		g.before, g.shares, g.revised = g.shares, g.before[:0], false
	}
	for i := range members {
		m := &members[i]
		present[m.ID] = true
		t, err := l.take(m)
		if err != nil {
			l.tellSpoilt(ctx, m.ID, err)
			continue
		}
		delete(l.spoilt, m.ID)
		for d, s := range t.shares {
			g := l.gpu(s.uuid)
			if terms := termsOf(m.Backend, &m.Shares[d]); s.terms != terms {
				s.terms, g.revised = terms, true
			}
			g.shares = append(g.shares, s)
		}
	}
	maps.DeleteFunc(l.spoilt, func(id, _ string) bool { return !present[id] })
	for id, t := range l.tenants {
		if !present[id] {
			l.drop(t)
		}
	}
	for uuid, g := range l.gpus {
		if len(g.shares) == 0 {
			delete(l.gpus, uuid)
			continue
		}
		same := !g.revised && !g.unlinked && slices.Equal(g.before, g.shares)
		clear(g.before) // who is gone is kept by nobody
		if same {
			continue
		}
		g.next, g.lively, g.decided = 0, l.clock(), false
		err := g.linkPulses()
		if g.unlinked = err != nil; g.unlinked {
			l.log.WarnContext(ctx, "shares give way to others late", "gpu", uuid, "error", err)
		}
	}
}

// take returns a tenant with its pages open.
func (l *loop) take(m *Member) (*tenantTime, error) {
	if t := l.tenants[m.ID]; t != nil {
		return t, nil
	}
	t, err := openTenant(l.clock(), m)
	if err != nil {
		return nil, err
	}
	l.tenants[m.ID] = t
	if l.built != nil { // else it may be older than this agent
		t.begin(l.clock(), m)
	}
	return t, nil
}

func (l *loop) gpu(uuid string) *gpuTime {
	g := l.gpus[uuid]
	if g == nil {
		g = &gpuTime{uuid: uuid, lively: l.clock()}
		l.gpus[uuid] = g
	}
	return g
}

func (l *loop) drop(t *tenantTime) {
	for _, s := range t.shares {
		l.gpu(s.uuid).acquit(s)
	}
	t.close()
	delete(l.tenants, t.id)
}

// termsOf is a share's promise in the law's words.
func termsOf(maker v1alpha1.Backend, s *backend.Share) arbiter.Terms {
	if maker == v1alpha1.BackendTimeslice || maker == v1alpha1.BackendMPS || maker == v1alpha1.BackendMIG {
		return arbiter.Terms{Policy: arbiter.Free}
	}
	policies := map[v1alpha1.Policy]arbiter.Policy{
		v1alpha1.PolicyWeighted: arbiter.Weighted, v1alpha1.PolicyFixed: arbiter.Fixed, v1alpha1.PolicyBurst: arbiter.Burst,
	}
	return arbiter.Terms{
		Policy: policies[s.Policy], Cores: s.Cores, MaxCores: s.MaxCores, Weight: s.Weight,
		Offline: s.Class == v1alpha1.ClassOffline,
	}
}
