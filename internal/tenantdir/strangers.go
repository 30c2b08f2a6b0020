package tenantdir

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
)

// strangers knows processes of other pid namespaces by the numbers that they
// have in the agent's. The zero value is ready.
type strangers struct {
	mu    sync.Mutex // held for a moment
	known map[process.Inner]process.ID
	// search is closed when the search among all processes that goes on has ended, nil
	// while none does. The next may begin when it is due.
	search chan struct{}
	due    time.Time
	namers map[string]*namer
	// outer is [process.Outer] unless a test has another.
	outer func(own uint64) map[process.Inner]process.ID
	// mapped is the id of the tenant whose pages a process has mapped: it keeps
	// them for life, and a program's maps take long to read.
	mapped map[process.ID]string
	// full is how many entries mapped may have before the dead are taken out.
	full int
}

// namer is an owner of tenants whose pages name processes that were searched for.
type namer struct {
	due  time.Time // of the next search for this one
	rest time.Duration
}

// What a page says of its processes is the tenant's word, and may be different every time.
const (
	// searchInterval is the least time between two searches among all processes.
	searchInterval = 200 * time.Millisecond
	// searchPauses is how much longer than a search the pause after it is at least: a
	// user may have tens of thousands of processes.
	searchPauses = 9
	// longestSearchRest is how long an owner waits at most whose pages name processes
	// that are not found. The wait doubles each time.
	longestSearchRest = time.Minute
	// mostSearchWait is how long a look waits for a search, which takes some
	// milliseconds where there are hundreds of processes. What is found later the next
	// look is told.
	mostSearchWait = 50 * time.Millisecond
)

// name fills in the host's numbers of processes in other pid namespaces, which
// only the kernel tells. owner is whose pages name them.
func (s *strangers) name(owner string, processes []page.Process, own uint64) {
	s.mu.Lock()
	missing := s.fill(processes, own)
	if len(missing) == 0 {
		s.mu.Unlock()
		return
	}
	searching := s.begin(owner, missing, own)
	s.mu.Unlock()
	if searching == nil {
		return
	}
	select {
	case <-searching:
	case <-time.After(mostSearchWait):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill(processes, own)
}

// begin searches for what an owner's pages name if that is due, and returns what is closed
// at the end. mu is held.
func (s *strangers) begin(owner string, missing []process.Inner, own uint64) <-chan struct{} {
	if now := time.Now(); s.search != nil || now.Before(s.due) || !s.may(owner, now) {
		return nil
	}
	searching := make(chan struct{})
	s.search = searching
	go func() {
		begun := time.Now()
		outer := s.outer
		if outer == nil {
			outer = process.Outer
		}
		known := outer(own)
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		s.known, s.search, s.due = known, nil, now.Add(max(searchInterval, searchPauses*now.Sub(begun)))
		s.rest(owner, now, slices.ContainsFunc(missing, func(i process.Inner) bool { return known[i] == process.ID{} }))
		close(searching)
	}()
	return searching
}

// may reports whether it is searched for what an owner's pages name. mu is held.
func (s *strangers) may(owner string, now time.Time) bool {
	n := s.namers[owner]
	return n == nil || !now.Before(n.due)
}

// rest notes whether something that an owner's pages name was not found. mu is held.
func (s *strangers) rest(owner string, now time.Time, missing bool) {
	maps.DeleteFunc(s.namers, func(_ string, n *namer) bool { return now.After(n.due.Add(longestSearchRest)) })
	n := s.namers[owner]
	switch {
	case !missing:
		return
	case n == nil:
		n = &namer{rest: searchInterval / 2}
	}
	n.rest = min(2*n.rest, longestSearchRest)
	n.due = now.Add(n.rest)
	if s.namers == nil {
		s.namers = map[string]*namer{}
	}
	s.namers[owner] = n
}

// fill returns those that are said to live and are not known. mu is held.
func (s *strangers) fill(processes []page.Process, own uint64) (missing []process.Inner) {
	for i := range processes {
		p := &processes[i]
		if p.Namespace == own {
			continue
		}
		p.HostPID = 0
		inner := process.Inner{Namespace: p.Namespace, PID: p.PID}
		if id := s.known[inner]; id.Alive() {
			p.HostPID = id.PID
		} else if p.Live {
			missing = append(missing, inner)
		}
	}
	return missing
}

// uses reports whether a process has the pages of one of the tenants mapped, which is
// remembered for as long as the process lives.
func (s *strangers) uses(id process.ID, tenants []backend.Tenant) bool {
	s.mu.Lock()
	mapped := s.mapped[id]
	s.mu.Unlock()
	has := func(t backend.Tenant) bool { return t.ID == mapped }
	if mapped != "" && slices.ContainsFunc(tenants, has) {
		return true
	}
	files := process.UsesOf(id.PID).Mapped()
	i := slices.IndexFunc(tenants, func(t backend.Tenant) bool { return files[stateOf(t)] })
	if i < 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mapped == nil {
		s.mapped = map[process.ID]string{}
	}
	s.mapped[id] = tenants[i].ID
	s.forget()
	return true
}

// leastFull is how many processes are remembered before the first dead are taken out.
const leastFull = 64

// forget takes the dead out of mapped whenever it has doubled. mu is held.
func (s *strangers) forget() {
	if len(s.mapped) < max(s.full, leastFull) {
		return
	}
	maps.DeleteFunc(s.mapped, func(id process.ID, _ string) bool { return !id.Alive() })
	s.full = 2 * len(s.mapped)
}
