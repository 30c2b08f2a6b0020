package pacing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

const (
	// wholeEvery is every how many rounds the driver is asked for all that a GPU did. It
	// keeps such figures for seconds.
	wholeEvery = 3
	// endedKept is for how many rounds it counts that a process of a share has ended, and
	// presentKept for how many it is known whose a process was that has ended.
	endedKept   = 15
	presentKept = 25
	// freshFor is for how long after its processes came or went a share may have been
	// charged for what none of them tells.
	freshFor = uint64(2 * time.Second)
)

// member is whose a process was that was seen on a GPU, and when last.
type member struct {
	tenant string
	round  int
}

// presence is who was seen on one GPU.
type presence struct {
	there map[int]member // by pid
	// ended is the round in which the last process of a tenant was missed, "" for nobody's.
	ended map[string]int
	// told is what was said of a gap that nobody in particular is blamed for.
	told string
}

// tellWhole notes what all shares of the GPU told together. Nothing can be compared while
// one of them is not counted, or is known to tell too little.
func (g *gpuTime) tellWhole(now uint64, usage map[string]arbiter.Usage) {
	var own, rate, open uint64
	for _, s := range g.shares {
		m := &s.misuse
		if s.owners != m.owners {
			m.fresh = now
		}
		if !s.limited() || now < m.uncounted || m.verdict >= arbiter.Understates || s.fault != nil {
			g.forgetWhole()
			return
		}
		used := usage[s.key]
		own += used.Told
		if m.fresh != 0 && now-m.fresh < freshFor {
			rate += uint64(s.budget.Rate)
		}
		if since := arbiter.OldestOpen(s.key, s.works, used.Fault); since != 0 && (open == 0 || since < open) {
			open = since
		}
	}
	g.whole.Tell(now, own, uint32(min(rate, arbiter.Whole)), open)
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
	for _, s := range samples {
		age := uint64(max(wall.Sub(s.At), 0))
		g.whole.Observe(now-min(age, now), s.Busy)
	}
	if !g.whole.Stands() {
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

// blame has the share pay that alone can have done what nobody told of, and returns what
// is to be said where that is not known.
func (l *loop) blame(uuid string, p *presence, round int) (text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gpus[uuid]
	if g == nil || !g.whole.Stands() {
		return ""
	}
	now := l.clock()
	passed := now - g.wholeTaken
	missing := g.whole.Take()
	if missing == 0 {
		return ""
	}
	if g.wholeTaken == 0 || passed > uint64(faultShown) {
		passed = max(missing, uint64(lag))
	}
	g.wholeTaken = now
	var tenants []string
	for _, s := range g.shares {
		tenants = append(tenants, s.tenant.id)
	}
	culprit := p.culprit(tenants, round)
	part := min(float64(missing)/float64(max(passed, 1)), 1)
	if culprit == "" {
		return fmt.Sprintf("processes that end within moments use %.0f%% of the GPU's time and tell nothing of it: %s may have started them",
			100*part, describeShares(tenants))
	}
	for _, s := range g.shares {
		if s.misuse.unseen = 0; s.tenant.id == culprit {
			s.misuse.unseen = part
			s.budget.Correction -= int64(missing)
			s.usage.add(now, missing)
			s.write()
		}
	}
	return ""
}

func describeShares(tenants []string) string {
	if len(tenants) == 1 {
		return "the share on it, or somebody without one,"
	}
	return fmt.Sprintf("one of the %d shares on it, or somebody without one,", len(tenants))
}

// culprit is the one of the tenants with shares of a GPU whose processes came and went,
// or the only one; "" where others can have been it too.
func (p *presence) culprit(tenants []string, round int) string {
	var moving []string
	for tenant, ended := range p.ended {
		if round-ended <= endedKept {
			moving = append(moving, tenant)
		}
	}
	for _, m := range p.there {
		if !slices.Contains(tenants, m.tenant) {
			return "" // it has no share here
		}
	}
	switch {
	case len(moving) == 1 && slices.Contains(tenants, moving[0]):
		return moving[0]
	case len(moving) == 0 && len(tenants) == 1:
		return tenants[0]
	}
	return ""
}

// meet takes up who is on the GPU now. Who is no longer there has ended, or left it.
func (p *presence) meet(now map[int]string, round int) {
	for pid, m := range p.there {
		if tenant, still := now[pid]; !still || tenant != m.tenant {
			p.ended[m.tenant] = round
			delete(p.there, pid)
		}
	}
	for pid, tenant := range now {
		p.there[pid] = member{tenant, round}
	}
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
		p = &presence{there: map[int]member{}, ended: map[string]int{}}
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
		clear(p.there)
		clear(p.ended)
		p.told = ""
		return
	}
	if !w.meet(p, index) {
		return // nobody is blamed for what is not known
	}
	text := l.blame(uuid, p, w.rounds)
	if text != "" && p.told == "" {
		w.pacer.config.Log.WarnContext(ctx, "GPU time is misused", "gpu", uuid, "reason", text)
		w.pacer.config.Ledger.Tell(control.Event{Kind: control.EventMisuse, UUID: uuid, Text: text})
		p.told = text
	}
}

// meet looks who is on a GPU, and reports whether the driver tells.
func (w *watcher) meet(p *presence, index int) bool {
	listed := w.pacer.config.Driver.Holdings([]int{index})[0]
	if listed.Unlisted != nil {
		return false
	}
	now := map[int]string{}
	for _, one := range listed.Processes {
		id, err := process.Find(one.PID)
		if err != nil {
			continue
		}
		tenant := w.pacer.config.Ledger.Owner(one.PID)
		if tenant == "" && !id.Alive() {
			continue // it ended before it could be told whose it is
		}
		now[one.PID] = tenant
		w.met[one.PID] = member{tenant, w.rounds}
	}
	p.meet(now, w.rounds)
	return true
}

// describeUnseen is what a share is told of that hides work.
func describeUnseen(part float64) string {
	return fmt.Sprintf("processes of it that end within moments use %.0f%% of the GPU's time and tell nothing of it", 100*part)
}
