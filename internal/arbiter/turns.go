package arbiter

import "slices"

// turns are the slices that runnable processes take. The first of queue has the GPU.
type turns struct {
	slice uint64
	queue []*process
	left  uint64 // of the slice of the first
	// before is the process of the slice before the present one, if that slice ended by itself.
	before *process
	// ousted is the process that had the GPU when the first of queue began with a stamp.
	ousted *process
}

// run lets the processes take turns for a span and calls gain for each piece.
func (t *turns) run(span uint64, gain func(p *process, time uint64)) {
	n := uint64(len(t.queue))
	switch n {
	case 0:
		return
	case 1:
		// Alone it runs on. The next process begins with a stamp of its own.
		gain(t.queue[0], span)
		return
	}
	if whole := span / (n * t.slice); whole > 0 {
		for _, p := range t.queue {
			gain(p, whole*t.slice)
		}
		span -= whole * n * t.slice
	}
	for span > 0 {
		piece := min(span, t.left)
		gain(t.queue[0], piece)
		span -= piece
		t.left -= piece
		if t.left == 0 {
			t.rotate()
		}
	}
}

func (t *turns) rotate() {
	t.before, t.ousted = t.queue[0], nil
	copy(t.queue, t.queue[1:])
	t.queue[len(t.queue)-1] = t.before
	t.left = t.slice
}

// begin gives the GPU to a process at the stamp of its first command. The process that had it has ended its slice,
// because nothing else takes the GPU away.
func (t *turns) begin(p *process) {
	var ousted *process
	if len(t.queue) > 0 {
		ousted = t.queue[0]
		t.rotate()
	}
	t.before, t.ousted = nil, ousted
	t.queue = slices.Insert(t.queue, 0, p)
	t.left = t.slice
}

// resume gives the GPU back to a process that never left it, with what was left of its slice.
func (t *turns) resume(p *process, left uint64) {
	t.before, t.ousted = nil, nil
	t.queue = slices.Insert(t.queue, 0, p)
	t.left = min(max(left, 1), t.slice)
}

// join adds a process of which it is only known that it has work.
func (t *turns) join(p *process) {
	if len(t.queue) == 0 {
		t.left = t.slice
	}
	t.queue = append(t.queue, p)
}

// end takes the GPU from a process at the stamp of its last command and returns what was left of its slice.
//
// If the replay was in another's slice, slices began at other times than it thought. If the other's slice had just
// begun, it did not begin yet, and its time was this process's. If it began by itself some time ago, it was a whole
// slice that began earlier, and what it lacks was not this process's time. If it began with a stamp, which cannot be
// before this process's own last one, the two clocks differ by that little, and both keep the time, because each had
// as much elsewhere.
func (t *turns) end(p *process) (left uint64) {
	if len(t.queue) == 0 {
		return 0
	}
	first := t.queue[0]
	had := t.slice - min(t.left, t.slice)
	switch {
	case first == p:
		left = t.left
	case t.ousted == p && had < t.slice/2:
		p.own += float64(had)
	case t.before == p && had < t.slice/16:
		moved := min(float64(had), first.own)
		first.own -= moved
		p.own += moved
		t.left = t.slice
	case t.before != nil:
		moved := min(float64(t.slice-had), p.own)
		p.own -= moved
		first.own += moved
		fallthrough
	default:
		t.rotate()
		left = t.slice
	}
	t.leave(p)
	return left
}

// leave removes a process. If it had the GPU, the next one begins a slice.
func (t *turns) leave(p *process) {
	at := slices.Index(t.queue, p)
	if at < 0 {
		return
	}
	t.queue = slices.Delete(t.queue, at, at+1)
	if at == 0 {
		t.left = t.slice
	}
	if t.before == p {
		t.before = nil
	}
	if t.ousted == p || at == 0 {
		t.ousted = nil
	}
}
