// Package turns has the memory of swap shares take turns on GPUs: it reads what their processes tell in their pages, asks
// the law of package residency, and writes whose turn it is into their config pages. What the processes do then is the
// library's business.
package turns

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
)

const (
	// changeTick is between two looks while a share enters or leaves, when the GPU waits for the next look, busyTick while
	// a share waits, calmTick otherwise.
	changeTick = 2 * time.Millisecond
	busyTick   = 10 * time.Millisecond
	calmTick   = 100 * time.Millisecond
	// nothing is how long the loop sleeps without swap shares. A change wakes it.
	nothing = time.Hour
)

// Source is a backend whose tenants can have swap shares.
type Source interface {
	OpenTurns(t backend.Tenant) (*page.Turns, error)
}

// Ledger is what turns ask of whoever keeps the tenants, and tell it. No lock of this package is held meanwhile.
type Ledger interface {
	// Name is what users call a tenant; ok is false when it has ended.
	Name(tenant string) (name, user string, ok bool)
	// Tell shows an event to people.
	Tell(e control.Event)
}

// Member is a tenant with swap shares, and the backend that opens it.
type Member struct {
	backend.Tenant
	Source Source
	// Ends is true while its processes are being ended. It takes part in no turns then, and its gate is open, so that they can
	// do what they do at their end.
	Ends bool
}

// Config is what a [Loop] works with.
type Config struct {
	Ledger Ledger
	Log    *slog.Logger
	// Clock is CLOCK_MONOTONIC in ns, that of the pages.
	Clock func() uint64
}

// Loop has swap shares of one machine take turns. One goroutine decides. It takes no other lock: whoever changes the
// tenants publishes what they are now, and whoever shows takes mu, which is held for one round at most.
type Loop struct {
	config    Config
	wake      chan struct{} // holds one entry
	published atomic.Pointer[published]

	mu      sync.Mutex
	built   *published        // what the rest was made from
	gpus    *machine          // what is known of the GPUs
	tenants map[string]*share // by tenant id
	groups  []*group
	spoilt  map[string]string // by tenant id: why it cannot be served, as it was told last
}

// published is who has swap shares, and what they may have of each GPU together, by UUID, in bytes.
type published struct {
	members []Member
	rooms   map[string]uint64
}

// New knows no tenants before Publish.
func New(c Config) *Loop {
	if c.Clock == nil {
		c.Clock = monotonic
	}
	return &Loop{config: c, wake: make(chan struct{}, 1), gpus: &machine{}, tenants: map[string]*share{}, spoilt: map[string]string{}}
}

func monotonic() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // which every kernel has
	return uint64(now.Nano())
}

// Publish says who has swap shares now, and what they may have together of each GPU, by UUID, in bytes.
func (l *Loop) Publish(members []Member, rooms map[string]uint64) {
	before := l.published.Load()
	if len(members) == 0 && (before == nil || len(before.members) == 0) {
		return
	}
	l.published.Store(&published{members, maps.Clone(rooms)})
	l.Stir()
}

// Stir has the loop look at once.
func (l *Loop) Stir() {
	select {
	case l.wake <- struct{}{}:
	default: // it will
	}
}

// Run decides until ctx is done. What it ordered then stands in the pages: gates that are closed open by themselves, and
// the next agent goes on.
func (l *Loop) Run(ctx context.Context) {
	for ctx.Err() == nil {
		next := l.round(ctx)
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range l.tenants {
		s.close()
		delete(l.tenants, id)
	}
	l.groups = nil
}

// round decides for all shares and returns after how long it is to be done again.
func (l *Loop) round(ctx context.Context) time.Duration {
	next, told := l.decide(ctx)
	for _, t := range told {
		l.tell(ctx, t)
	}
	return next
}

func (l *Loop) decide(ctx context.Context) (next time.Duration, told []tale) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.config.Clock()
	if p := l.published.Load(); p != l.built {
		l.rebuild(ctx, now, p)
		l.built = p
	}
	if len(l.groups) == 0 {
		return nothing, nil
	}
	for _, g := range l.groups {
		for _, s := range g.shares {
			s.read(now, l.gpus)
		}
	}
	l.gpus.measure(l.tenants)
	l.gpus.correct(l.groups)
	at, tick := uint64(math.MaxUint64), calmTick
	for _, g := range l.groups {
		at = min(at, g.decide(now, l.gpus))
		for _, s := range g.shares {
			s.write(now)
			told = append(told, s.tales(now)...)
			tick = min(tick, s.tick())
		}
	}
	told = append(told, l.gpus.tales(now, l.groups)...)
	if now < at && at-now < uint64(tick) {
		tick = time.Duration(at - now)
	}
	return tick, told
}

// tale is something that people should know of a share, or of a GPU where tenant is empty.
type tale struct {
	kind         control.EventKind
	tenant, uuid string
	text         string
}

func (l *Loop) tell(ctx context.Context, t tale) {
	event := control.Event{Kind: t.kind, UUID: t.uuid, Text: t.text}
	if t.tenant != "" {
		name, user, ok := l.config.Ledger.Name(t.tenant)
		if !ok {
			return
		}
		event.Tenant, event.User = name, user
	}
	l.config.Log.WarnContext(ctx, "turns in memory", "tenant", event.Tenant, "gpu", t.uuid, "reason", t.text)
	l.config.Ledger.Tell(event)
}
