package residency

import (
	"cmp"
	"math"
	"slices"
)

const (
	ms     = 1_000_000
	second = 1000 * ms
)

// The terms of turns.
const (
	// Moving is the largest part of a turn that the memory takes which moves when it ends, but for the shortest turns.
	Moving = 0.05
	// Shortest and Longest bound a turn, ns.
	Shortest = 2 * second
	Longest  = 60 * second
	// InARow is how many turns a share has in a row at most while another waits for its room.
	InARow = 10
	// Drain is how long work that runs is waited for when a turn ends, ns.
	Drain = 5 * second
	// rest is how long a share without work counts as working still, ns: it spans the pauses between two launches.
	rest = 20 * ms
	// slack is how much longer than reckoned the moving of memory may take before it is waited for no more.
	slack = 4
)

// GPU is what the swap shares may have of one GPU.
type GPU struct {
	Room uint64 // bytes
	Rate uint64 // bytes a second that move to the GPU or from it, as measured; 0 stands for a rate without bound
}

// Share is what the caller knows of a share. Key tells it from the others and stays the same from one decision to the
// next. Bytes and There have a value for each GPU.
type Share struct {
	Key    string
	Online bool
	Weight int      // 1 or more, 0 stands for 1
	Bytes  []uint64 // what it has to have on the GPU while it runs, at most the GPU's room
	There  []uint64 // how much of it is there
	Waits  bool     // a call waits at its gate
	Works  bool     // it has work on a GPU, or had some since the last decision
	// Done: entering, what it was to bring is there; leaving, nothing of it runs, and what it was to give is away; away, it
	// has taken notice of that, or of the end of its turn.
	Done bool
}

// State is where a share stands.
type State int

// The states. The gate of a share is open while it is Resident, and closed in the others.
const (
	Away     State = iota
	Entering       // it brings its memory
	Resident       // it runs
	Leaving        // its work is waited for, then it gives away what another lacks
)

// Order is what the caller does about a share.
type Order struct {
	State State
	Give  []uint64 // leaving: the bytes that it gives away on each GPU
	Late  bool     // away: its work had not ended when others entered
	// Until is when its turn ends if others wait for its room, or when its own begins, as far as time alone decides;
	// 0 if nobody waits.
	Until uint64
}

// Law keeps what it decided of each share. Its zero value is ready.
type Law struct {
	records map[string]*record
	last    uint64
	gpus    []GPU
}

// unset is the virtual time of a share that has just come.
const unset = -1

type record struct {
	Share
	Order
	seen      uint64  // the decision that last saw it
	since     uint64  // when its state began
	began     uint64  // when it was last away
	worked    uint64  // when it last had work
	slept     uint64  // when it last stopped to want anything
	asked     uint64  // when it began to wait, 0 if it does not
	wanted    bool    // at the last decision it wanted to run
	grew      bool    // it has more bytes than at the last decision
	came      bool    // it entered because it asked to
	displaced bool    // it left with work to do, or had asked for a turn that it did not use
	silence           // since it did not answer when it last left
	past      float64 // virtual time: ns of its turns by its weight
}

func (r *record) weight() float64 { return float64(max(1, r.Weight)) }

// wants tells whether a share works or would.
func (r *record) wants(now uint64) bool { return r.asks() || now-r.worked < rest }

// asks tells whether it is to have a turn.
func (r *record) asks() bool { return r.asked != 0 && !r.barred }

// Decide returns what holds for each share from now on, in the order of shares, and when it should be asked again at
// the latest, if nothing that it was told changes: MaxUint64 if time alone changes nothing.
func (l *Law) Decide(now uint64, gpus []GPU, shares []Share) (orders []Order, next uint64) {
	l.gpus = gpus
	present := l.take(now, shares)
	l.charge(now, present)
	l.place(now, present)
	next = math.MaxUint64
	again := func(at uint64) {
		if at > now {
			next = min(next, at)
		}
	}
	for _, r := range present {
		again(l.proceed(now, r))
	}
	l.shrink(now, present)
	l.admit(now, present, again)
	l.last = now
	orders = make([]Order, len(present))
	for i, r := range present {
		orders[i] = r.Order
	}
	return orders, next
}

// take brings the records up to date with what the caller tells.
func (l *Law) take(now uint64, shares []Share) []*record {
	if l.records == nil {
		l.records = map[string]*record{}
	}
	present := make([]*record, len(shares))
	for i, s := range shares {
		r := l.records[s.Key]
		if r == nil {
			// It has no memory yet, so it fits. When it takes some, shrink judges.
			r = &record{Order: Order{State: Resident}, since: now, began: now, slept: now, past: unset}
			l.records[s.Key] = r
		}
		r.grew = more(s.Bytes, r.Bytes)
		r.Share, r.seen, r.Until = s, now, 0
		r.hear(now)
		present[i] = r
	}
	for key, r := range l.records {
		if r.seen != now {
			delete(l.records, key)
		}
	}
	return present
}

// place gives who has just come, or comes back, its virtual time among the others.
func (l *Law) place(now uint64, present []*record) {
	for _, r := range present {
		if r.past == unset {
			r.past = 0
			r.past = l.floor(now, r)
		}
		switch wants := r.wants(now); {
		case r.wanted && !wants:
			r.wanted, r.slept = false, r.worked
		case wants && !r.wanted:
			r.wanted = true
			r.past = max(r.past, l.floor(now, r)-float64(Longest)/r.weight())
		}
	}
}

// hear takes up whether a share works, waits and answers.
func (r *record) hear(now uint64) {
	if r.Works {
		r.worked = now
	}
	r.listen(now)
	switch {
	case !r.Waits:
		r.asked = 0
	case r.asked == 0, r.barred:
		r.asked = max(1, now)
	}
}

// floor is the least virtual time of the other shares that want to run, or its own if there are none.
func (l *Law) floor(now uint64, who *record) float64 {
	least := math.Inf(1)
	for _, r := range l.records {
		if r != who && r.past != unset && r.wants(now) {
			least = min(least, r.past)
		}
	}
	if math.IsInf(least, 1) {
		return who.past
	}
	return least
}

// charge adds the time since the last decision to the turns of those that used it, or kept others from using it.
func (l *Law) charge(now uint64, present []*record) {
	waited := slices.ContainsFunc(present, func(r *record) bool { return r.State == Away && r.asks() })
	for _, r := range present {
		if r.State != Away && (waited || r.wants(now)) {
			r.past += float64(now-max(l.last, r.began)) / r.weight()
		}
	}
}

// proceed ends what has an end of its own, entering and leaving, and returns when it ends by time alone.
func (l *Law) proceed(now uint64, r *record) uint64 {
	var bound uint64
	switch r.State {
	case Entering:
		bound = r.since + slack*l.span(l.lacks(r)) + second
	case Leaving:
		bound = r.since + Drain
		if !r.Works {
			bound += slack * l.span(r.Give)
		}
	default:
		return math.MaxUint64
	}
	if !r.Done && now < bound {
		return bound
	}
	if r.State == Entering {
		l.move(now, r, Resident)
	} else {
		late := r.Works
		r.answer(now)
		l.move(now, r, Away)
		r.Late = late
	}
	return math.MaxUint64
}

func (l *Law) move(now uint64, r *record, to State) {
	if r.State == Away {
		r.began = now
	}
	r.Order = Order{State: to}
	r.since = now
	r.came = r.came || to == Entering
}

// leave has shares leave, for one that enters or for none. Together they give what those that are then there lack of free
// memory, the first of them first.
func (l *Law) leave(now uint64, leavers, present []*record, enters *record) {
	for _, r := range leavers {
		r.displaced = r.wants(now) || r.came && r.worked < r.since
		l.move(now, r, Leaving)
		r.Give = make([]uint64, len(l.gpus))
	}
	for g, gpu := range l.gpus {
		var there, lacking uint64
		for _, r := range present {
			there += r.There[g]
			if r == enters || r.State == Resident || r.State == Entering {
				lacking += r.Bytes[g] - min(r.Bytes[g], r.There[g])
			}
		}
		short := lacking - min(lacking, gpu.Room-min(gpu.Room, there))
		for _, r := range leavers {
			r.Give[g] = min(short, r.There[g])
			short -= r.Give[g]
		}
	}
}

// admit has those enter that wait, as far as there is room or others may leave for them.
func (l *Law) admit(now uint64, present []*record, again func(uint64)) {
	var waiting []*record
	for _, r := range present {
		if r.State == Away && r.asked != 0 {
			waiting = append(waiting, r)
		}
	}
	slices.SortFunc(waiting, before)
	kept := make([]uint64, len(l.gpus)) // room for those that wait for leavers
	for _, r := range waiting {
		if r.barred {
			if _, free := l.space(r, present, kept); !free || !waiting[0].barred {
				r.Until = r.over
				again(r.over)
				again(r.quietAt())
				continue
			}
		}
		if l.enter(now, r, present, kept, again) {
			continue
		}
		if now-r.asked > Longest {
			return // who came after it would keep it out for ever
		}
		again(r.asked + Longest + 1)
	}
}

// before orders shares that wait: online ones whose turn has not just ended, then who had less, then who waits for
// longer. Those that others need not make room for are last.
func before(a, b *record) int {
	return cmp.Or(rank(a)-rank(b), cmp.Compare(a.past, b.past), cmp.Compare(a.asked, b.asked), cmp.Compare(a.Key, b.Key))
}

func rank(r *record) int {
	switch {
	case r.barred:
		return 2
	case r.Online && !r.displaced:
		return 0
	}
	return 1
}

// enter has a share enter if there is room, or others leave for it, and reports whether it will enter.
func (l *Law) enter(now uint64, r *record, present []*record, kept []uint64, again func(uint64)) bool {
	lacks, free := l.space(r, present, kept)
	if free {
		l.move(now, r, Entering)
		return true
	}
	if slices.Max(lacks) == 0 { // those that leave make room
		l.keep(kept, r)
		return true
	}
	chosen := l.leavers(now, r, present, lacks, again)
	if chosen == nil {
		return false
	}
	l.leave(now, chosen, present, r)
	l.keep(kept, r)
	return true
}

// space is what has to become free on each GPU for a share beyond what those have that leave, and whether all is free.
func (l *Law) space(r *record, present []*record, kept []uint64) (lacks []uint64, free bool) {
	lacks, free = make([]uint64, len(l.gpus)), true
	for g, gpu := range l.gpus {
		used, going := kept[g], uint64(0)
		for _, other := range present {
			switch other.State {
			case Away:
			case Leaving:
				going += other.Bytes[g]
			default:
				used += other.Bytes[g]
			}
		}
		free = free && used+going+r.Bytes[g] <= gpu.Room
		if needed := used + r.Bytes[g]; needed > gpu.Room {
			lacks[g] = needed - gpu.Room
		}
	}
	return lacks, free
}

func (l *Law) keep(kept []uint64, r *record) {
	for g := range kept {
		kept[g] += r.Bytes[g]
	}
}
