package model

import "slices"

// launch is one piece of work on the GPU's queue of a process.
type launch struct {
	left    uint64 // GPU time it still needs
	charged uint64
	given   uint64 // when it was put there
	begun   uint64 // when the GPU came to it
	ended   uint64
	batch   *batch
}

// gpu gives the processes that have work slices in turn; the first of queue has it.
type gpu struct {
	m     *Model
	queue []*process
	since uint64 // accounted up to here
	fresh uint64 // when the present slice began
	busy  uint64
	plan  uint64 // number of the planned event; earlier ones are void
}

// account books the time since the last booking to the process that has the GPU.
func (g *gpu) account() {
	span := g.m.now - g.since
	g.since = g.m.now
	if len(g.queue) == 0 || span == 0 {
		return
	}
	p := g.queue[0]
	p.own += span
	p.tenant.own += span
	p.work[0].left -= min(span, p.work[0].left)
	g.busy += span
	if p.tenant.Offline {
		g.m.offlineRan(span)
	}
}

// give puts work on a process's queue.
func (g *gpu) give(p *process, l *launch) {
	g.account()
	p.work = append(p.work, l)
	if len(p.work) > 1 {
		return
	}
	g.queue = append(g.queue, p)
	if len(g.queue) == 1 {
		g.turn()
	}
	g.arrange()
}

func (g *gpu) worked() uint64 { return g.busy }

// turn begins a slice of the first process.
func (g *gpu) turn() {
	g.fresh = g.m.now
	g.touch()
}

// touch stamps the first launch of the running process if the GPU just came to it.
func (g *gpu) touch() {
	if l := g.queue[0].work[0]; l.begun == 0 {
		l.begun = g.m.now
	}
}

// arrange plans the next moment at which something happens: a launch ends or a slice does. Slices of a process that
// is alone end too, and it gets the next one.
func (g *gpu) arrange() {
	g.plan++
	if len(g.queue) == 0 {
		return
	}
	span := g.queue[0].work[0].left
	if len(g.queue) > 1 {
		span = min(span, g.m.Slice-(g.m.now-g.fresh)%g.m.Slice)
	}
	plan := g.plan
	g.m.after(span, func() {
		if plan == g.plan {
			g.happen()
		}
	})
}

func (g *gpu) happen() {
	g.account()
	p := g.queue[0]
	var done *launch
	if p.work[0].left == 0 {
		done = p.work[0]
		p.work = slices.Delete(p.work, 0, 1)
	}
	switch {
	case len(p.work) == 0:
		g.queue = slices.Delete(g.queue, 0, 1)
		if len(g.queue) > 0 {
			g.turn()
		}
	case len(g.queue) > 1 && g.m.now > g.fresh && (g.m.now-g.fresh)%g.m.Slice == 0:
		g.queue = append(slices.Delete(g.queue, 0, 1), p)
		g.turn()
	default:
		g.touch()
	}
	g.arrange()
	if done != nil {
		done.ended = g.m.now
		p.finished(done)
	}
}

// drop takes all work of a process that died from the GPU.
func (g *gpu) drop(p *process) {
	g.account()
	at := slices.Index(g.queue, p)
	if at < 0 {
		return
	}
	p.work = nil
	g.queue = slices.Delete(g.queue, at, at+1)
	if at == 0 && len(g.queue) > 0 {
		g.turn()
	}
	g.arrange()
}
