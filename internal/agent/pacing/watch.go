package pacing

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

const (
	// watchInterval is between two questions to the driver, which makes one to
	// six samples a second.
	watchInterval = 400 * time.Millisecond
	// sampleLeast is the shortest time that one of its samples covers.
	sampleLeast = time.Second / 6
	// unhurried is every how many rounds the driver is asked about a GPU whose
	// shares have no limit. Its figures are only shown and counted.
	unhurried = 3
	// lazy is the same for a GPU that rests.
	lazy = 2
	// pidsKept is for how many rounds it is believed that a pid is the same process. A
	// process that is taken for another so long is not yet a verdict.
	pidsKept = 2
	// lag is how late the driver's figures may be. That nobody was busy is believed
	// only after it.
	lag = time.Second
	// settled is how long before a sample's end a share must have got its limit.
	// Without a limit nothing that it does is counted.
	settled = 150 * time.Millisecond
	// backlog is how long the GPU may work on what a share launched before it had a
	// limit; after that the share is judged. settling is how much longer it may
	// after the first work that was counted.
	backlog  = 5 * time.Second
	settling = 500 * time.Millisecond
	// faultShown is for how long after the last impossible time in a page the fault
	// is shown.
	faultShown = 10 * time.Second
	// faultRounds is in how many rounds it must have appeared. A process that lost
	// its processor may report much at once.
	faultRounds = 14
)

// watch compares shares with the driver's figures until ctx is done.
func (p *Pacer) watch(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	w := newWatcher(p)
	var look <-chan time.Time // nil while there is nobody to look for
	for {
		if look == nil && w.suspecting() {
			look = time.After(lookAfter())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.round(ctx)
		case <-look:
			look = nil
			w.look()
		}
	}
}

// watcher is what the watch remembers between its rounds.
type watcher struct {
	pacer  *Pacer
	owners map[process.ID]string // tenant id by process, "" for nobody's
	asked  time.Time             // when owners was last begun anew
	pids   map[int]string        // the same by pid, for pidsKept rounds
	rounds int
	since  map[int]time.Time // the newest sample, by GPU index
	// met are processes whose tenant was found while they lived, by pid. The driver may
	// tell of them when they have ended.
	met         map[int]member
	drivenSince map[int]time.Time // the newest sample of the whole GPU that was counted, by GPU index
	// What follows is by GPU index: who was seen on it, the newest sample of all that it
	// did, whether less was told than that, and whether the driver keeps no such samples.
	presences  map[int]*presence
	wholeSince map[int]time.Time
	suspects   map[int]bool
	noWhole    map[int]bool
}

func newWatcher(p *Pacer) *watcher {
	return &watcher{
		pacer: p, owners: map[process.ID]string{}, pids: map[int]string{}, since: map[int]time.Time{}, met: map[int]member{},
		drivenSince: map[int]time.Time{},
		presences:   map[int]*presence{}, wholeSince: map[int]time.Time{}, suspects: map[int]bool{}, noWhole: map[int]bool{},
	}
}

// round asks the driver about every GPU that has shares.
func (w *watcher) round(ctx context.Context) {
	w.rounds++
	if time.Since(w.asked) > 2*lag {
		// What was nobody's may have taken a slot since.
		clear(w.owners)
		w.asked = time.Now()
	}
	if w.rounds%pidsKept == 0 {
		clear(w.pids)
		maps.DeleteFunc(w.met, func(_ int, m member) bool { return w.rounds-m.round > presentKept })
	}
	var due, counted []backend.GPU // those of the second have shares with a limit
	var indexes []int
	var since []time.Time
	for _, gpu := range w.pacer.config.GPUs {
		every := w.pacer.watched(gpu.UUID)
		if every > 1 && w.pacer.guards(gpu.UUID) {
			every = 1
		}
		if every == 0 {
			w.pacer.noteWatch(ctx, gpu.Index, nil) // what was said of it is said no more
		}
		if every != 0 && w.rounds%every == 0 {
			due, indexes, since = append(due, gpu), append(indexes, gpu.Index), append(since, w.since[gpu.Index])
			if every < unhurried && !w.noWhole[gpu.Index] {
				counted = append(counted, gpu)
			}
		}
	}
	busy, newest := map[int]map[string]float64{}, map[int]time.Time{}
	for i, told := range w.pacer.config.Driver.Utilisations(indexes, since) {
		w.pacer.noteWatch(ctx, due[i].Index, told.Err)
		switch {
		case told.Err == nil:
			busy[due[i].Index], newest[due[i].Index] = w.judge(due[i].Index, due[i].UUID, told.Samples, time.Now())
		case !errors.Is(told.Err, nvml.ErrNotSupported):
			w.pacer.unknow(due[i].UUID)
		}
	}
	w.tally(due, busy, newest)
	for _, gpu := range due {
		w.pacer.keep(gpu.UUID)
	}
	w.wholes(ctx, counted)
	w.pacer.answerMisuse(ctx)
}

// judge gives each share of a GPU its part of the samples, which were read at the time wall, and returns these by tenant and the end of
// the newest.
func (w *watcher) judge(index int, uuid string, samples []nvml.Utilisation, wall time.Time) (tenants map[string]float64, newest time.Time) {
	l := w.pacer.loop
	now := l.clock()
	newest, count, busy := busyByProcess(samples, w.since[index])
	if newest.IsZero() {
		w.pacer.trespass(uuid, 0, nil)
		// Nobody was busy, as far as the driver can know by now.
		l.noteOutside(uuid, now, 0)
		l.observe(uuid, now, now-min(now, uint64(lag)), 1, nil, nil)
		return nil, newest
	}
	earliest := begin(samples, w.since[index])
	w.since[index] = newest
	tenants = map[string]float64{}
	processes := map[string]int{}
	outside := 0.0
	for pid, part := range busy {
		tenant := w.owner(pid)
		tenants[tenant] += part
		processes[tenant]++
		if _, err := process.Find(pid); tenant == "" && err == nil {
			outside += part
		}
	}
	l.noteOutside(uuid, now, outside)
	age := min(max(wall.Sub(newest), 0), time.Duration(now))
	l.observe(uuid, now, now-uint64(age), count, tenants, processes)
	w.pacer.trespass(uuid, now-uint64(min(max(wall.Sub(earliest), 0), time.Duration(now))), tenants)
	return tenants, newest
}

// busyByProcess is the mean of each process's samples after since, how many
// samples that is, and when the newest of them ended, the zero time if there is none.
func busyByProcess(samples []nvml.Utilisation, since time.Time) (newest time.Time, count int, busy map[int]float64) {
	busy = map[int]float64{}
	counts := map[int]int{}
	var ends []time.Time
	for _, s := range samples {
		if !s.At.After(since) {
			continue
		}
		ends = append(ends, s.At)
		if s.At.After(newest) {
			newest = s.At
		}
		busy[s.PID] += s.Busy
		counts[s.PID]++
		count = max(count, counts[s.PID])
	}
	// Processes that come and go are in different samples.
	slices.SortFunc(ends, time.Time.Compare)
	apart := min(len(ends), 1)
	for i := 1; i < len(ends); i++ {
		if ends[i].Sub(ends[i-1]) > sampleLeast/2 {
			apart++
		}
	}
	count = max(count, apart)
	for pid := range busy {
		busy[pid] /= float64(count) // in the samples that leave it out it was idle
	}
	return newest, count, busy
}

// owner finds the tenant of a process on a GPU: the one in whose slot it is,
// confirmed by the kernel, or from whose processes it descends.
func (w *watcher) owner(pid int) string {
	if tenant, known := w.pids[pid]; known {
		return tenant
	}
	id, err := process.Find(pid)
	if err != nil {
		return w.met[pid].tenant // it has ended
	}
	tenant, known := w.owners[id]
	if !known {
		tenant = w.pacer.config.Ledger.Owner(pid)
		w.owners[id] = tenant
	}
	w.pids[pid], w.met[pid] = tenant, member{tenant, w.rounds}
	return tenant
}

// watched is every how many rounds the driver is asked about a GPU, 0 if nobody
// has a share of it.
func (l *loop) watched(uuid string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gpus[uuid]
	switch {
	case g == nil:
		return 0
	case g.resting:
		return lazy
	case !slices.ContainsFunc(g.shares, (*shareTime).limited):
		return unhurried
	}
	return 1
}

// Rests reports whether nobody launches anything on any GPU, as far as that is
// counted.
func (l *loop) Rests() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.gpus {
		if !g.resting && slices.ContainsFunc(g.shares, (*shareTime).limited) {
			return false
		}
	}
	return true
}

// observe judges the shares of a GPU by the part of the time, by tenant id, "" for nobody's, in
// which the driver saw them busy in so many samples up to the moment at, and by how many processes these were.
func (l *loop) observe(uuid string, now, at uint64, samples int, busy map[string]float64, processes map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gpus[uuid]
	if g == nil {
		return
	}
	all := sum(busy)
	for _, s := range g.shares {
		m := &s.misuse
		m.busy, m.told = min(busy[s.tenant.id], 1), now
		if m.limited == 0 || at < m.limited+uint64(settled) {
			continue
		}
		if at < m.uncounted {
			// The driver alone knows of it.
			m.assumed = m.busy > 0.1 && m.uncounted > now+uint64(settling)
			g.replay.Assume(s.key, m.assumed)
			continue
		}
		m.verdict = g.watch.Observe(s.key, arbiter.Sample{
			At: at, Busy: m.busy, Count: samples, Others: all - busy[s.tenant.id], Outside: busy[""],
			Hides: processes[s.tenant.id] > s.telling(now),
		})
		m.assumed, m.ignored = m.verdict == arbiter.Understates, g.watch.Overtold(s.key)
		g.replay.Assume(s.key, m.assumed)
		g.replay.Disregard(s.key, m.ignored)
	}
}

// unknow forgets what the driver said of a GPU's shares, because it does not say it any
// more: nobody is judged by old figures, nor by a comparison with a gap.
func (l *loop) unknow(uuid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gpus[uuid]
	if g == nil {
		return
	}
	for _, s := range g.shares {
		m := &s.misuse
		m.busy, m.told, m.trespass = 0, 0, false
		g.absolve(s)
	}
}

// acquit forgets what the driver said of a share that is gone, or has no limit.
func (g *gpuTime) acquit(s *shareTime) {
	if s.misuse.limited != 0 {
		g.absolve(s)
	}
	s.misuse.limited = 0
}

// absolve has what a share tells of itself count again, and begins the comparison anew.
func (g *gpuTime) absolve(s *shareTime) {
	g.watch.Forget(s.key)
	g.replay.Assume(s.key, false)
	g.replay.Disregard(s.key, false)
	s.misuse.assumed, s.misuse.ignored, s.misuse.verdict = false, false, arbiter.Honest
}

// noteWatch remembers whether the driver tells who uses a GPU, and logs a change.
func (p *Pacer) noteWatch(ctx context.Context, index int, err error) {
	text := ""
	switch {
	case errors.Is(err, nvml.ErrNotSupported):
		text = "the driver does not tell which process uses the GPU's time: who takes more than its share is not noticed"
	case err != nil:
		text = err.Error()
	}
	p.mu.Lock()
	before := p.unwatched[index]
	p.unwatched[index] = text
	p.mu.Unlock()
	if text != before && text != "" {
		p.config.Log.WarnContext(ctx, "GPU time is not watched", "gpu", index, "reason", text)
	}
}
