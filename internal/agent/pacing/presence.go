package pacing

import (
	"math/rand/v2"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
)

const (
	// lookMean is the mean time between two looks at who is on a GPU of which less was told
	// than it did, and lookMost the longest.
	lookMean = 100 * time.Millisecond
	lookMost = 10 * lookMean
	// briefFor is how long a process may be seen that lives for a moment. The driver's
	// figures by process tell of any other.
	briefFor = uint64(2 * time.Second)
	// proofLooks is in how many looks whoever did what is missing must have been met, by
	// chance, before it is concluded from what these looks found. That a stranger was never
	// met then has a probability below 10^-8.
	proofLooks = 20
)

// lookAfter is the time until the next look. Whatever happened before, the next look is as
// likely now as at any other moment: a process cannot keep out of its way, and is met as
// often as it is there.
func lookAfter() time.Duration {
	return min(time.Duration(rand.ExpFloat64()*float64(lookMean)), lookMost)
}

// sighting is a process that is on a GPU.
type sighting struct {
	tenant string
	since  uint64
	looks  int
}

// presence is who was seen on one GPU.
type presence struct {
	there map[int]sighting // by pid
	// What follows was found since begun, which is 0 before the first look.
	begun uint64
	looks int
	seen  map[string]bool // whose processes, "" for somebody's without a share
	brief map[string]int  // in how many looks by tenant processes that lived for a moment
	// unknown are processes that ended before it was found out whose they were.
	unknown int
	// missing is what was not told of the time from from to to, in ns.
	missing, from, to uint64
	// told is what was said of the GPU.
	told string
}

func newPresence() *presence {
	return &presence{there: map[int]sighting{}, seen: map[string]bool{}, brief: map[string]int{}}
}

// begin forgets what was found, but for who is there.
func (p *presence) begin(now uint64) {
	clear(p.seen)
	clear(p.brief)
	p.begun, p.looks, p.unknown, p.missing, p.from, p.to = now, 0, 0, 0, 0, 0
}

// meet takes up who is on the GPU now. Who is no longer there has ended, or left it.
func (p *presence) meet(now uint64, found map[int]string, unknown int) {
	if p.begun == 0 {
		p.begin(now)
	}
	for pid, s := range p.there {
		if tenant, still := found[pid]; !still || tenant != s.tenant {
			if now-s.since <= briefFor {
				p.brief[s.tenant] += s.looks
			}
			delete(p.there, pid)
		}
	}
	for pid, tenant := range found {
		s, known := p.there[pid]
		if !known {
			s = sighting{tenant: tenant, since: now}
		}
		s.looks++
		p.there[pid] = s
		p.seen[tenant] = true
	}
	p.looks++
	p.unknown += unknown
}

// miss takes up what was not told of the time from from to to. What was done before the
// looks began proves nothing.
func (p *presence) miss(ns, from, to uint64) {
	if p.begun == 0 || from < p.begun || to <= from {
		return
	}
	if p.from == 0 {
		p.from = from
	}
	p.missing, p.to = p.missing+ns, to
}

// part is the part of the GPU's time that is missing.
func (p *presence) part() float64 {
	return min(float64(p.missing)/float64(max(p.to-min(p.from, p.to), 1)), 1)
}

// judge reports whether there were looks enough to conclude anything, and then which of the
// tenants with shares of the GPU did what is missing, "" where it is not proven. Proven it
// is if nearly all processes that lived for a moment were its own, met so often that they
// can have done it, and nobody was met who has no share here.
func (p *presence) judge(now uint64, tenants []string) (enough bool, culprit string) {
	has := map[string]bool{}
	for _, one := range tenants {
		has[one] = true
	}
	for tenant := range p.seen {
		if !has[tenant] {
			return true, ""
		}
	}
	if p.begun == 0 || now <= p.begun {
		return false, ""
	}
	// Whoever did it was on the GPU for no less time than it used.
	expected := float64(p.missing) * float64(p.looks) / float64(now-p.begun)
	if expected < proofLooks {
		return false, ""
	}
	for tenant, looks := range p.brief {
		if float64(looks) >= expected/2 {
			culprit = tenant // of two such, the other is too many below
		}
	}
	others := p.unknown
	for tenant, looks := range p.brief {
		if tenant != culprit {
			others += looks
		}
	}
	if float64(others) > expected/5 {
		return true, ""
	}
	return true, culprit
}

// suspecting reports whether less was told of some GPU than it did.
func (w *watcher) suspecting() bool {
	for _, suspects := range w.suspects {
		if suspects {
			return true
		}
	}
	return false
}

// look finds out who is on the GPUs of which less was told than they did.
func (w *watcher) look() {
	var indexes []int
	for index, suspects := range w.suspects {
		if suspects && w.presences[index] != nil {
			indexes = append(indexes, index)
		}
	}
	if len(indexes) == 0 {
		return
	}
	now := w.pacer.clock()
	for i, listed := range w.pacer.config.Driver.Holdings(indexes) {
		p := w.presences[indexes[i]]
		if listed.Unlisted != nil {
			p.begin(now) // nobody is blamed for what is not known
			continue
		}
		found, unknown := map[int]string{}, 0
		for _, one := range listed.Processes {
			if tenant, ok := w.whose(one.PID, p); ok {
				found[one.PID] = tenant
			} else {
				unknown++
			}
		}
		p.meet(now, found, unknown)
	}
}

// whose finds the tenant of a process that is on a GPU, "" for somebody's without a share.
// It is not ok if the process ended before that could be found out.
func (w *watcher) whose(pid int, p *presence) (tenant string, ok bool) {
	id, err := process.Find(pid)
	if err == nil {
		tenant = w.pacer.config.Ledger.Owner(pid)
	}
	if tenant == "" && (err != nil || !id.Alive()) {
		s, known := p.there[pid]
		return s.tenant, known
	}
	w.met[pid] = member{tenant, w.rounds}
	return tenant, true
}
