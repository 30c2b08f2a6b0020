package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Misuse is what is done about a tenant that uses more GPU time than its share.
type Misuse string

// What can be done; each tells of it, too.
const (
	MisuseReport Misuse = "report"
	MisuseStop   Misuse = "stop" // SIGSTOP to its processes on the GPU
	MisuseKill   Misuse = "kill" // SIGKILL
)

const (
	// watchInterval is between two questions to the driver, which makes one to
	// six samples a second.
	watchInterval = 200 * time.Millisecond
	// unhurried is in which of so many rounds the driver is asked about a GPU
	// whose shares have no limit, for people to see.
	unhurried = 5
	// lag is how late the driver may tell: that somebody was idle is believed so
	// much later.
	lag = time.Second
	// settled is how long before a sample's end a share must have got its limit:
	// without one nothing it does is counted.
	settled = 150 * time.Millisecond
	// backlog is how long what was launched without a limit may take the GPU at
	// most, until the share is judged all the same, and settling how much longer it
	// may after the first work that was counted.
	backlog  = 5 * time.Second
	settling = 500 * time.Millisecond
	// faultShown is how long an impossible time in a page is shown after the last.
	faultShown = 10 * time.Second
	// faultRounds is in how many rounds it must have been told: a process that
	// loses its processor may once tell of much at a time.
	faultRounds = 20
)

// misuse is what the driver says of one share, against what it says itself.
type misuse struct {
	verdict arbiter.Verdict
	busy    float64 // the driver's figure, 0 to 1
	told    uint64  // when it was told
	counted uint64  // own time is known up to here
	limited uint64  // since when it has a limit, 0 without
	assumed bool    // the replay takes it to be busy always
	// uncounted is until when the GPU may still do what was given while nothing
	// was counted; 1 stands for a share that has no limit now.
	uncounted uint64
	text      string // for people, empty while all is well
	shown     string // the complaint of which an event was written
}

// own is the time to count: the share's own figure, or the driver's of one
// that does not tell the truth.
func (m *misuse) own(now, measured uint64) uint64 {
	passed := now - min(m.counted, now)
	first := m.counted == 0
	m.counted = now
	if m.verdict < arbiter.Understates || first {
		return measured
	}
	return uint64(m.busy * float64(passed))
}

// count notes whether what the share does is counted from now on, and that some
// of it was.
func (m *misuse) count(now uint64, limited, some bool) {
	switch {
	case !limited:
		m.uncounted = 1
	case m.uncounted == 1:
		m.uncounted = now + uint64(backlog)
	case some:
		m.uncounted = min(m.uncounted, now+uint64(settling))
	}
}

// complaint is what people should know of the share, empty if all is well.
func (s *shareTime) complaint(now uint64) string {
	switch {
	case s.fault != nil:
		return "its GPU time is not divided: " + s.fault.Error()
	case s.misuse.text != "":
		return s.misuse.text
	case s.faultCount >= faultRounds && now-s.faulted < uint64(faultShown):
		return "its page tells of GPU time that cannot be: " + describeFaults(s.faults)
	}
	return ""
}

func describeFaults(f arbiter.Fault) string {
	var texts []string
	for _, one := range []struct {
		fault arbiter.Fault
		text  string
	}{
		{arbiter.FaultBackwards, "time that runs backwards"},
		{arbiter.FaultFuture, "work in the future"},
		{arbiter.FaultExcess, "more work than time has passed"},
	} {
		if f&one.fault != 0 {
			texts = append(texts, one.text)
		}
	}
	return strings.Join(texts, ", ")
}

// tell lets the watch know what the share says and may do. What the replay
// assumes of a share is not the share's word: then its charges are.
func (s *shareTime) tell(now uint64, w *arbiter.Watch, used arbiter.Usage) {
	own := used.Own
	if s.misuse.assumed {
		own = used.Charged
	}
	if !s.limited() {
		return
	}
	if s.misuse.limited == 0 {
		s.misuse.limited = now
	}
	w.Tell(now, s.key, own, s.budget.Rate)
}

// watch compares shares with the driver's figures until ctx is done.
func (a *Agent) watch(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	w := watcher{agent: a, owners: map[process.ID]string{}, since: map[int]time.Time{}}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.round(ctx)
		}
	}
}

// watcher is what the watch remembers between its rounds.
type watcher struct {
	agent  *Agent
	owners map[process.ID]string // tenant id by process, "" for nobody's
	asked  time.Time             // when owners was last begun anew
	rounds int
	since  map[int]time.Time // the newest sample, by GPU index
}

// round asks the driver about every GPU that has shares.
func (w *watcher) round(ctx context.Context) {
	w.rounds++
	if time.Since(w.asked) > 2*lag {
		// What was nobody's may have taken a slot since.
		clear(w.owners)
		w.asked = time.Now()
	}
	for _, gpu := range w.agent.gpus {
		shares, limits := w.agent.arbiter.serves(gpu.UUID)
		if !shares || !limits && w.rounds%unhurried != 0 {
			continue
		}
		samples, err := w.agent.config.Driver.Utilisation(gpu.Index, w.since[gpu.Index])
		w.agent.noteWatch(ctx, gpu.Index, err)
		if err == nil {
			w.judge(gpu.Index, gpu.UUID, samples)
		}
	}
	w.agent.answerMisuse(ctx)
}

// judge gives each share of a GPU its part of the samples.
func (w *watcher) judge(index int, uuid string, samples []nvml.Utilisation) {
	l := w.agent.arbiter
	now, wall := l.clock(), time.Now()
	newest, busy := busyByProcess(samples, w.since[index])
	if newest.IsZero() {
		// Nobody was busy, as far as the driver can know by now.
		l.observe(uuid, now, now-min(now, uint64(lag)), nil)
		return
	}
	w.since[index] = newest
	tenants := map[string]float64{}
	for pid, part := range busy {
		tenants[w.owner(pid)] += part
	}
	age := min(max(wall.Sub(newest), 0), time.Duration(now))
	l.observe(uuid, now, now-uint64(age), tenants)
}

// busyByProcess is the mean of each process's samples after since, and when the
// newest of all ended, zero if there is none.
func busyByProcess(samples []nvml.Utilisation, since time.Time) (newest time.Time, busy map[int]float64) {
	busy = map[int]float64{}
	counts := map[int]int{}
	most := 0
	for _, s := range samples {
		if !s.At.After(since) {
			continue
		}
		if s.At.After(newest) {
			newest = s.At
		}
		busy[s.PID] += s.Busy
		counts[s.PID]++
		most = max(most, counts[s.PID])
	}
	for pid := range busy {
		busy[pid] /= float64(most) // in the samples that leave it out it was idle
	}
	return newest, busy
}

// owner finds the tenant of a process on a GPU: the one in whose slot it is,
// confirmed by the kernel, or from whose processes it descends.
func (w *watcher) owner(pid int) string {
	id, err := process.Find(pid)
	if err != nil {
		return ""
	}
	tenant, known := w.owners[id]
	if !known {
		tenant = w.agent.ownerOf(pid)
		w.owners[id] = tenant
	}
	return tenant
}

// ownerOf is the id of the tenant to which a process belongs, "" if none.
func (a *Agent) ownerOf(pid int) string {
	family := append([]int{pid}, process.Ancestors(pid)...)
	owner := process.Owner(pid)
	type candidate struct{ id, dir string }
	var slots []candidate
	a.mu.Lock()
	for _, t := range a.tenants {
		if t.process && slices.Contains(family, t.Holder.PID) {
			a.mu.Unlock()
			return t.ID
		}
		if t.UID == owner && pid != os.Getpid() {
			slots = append(slots, candidate{t.ID, t.Dir})
		}
	}
	a.mu.Unlock()
	for _, c := range slots {
		if process.Maps(pid, c.dir) {
			return c.id
		}
	}
	return ""
}

// serves reports whether a GPU has shares, and whether some of them have limits.
func (l *arbiterLoop) serves(uuid string) (shares, limits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gpus[uuid]
	return g != nil, g != nil && slices.ContainsFunc(g.shares, (*shareTime).limited)
}

// observe judges the shares of a GPU by the part of the time, by tenant id, in
// which the driver saw them busy up to the moment at.
func (l *arbiterLoop) observe(uuid string, now, at uint64, busy map[string]float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.gpus[uuid]
	if g == nil {
		return
	}
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
		m.verdict = g.watch.Observe(at, s.key, m.busy)
		m.assumed = m.verdict == arbiter.Suspect || m.verdict == arbiter.Understates
		g.replay.Assume(s.key, m.assumed)
	}
}

// noteWatch remembers whether the driver tells who uses a GPU, and says so once.
func (a *Agent) noteWatch(ctx context.Context, index int, err error) {
	text := ""
	switch {
	case errors.Is(err, nvml.ErrNotSupported):
		text = "the driver does not tell which process uses the GPU's time: who takes more than its share is not noticed"
	case err != nil:
		text = err.Error()
	}
	a.mu.Lock()
	before := a.unwatched[index]
	a.unwatched[index] = text
	a.mu.Unlock()
	if text != before && text != "" {
		a.config.Log.WarnContext(ctx, "GPU time is not watched", "gpu", index, "reason", text)
	}
}

// accused is a share about which something is to be said, and perhaps done.
type accused struct {
	tenant, uuid, text string
	act                bool
}

// accuse collects the shares with something new to say, or still to be acted upon.
func (l *arbiterLoop) accuse(answer Misuse) []accused {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []accused
	now := l.clock()
	for _, t := range l.tenants {
		for _, s := range t.shares {
			guilty := s.misuse.verdict >= arbiter.Understates
			switch {
			case guilty && s.misuse.text == "":
				s.misuse.text = describeMisuse(s, answer)
			case !guilty && answer == MisuseReport:
				s.misuse.text = ""
			}
			text := s.complaint(now)
			act := guilty && answer != MisuseReport
			if text != s.misuse.shown && text != "" || act {
				told := text
				if text == s.misuse.shown {
					told = ""
				}
				all = append(all, accused{t.id, s.uuid, told, act})
			}
			s.misuse.shown = text
		}
	}
	return all
}

func describeMisuse(s *shareTime, answer Misuse) string {
	what := fmt.Sprintf("it uses %.0f%% of the GPU's time and says less", 100*s.misuse.busy)
	if s.misuse.verdict == arbiter.Exceeds {
		what = fmt.Sprintf("it uses %.0f%% of the GPU's time, more than its share", 100*s.misuse.busy)
	}
	switch answer {
	case MisuseStop:
		what += ": its processes on the GPU were stopped (SIGSTOP); `divvy stop` ends it"
	case MisuseKill:
		what += ": its processes on the GPU were killed"
	}
	return what
}

// answerMisuse tells of shares that misbehave and does what is to be done.
func (a *Agent) answerMisuse(ctx context.Context) {
	for _, c := range a.arbiter.accuse(a.config.Misuse) {
		a.mu.Lock()
		t := a.tenants[c.tenant]
		a.mu.Unlock()
		if t == nil {
			continue
		}
		if c.text != "" {
			a.config.Log.WarnContext(ctx, "GPU time is misused", "tenant", t.Name, "gpu", c.uuid, "reason", c.text)
			a.events.add(control.Event{Kind: control.EventMisuse, Tenant: t.Name, UUID: c.uuid, Text: c.text})
		}
		if c.act {
			a.punish(t, c.uuid)
		}
	}
}

// punish signals a tenant's processes on a GPU. Which these are, the driver and
// the kernel say.
func (a *Agent) punish(t *tenant, uuid string) {
	signal := unix.SIGSTOP
	if a.config.Misuse == MisuseKill {
		signal = unix.SIGKILL
	}
	listed, err := a.config.Driver.Processes(a.gpu(uuid).Index)
	if err != nil {
		return // the next round asks again
	}
	for _, p := range listed {
		id, err := process.Find(p.PID)
		if err == nil && a.ownerOf(p.PID) == t.ID {
			_ = id.Signal(signal) // it may have ended by itself
		}
	}
}
