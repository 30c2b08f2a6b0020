package process

import (
	"cmp"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Opened is who has files or device nodes open, and of whom that could not be told. A descriptor that is on its way through
// a socket, or that io_uring alone keeps, is in no process's list: who has it is in neither, though fdinfo
// counts them (scm_fds, UserFiles).
type Opened struct {
	// By are the living processes that have each one open or mapped.
	By [][]ID
	// Closed is how many processes may not be looked at. Cut are those that were not looked through in time.
	Closed int
	Cut    []ID
	// Nameless have devices of VFIO open of which the kernel does not tell the group.
	Nameless []ID
	// NamesOnly is true where so many looks sleep already that names alone were compared: who has a node open by another name, or
	// mapped, was not seen.
	NamesOnly bool
}

// limits are when a look ends: once so many descriptors and mappings were looked at; after enough time, if nobody has ended a part of
// it in so many glances at it, as all who look sleep in the kernel; and at last in any case. A slow machine takes longer for the same,
// and one on which this process has no processor for a while glances once in all that time.
type limits struct {
	cost           int
	enough, atLast time.Duration
	quiet          int
}

// usual costs about a second.
var usual = limits{cost: 300_000, enough: time.Second, quiet: 10, atLast: 10 * time.Second}

const (
	// chunk is how many descriptors of a process are looked at before others have their turn.
	chunk = 1024
	// late is for how long one process is waited for before another one is looked at beside it, and the time between two glances.
	late = 50 * time.Millisecond
	// mostBeside is how many are looked at beside those that are late, mostAsleep how many may sleep in the kernel in all.
	mostBeside = 16
	mostAsleep = 64
	// mostKnown bounds how many files that are mapped are kept in mind.
	mostKnown = 1 << 16
)

// Look finds who has each of some files or device nodes open or mapped, by whatever name. Nodes are compared by their numbers,
// because a node may be mounted elsewhere or made anew; where a file is not here, by its name. What each process has open is
// looked through in turns, and so are the cgroups and their users, so that nobody who has much hides what another one has.
func Look(paths ...string) Opened {
	l := newLook(paths)
	l.list(time.Now().Add(usual.atLast))
	return l.run(usual)
}

// look is one of them.
type look struct {
	paths []string
	files map[identity]int
	// places are where the files lie. Names are of files that are not here, and allNames of all of them.
	places          map[File]int
	names, allNames map[string]int
	// shy is true where too many looks sleep already: then names alone are compared.
	shy bool
	// workers is how many look at once. step looks at a part of what a process has open, and tells what is left of it.
	workers int
	step    func(p *part) (cost int, more bool)

	mu      sync.Mutex
	ready   *sync.Cond
	waiting turns
	left    int // how many parts wait
	busy    map[ID]time.Time
	ended   bool
	// cost is what all parts cost until now, and most what they may; quiet counts the glances since the last one ended.
	cost, most, quiet int
	others            map[string]bool // files that are mapped and not looked for, as maps has them
	found             []map[ID]bool
	vfio              map[ID]grip
	cut               map[ID]bool
	closed            map[ID]bool
}

// part is what is looked at without a break.
type part struct {
	id ID
	// whose are the turns in which it is looked at.
	whose *turns
	// dir is the folder of a process or of one of its threads.
	dir  string
	what stage
	// from is the number of the first descriptor.
	from int
	// others are the threads with descriptors of their own that are still to be looked at.
	others []string
	// mapped is true once mappings were seen, which all threads share.
	mapped bool
}

// stage is in which order a process is looked through.
type stage int

const (
	descriptors stage = iota
	mappings
	threads
)

// grip is what of VFIO a process has open.
type grip struct{ device, group bool }

// asleep has the processes at which somebody has not ended to look.
var asleep = struct {
	sync.Mutex
	ids map[ID]bool
}{ids: map[ID]bool{}}

func newLook(paths []string) *look {
	l := &look{
		paths: paths, files: map[identity]int{}, places: map[File]int{}, names: map[string]int{}, allNames: map[string]int{},
		workers: min(runtime.NumCPU(), 4), busy: map[ID]time.Time{},
		others: map[string]bool{}, vfio: map[ID]grip{}, cut: map[ID]bool{}, closed: map[ID]bool{},
	}
	l.ready, l.step = sync.NewCond(&l.mu), l.lookAt
	for i, path := range paths {
		l.found = append(l.found, map[ID]bool{})
		l.allNames[path] = i
		id, at, err := identify(path)
		if err != nil {
			l.names[path] = i
			continue
		}
		l.files[id], l.places[at] = i, i
	}
	return l
}

// run looks at the processes that wait until they are through, or the limits are reached.
func (l *look) run(most limits) Opened {
	begun := time.Now()
	l.mu.Lock()
	l.most = most.cost
	l.mu.Unlock()
	done := make(chan struct{})
	workers := l.workers
	for range workers {
		go l.work()
	}
	go func() {
		defer close(done)
		l.mu.Lock()
		defer l.mu.Unlock()
		for !l.ended && l.cost < l.most && (len(l.busy) > 0 || l.left > 0) {
			l.ready.Wait()
		}
	}()
	beside := time.NewTicker(late)
	defer beside.Stop()
	for {
		select {
		case <-done:
			return l.end()
		case <-beside.C:
			quiet := l.glance()
			if took := time.Since(begun); took > most.atLast || took > most.enough && quiet > most.quiet {
				return l.end()
			}
			if workers < l.workers+mostBeside && l.areLate() {
				workers++
				go l.work()
			}
		}
	}
}

// list has all processes looked at, of each user those first that have room for few descriptors: they are through at once.
func (l *look) list(until time.Time) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	asleep.Lock()
	sleep := maps.Clone(asleep.ids)
	asleep.Unlock()
	l.shy = len(sleep) >= mostAsleep
	var all []listed
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		s, err := read(pid)
		if err != nil || s.dead {
			continue
		}
		id := ID{PID: pid, Start: s.start}
		if sleep[id] || time.Now().After(until) {
			l.cut[id] = true
			continue
		}
		path, room := party(pid)
		all = append(all, listed{part{id: id, whose: l.waiting.of(path...), dir: "/proc/" + entry.Name()}, room})
	}
	slices.SortStableFunc(all, func(a, b listed) int { return cmp.Compare(a.room, b.room) })
	for _, a := range all {
		l.wait(a.part)
	}
}

// listed is the first part of a process, which has room for so many descriptors.
type listed struct {
	part
	room int
}

// wait has a part wait for its turn.
func (l *look) wait(p part) {
	p.whose.put(p)
	l.left++
}

// glance counts in how many glances nobody has ended a part.
func (l *look) glance() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quiet++
	return l.quiet
}

// areLate tells whether all who look wait for a process.
func (l *look) areLate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.busy) == 0 || l.left == 0 {
		return false
	}
	for _, since := range l.busy {
		if time.Since(since) < late {
			return false
		}
	}
	return true
}

// take is the next part: of those at whose processes was looked least.
func (l *look) take() (p part, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.ended {
		if p, found = l.waiting.take(); found {
			l.left--
			l.busy[p.id] = time.Now()
			return p, true
		}
		if len(l.busy) == 0 {
			return p, false
		}
		l.ready.Wait()
	}
	return p, false
}

// work looks at one part after the other.
func (l *look) work() {
	for {
		p, found := l.take()
		if !found {
			return
		}
		cost, more := l.step(&p)
		l.mu.Lock()
		p.whose.spend(cost)
		l.cost, l.quiet = l.cost+cost, 0
		if more {
			l.wait(p)
		}
		delete(l.busy, p.id)
		l.ready.Broadcast()
		over := l.ended
		l.mu.Unlock()
		if over {
			asleep.Lock()
			delete(asleep.ids, p.id)
			asleep.Unlock()
			return
		}
	}
}

// end tells what was found until now.
func (l *look) end() Opened {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.ready.Broadcast()
	asleep.Lock()
	defer asleep.Unlock()
	for id := range l.busy {
		l.cut[id], asleep.ids[id] = true, true
	}
	for p, waits := l.waiting.take(); waits; p, waits = l.waiting.take() {
		l.cut[p.id] = true
	}
	l.left = 0
	told := Opened{Closed: len(l.closed), Cut: sorted(l.cut), NamesOnly: l.shy}
	for _, ids := range l.found {
		told.By = append(told.By, sorted(ids))
	}
	nameless := map[ID]bool{}
	for id, g := range l.vfio {
		if g.device && !g.group {
			nameless[id] = true
		}
	}
	told.Nameless = sorted(nameless)
	return told
}

// sorted are processes by their numbers.
func sorted(ids map[ID]bool) []ID {
	return slices.SortedFunc(maps.Keys(ids), func(a, b ID) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Start, b.Start)) })
}

// isOver tells whether nobody waits any more for what is looked at.
func (l *look) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}
