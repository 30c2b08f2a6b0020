package pacing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/page"
)

const (
	// wholeEvery is every how many rounds the driver is asked for all that a GPU did. It
	// keeps such figures for seconds.
	wholeEvery = 2
	// presentKept is for how many rounds it is known whose a process was that has ended.
	presentKept = 13
	// freshEach is the GPU time that a share's process may be charged for and die before it
	// tells of it, and freshMost is the most that this excuses together before it is used up.
	freshEach = uint64(50 * time.Millisecond)
	freshMost = uint64(100 * time.Millisecond)
	// roomLeast bounds for how much told GPU time nothing is excused afterwards.
	roomLeast = uint64(10 * time.Second)
)

// member is whose a process was that was seen on a GPU, and when last.
type member struct {
	tenant string
	round  int
}

// tellWhole notes what all shares of the GPU told together. Nothing can be compared while
// one of them is not counted.
func (g *gpuTime) tellWhole(now uint64, usage map[string]arbiter.Usage) {
	var own, excused uint64
	claimed := 0.0
	passed := max(now-min(max(g.excused, 1), now), 1)
	for _, s := range g.shares {
		m := &s.misuse
		if s.owners != m.owners {
			m.fresh = min(m.fresh+freshEach, freshMost)
		}
		if !s.limited() || now < m.uncounted {
			g.forgetWhole()
			return
		}
		used := usage[s.key]
		told := used.Told
		switch driver := uint64(float64(passed) * m.seen(now)); {
		case m.ignored:
			told = driver
		case s.mistold(now):
			// What it did and told wrong would be missing, and others pay for it.
			told = max(told, driver)
		}
		own += told
		excused += s.excuse(passed, used.Told)
		claimed += m.belief.Take(now, arbiter.OldestOpen(s.key, s.works, used.Fault), used.Told, m.seen(now))
	}
	g.excused = now
	g.whole.Tell(now, own, uint32(min(excused*arbiter.Whole/passed, arbiter.Whole)), claimed)
}

// noteOutside takes up which part of a GPU's time, by the driver's latest figure, processes without a share had that live. They
// hide nothing: everybody is told of them. The most of the last seconds counts, because the driver's figures of processes and of
// whole GPUs are of different moments.
func (l *loop) noteOutside(uuid string, now uint64, busy float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.gpus[uuid]; g != nil && (busy >= g.outsideBusy || now-min(g.outsideTold, now) > uint64(2*lag)) {
		g.outsideBusy, g.outsideTold = min(busy, 1), now
	}
}

// outside is that part, as long as the driver tells it.
func (g *gpuTime) outside(now uint64) float64 {
	if g.outsideTold == 0 || now-min(g.outsideTold, now) > uint64(3*lag) {
		return 0
	}
	return g.outsideBusy
}

// mistold reports whether a share does more than it tells, or may: its page can be damaged for a moment now and again, so
// the comparison does not begin anew for that.
func (s *shareTime) mistold(now uint64) bool {
	return s.misuse.verdict >= arbiter.Understates || s.fault != nil || s.faulted != 0 && now-min(s.faulted, now) < uint64(2*lag)
}

// excuse is what processes of the share that come and go may have used since the last call
// and not told. They were charged for it, so together with what was told it is no more than
// the share's rate allows.
func (s *shareTime) excuse(passed, told uint64) uint64 {
	m, gained := &s.misuse, min(passed, freshMost)*uint64(s.budget.Rate)/page.Whole
	m.room = min(max(m.room+int64(gained)-int64(min(told, roomLeast)), -int64(roomLeast)), int64(freshMost))
	part := min(m.fresh, gained, uint64(max(m.room, 0)))
	m.fresh, m.room = m.fresh-part, m.room-int64(part)
	return part
}

// seen is the driver's latest figure for the share's processes. What it does not tell is
// held against nobody.
func (m *misuse) seen(now uint64) float64 {
	if m.told == 0 || now-min(m.told, now) > uint64(2*lag) {
		return 1
	}
	return m.busy
}

// forgetWhole begins the comparison anew.
func (g *gpuTime) forgetWhole() {
	g.whole.Forget()
	g.wholeTaken = 0
	for _, s := range g.shares {
		s.misuse.unseen = 0
	}
}

// observeWhole takes up the driver's samples of a whole GPU, which ended so long ago, and
// reports whether less was told than that.
func (l *loop) observeWhole(uuid string, now uint64, samples []nvml.Sample, wall time.Time) (suspects bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gpus[uuid]
	if g == nil {
		return false
	}
	for _, s := range samples { // without what is told of those outside all shares
		age := uint64(max(wall.Sub(s.At), 0))
		g.wholeAt = max(g.wholeAt, now-min(age, now))
		g.whole.Observe(now-min(age, now), max(s.Busy-g.outside(now), 0))
	}
	if !g.whole.Stands() {
		g.wholeTaken = 0
		for _, s := range g.shares {
			s.misuse.unseen = 0
		}
	}
	return g.whole.Suspects() || g.whole.Stands()
}

// unknowWhole forgets what the driver said of a whole GPU.
func (l *loop) unknowWhole(uuid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.gpus[uuid]; g != nil {
		g.forgetWhole()
	}
}

// blame has a share pay for what nobody told of if its processes were seen often enough, and
// nobody else's. It returns what is to be said of the GPU.
func (l *loop) blame(uuid string, p *presence) (text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gpus[uuid]
	if g == nil {
		return ""
	}
	now := l.clock()
	if !g.whole.Stands() {
		g.wholeTaken = 0
		p.begin(now)
		return ""
	}
	missing, before := g.whole.Take(), g.wholeTaken
	g.wholeTaken = g.wholeAt
	if missing == 0 {
		return ""
	}
	var tenants []string
	for _, s := range g.shares {
		tenants = append(tenants, s.tenant.id)
	}
	p.miss(missing, before, g.wholeAt)
	verdict, culprit := p.judge(now, tenants)
	if verdict {
		for _, s := range g.shares {
			if s.misuse.unseen = 0; s.tenant.id == culprit {
				s.misuse.unseen = p.part()
				s.charge(now, p.missing)
			}
		}
		p.begin(now)
	}
	part := "much" // at first it is not known since when that was missing
	if before != 0 {
		part = fmt.Sprintf("%.0f%%", 100*min(float64(missing)/float64(max(g.wholeAt-min(before, g.wholeAt), 1)), 1))
	}
	return fmt.Sprintf("processes that end within moments use %s of the GPU's time and tell nothing of it: %s may have started them", part, describeShares(tenants))
}

// charge has a share pay for what its processes did and did not tell.
func (s *shareTime) charge(now, ns uint64) {
	s.budget.Correction -= int64(ns)
	s.bill.impose(ns)
	s.usage.add(now, ns)
	s.write()
}

func describeShares(tenants []string) string {
	if len(tenants) == 1 {
		return "the share on it, or somebody without one,"
	}
	return fmt.Sprintf("one of the %d shares on it, or somebody without one,", len(tenants))
}

// wholes compares GPUs as a whole with what their shares tell.
func (w *watcher) wholes(ctx context.Context, gpus []backend.GPU) {
	told := make([]*nvml.Activity, len(gpus))
	if w.rounds%wholeEvery == 0 {
		var indexes []int
		var since []time.Time
		for _, gpu := range gpus {
			indexes, since = append(indexes, gpu.Index), append(since, w.wholeSince[gpu.Index])
		}
		for i, did := range w.pacer.config.Driver.Activities(indexes, since) {
			told[i] = &did
		}
	}
	for i, gpu := range gpus {
		w.whole(ctx, gpu.Index, gpu.UUID, told[i])
	}
}

// whole compares a GPU as a whole with what its shares tell. did is what the driver told
// of it, nil if it was not asked.
func (w *watcher) whole(ctx context.Context, index int, uuid string, did *nvml.Activity) {
	p := w.presences[index]
	if p == nil {
		p = newPresence()
		w.presences[index] = p
	}
	l := w.pacer.loop
	switch {
	case did == nil:
	case did.Err != nil:
		l.unknowWhole(uuid)
		w.noWhole[index], w.suspects[index] = errors.Is(did.Err, nvml.ErrNotSupported), false
	default:
		if n := len(did.Samples); n > 0 {
			w.wholeSince[index] = did.Samples[n-1].At
		}
		w.suspects[index] = l.observeWhole(uuid, l.clock(), did.Samples, time.Now())
	}
	if !w.suspects[index] {
		*p = *newPresence()
		return
	}
	text := l.blame(uuid, p)
	if text != "" && p.told == "" {
		w.pacer.config.Log.WarnContext(ctx, "GPU time is misused", "gpu", uuid, "reason", text)
		w.pacer.config.Ledger.Tell(control.Event{Kind: control.EventMisuse, UUID: uuid, Text: fmt.Sprintf("GPU %d: %s", index, text)})
		p.told = text
	}
}

// describeUnseen is what a share is told of that hides work.
func describeUnseen(part float64) string {
	return fmt.Sprintf("processes of it that end within moments use %.0f%% of the GPU's time and tell nothing of it", 100*part)
}
