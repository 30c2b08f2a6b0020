package model

import "github.com/divvy-gpu/divvy/internal/arbiter"

// The library's constants.
const (
	batchMost    = 2 * Millisecond   // estimated work of one batch
	batchCount   = 64                // launches of one batch
	sampleBelow  = 100 * Microsecond // synchronised work shorter than this is measured only now and then
	sampleEvery  = 8
	pollEvery    = Millisecond // how often events are looked at when nothing else happens
	wakeLate     = 60 * Microsecond
	longestWait  = 5 * Second
	queueMost    = 1024 // launches that fit in the driver's queue
	ringLength   = 16
	defaultThink = 5 * Microsecond
)

// batch is work between two events.
type batch struct {
	launches   int
	unfinished int
	closed     bool
	measured   bool
	raw        float64 // learned costs before stretch
	charged    uint64
	begin, end uint64
	given      uint64
}

// process is one process with the library in it.
type process struct {
	m      *Model
	tenant *Tenant
	key    string
	dead   bool
	own    uint64

	work       []*launch // on the GPU's queue
	inflight   uint64    // charged for work
	sinceSync  int
	waitsSync  bool
	waitsDepth bool
	waitsSince uint64
	arrivals   []uint64 // requests that came
	stalled    uint64   // has no processor until then

	cost    float64 // per launch
	high    int     // samples in a row that looked like a neighbour's slice
	learned bool    // the cost was; until then one launch is given at a time
	batches []*batch
	formed  int
	polled  bool

	offset   uint64 // by which its stamps are late
	anchored uint64

	// The worker in the state page.
	count      uint32
	ring       []arbiter.Interval
	openSince  uint64
	openUntil  uint64
	unmeasured uint64
	lastEnd    uint64
}

func (p *process) nextRequest() {
	gap := uint64(p.tenant.arrivals.ExpFloat64() / p.tenant.Requests * float64(Second))
	p.m.after(gap, func() {
		if p.dead {
			return
		}
		if !p.tenant.idle {
			p.m.gpu.account()
			p.arrivals = append(p.arrivals, p.m.now)
			if len(p.arrivals) == 1 {
				p.step()
			}
		}
		p.nextRequest()
	})
}

// step is the program's loop: it launches once, or finds why not.
func (p *process) step() {
	if p.dead {
		return
	}
	m, t := p.m, p.tenant
	if m.StallEvery > 0 && m.random.Uint64N(m.StallEvery) < p.pace() {
		p.stalled = m.now + m.upTo(m.Stall)
	}
	switch {
	case p.stalled > m.now:
		m.at(p.stalled, p.step)
	case t.idle && t.Requests == 0:
		p.closeBatch()
		m.after(Millisecond/4, p.step)
	case t.Sync > 0 && p.sinceSync >= t.Sync:
		p.sync()
	case len(p.work) >= queueMost:
		m.after(p.work[0].left+wakeLate, p.step)
	case t.Lie == Truth && t.budget.given.Limited && !m.Unlimited && !p.admitted():
	default:
		p.launch()
		m.after(p.pace(), p.step)
	}
}

func (p *process) pace() uint64 {
	if p.tenant.Think > 0 {
		return p.tenant.Think
	}
	return defaultThink
}

// sync waits for all work; finished goes on.
func (p *process) sync() {
	p.closeBatch()
	if len(p.work) > 0 {
		p.waitsSync = true
		return
	}
	p.synced()
}

func (p *process) synced() {
	p.waitsSync, p.sinceSync = false, 0
	p.tell()
	t := p.tenant
	if t.Requests > 0 {
		t.latencies = append(t.latencies, p.m.now-p.arrivals[0])
		p.arrivals = p.arrivals[1:]
		if len(p.arrivals) > 0 {
			p.m.after(p.pace(), p.step)
		}
		return
	}
	p.m.after(p.pace()+t.SyncThink, p.step)
}

// admitted is the library's gate. If it says no, it has arranged for the next attempt.
func (p *process) admitted() bool {
	m, t := p.m, p.tenant
	t.refill()
	if p.waitsSince == 0 {
		p.waitsSince = m.now
	}
	late := m.now-p.waitsSince >= longestWait
	switch {
	case late:
		t.bucket.overdrawn++
	case t.budget.given.Yield && m.onlineBusy():
		m.after(50*Microsecond, p.step)
		return false
	case t.bucket.balance < 0:
		t.bucket.wanted = m.now
		p.closeBatch()
		wait := uint64(float64(-t.bucket.balance)/max(t.rate(), 0.001)) + m.upTo(wakeLate)
		m.after(min(max(wait, Microsecond), 2*Millisecond), p.step)
		p.poll()
		return false
	case len(p.work) > 0 && (!p.learned || p.inflight+uint64(p.cost*t.budget.stretch) > t.budget.given.Depth):
		t.bucket.wanted = m.now
		p.waitsDepth = true
		p.closeBatch()
		return false
	}
	p.waitsSince = 0
	return true
}

func (p *process) launch() {
	m, t := p.m, p.tenant
	p.sinceSync++
	cost := max(uint64(float64(t.Kernel)*m.vary(m.CostError)), 1)
	if !t.budget.given.Limited {
		m.gpu.give(p, &launch{left: cost})
		return
	}
	now := m.now
	charge := uint64(p.cost * t.budget.stretch)
	t.bucket.balance -= int64(charge)
	t.bucket.charged += charge
	t.bucket.launches++
	if len(p.work) == 0 {
		p.closeBatch() // a batch is work without a gap
	}
	if n := len(p.batches); n == 0 || p.batches[n-1].closed {
		p.formed++
		measured := !p.learned || t.Sync == 0 || p.cost*float64(t.Sync) > float64(sampleBelow) || p.formed%sampleEvery == 0
		p.batches = append(p.batches, &batch{given: now, measured: measured})
	}
	b := p.batches[len(p.batches)-1]
	b.launches++
	b.unfinished++
	b.raw += p.cost
	b.charged += charge
	p.inflight += charge
	m.gpu.give(p, &launch{left: cost, charged: charge, given: now, batch: b})
	if b.charged >= batchMost || b.launches >= batchCount {
		p.closeBatch()
	}
	p.tell()
	p.poll()
}

func (p *process) closeBatch() {
	if n := len(p.batches); n > 0 {
		p.batches[n-1].closed = true
	}
}

// finished is the GPU's end of a launch; begin and end of its batch are stamps of this process.
func (p *process) finished(l *launch) {
	if b := l.batch; b != nil {
		p.inflight -= l.charged
		b.unfinished--
		if b.begin == 0 {
			b.begin = l.begun
		}
		b.end = l.ended
	}
	switch {
	case p.dead:
	case p.waitsSync && len(p.work) == 0:
		p.m.after(p.m.upTo(10*Microsecond), p.synced)
		p.waitsSync = false
	case p.waitsDepth:
		p.waitsDepth = false
		p.m.after(p.m.upTo(wakeLate), p.step)
	}
}

// poll is the library's thread that looks at events when the program does not.
func (p *process) poll() {
	if p.polled {
		return
	}
	p.polled = true
	p.m.after(pollEvery, func() {
		p.polled = false
		if p.dead {
			return
		}
		if p.stalled <= p.m.now {
			if len(p.work) == 0 {
				p.closeBatch()
			}
			p.tell()
		}
		if len(p.batches) > 0 {
			p.poll()
		}
	})
}

// tell writes what is known into the worker.
func (p *process) tell() {
	for len(p.batches) > 0 && p.batches[0].closed && p.batches[0].unfinished == 0 {
		b := p.batches[0]
		p.batches = p.batches[1:]
		if !b.measured {
			p.unmeasured += b.charged
			continue
		}
		p.anchor()
		begin := max(b.begin+p.offset+p.m.upTo(p.m.StampError/20), p.lastEnd)
		end := max(b.end+p.offset+p.m.upTo(p.m.StampError/20), begin)
		p.write(arbiter.Interval{Begin: begin, End: end, Charged: b.charged})
		p.lastEnd = end
		p.learn(float64(end-begin) / float64(b.launches))
	}
	p.openSince, p.openUntil = 0, 0
	if len(p.batches) > 0 {
		p.openSince = max(p.batches[0].given, p.lastEnd)
		p.openUntil = p.m.now + p.inflight
	}
}

func (p *process) learn(cost float64) {
	if !p.learned {
		p.cost, p.learned = cost, true
		return
	}
	if p.high++; cost > 3*p.cost+512_000 && p.high < 8 {
		return // a neighbour's slice was between the stamps
	}
	p.high = 0
	p.cost += (cost - p.cost) / 4
}

// anchor finds anew, once a second, how the GPU's clock and the processor's belong together.
func (p *process) anchor() {
	if p.m.now >= p.anchored+Second {
		p.anchored, p.offset = p.m.now, p.m.upTo(p.m.StampError)
	}
}

func (p *process) write(one arbiter.Interval) {
	p.count++
	p.ring = append(p.ring, one)
	if len(p.ring) > ringLength {
		p.ring = p.ring[1:]
	}
}
