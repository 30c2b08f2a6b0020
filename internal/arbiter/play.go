package arbiter

import "container/heap"

// play moves the replay's clock to the horizon, from stamp to stamp.
func (r *Replay) play(horizon uint64) {
	r.weigh(horizon)
	r.due = r.due[:0]
	due := &r.due
	for _, p := range r.ordered {
		if at, ok := p.next(); ok && at <= horizon {
			*due = append(*due, p)
		}
	}
	heap.Init(due)
	for len(*due) > 0 {
		p := (*due)[0]
		at, _ := p.next()
		r.pass(at)
		if p.inside {
			r.leave(p)
		} else {
			r.enter(p)
		}
		if at, ok := p.next(); ok && at <= horizon {
			heap.Fix(due, 0)
		} else {
			heap.Pop(due)
		}
	}
	r.pass(horizon)
}

// next is the time of the process's next stamp.
func (p *process) next() (at uint64, ok bool) {
	switch {
	case len(p.pending) == 0:
		return 0, false
	case p.inside:
		return p.pending[0].End, true
	default:
		return p.pending[0].Begin, true
	}
}

func (r *Replay) enter(p *process) {
	p.inside, p.own = true, 0
	if p.outside != 0 && p.pending[0].Begin-min(p.outside, p.pending[0].Begin) <= seam && p.left > 0 {
		r.turns.resume(p, p.left)
		return
	}
	r.turns.begin(p)
}

func (r *Replay) leave(p *process) {
	done := p.pending[0]
	p.pending = p.pending[1:]
	p.left = r.turns.end(p)
	p.inside, p.outside = false, done.End
	length := done.End - done.Begin
	r.credit(p, min(uint64(p.own+0.5), length), done.Charged, length)
	p.own = 0
}

// pass advances the clock over a time without stamps.
func (r *Replay) pass(to uint64) {
	for r.clock < to {
		until := to
		var now *round
		for len(r.rounds) > 0 && r.rounds[0].to <= r.clock {
			r.rounds = r.rounds[1:]
		}
		if len(r.rounds) > 0 {
			if now = &r.rounds[0]; now.from > r.clock {
				until, now = min(until, now.from), nil
			} else {
				until = min(until, now.to)
			}
		}
		r.turns.run(until-r.clock, func(p *process, time uint64) {
			p.own += float64(time) * now.kept(p)
		})
		r.clock = until
	}
}

// agenda is a heap of processes by their next stamps. Ends come before begins at the same time, because a process
// that is done makes room for the next one.
type agenda []*process

func (a agenda) Len() int      { return len(a) }
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a agenda) Less(i, j int) bool {
	x, _ := a[i].next()
	y, _ := a[j].next()
	if x != y {
		return x < y
	}
	return a[i].inside && !a[j].inside
}

// Push implements heap.Interface; nothing is pushed.
func (a *agenda) Push(any) {}

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}
