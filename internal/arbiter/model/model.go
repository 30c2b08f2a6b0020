// Package model is a virtual GPU with tenants that keep to the library's rules, and the arbiter above them, on a clock
// that only events move. It judges the laws of package arbiter without the noise of a machine: equal seeds give
// equal runs. What it has of the real thing: processes that take time slices in turn, in-order work, launch queues,
// event stamps that are commands of their process, buckets, learned costs, sampled measurement, processors that are
// lost for a while, late rounds of the arbiter, the driver's coarse and late figures. What it has not: streams side by
// side, copies, memory.
package model

import (
	"container/heap"
	"math/rand/v2"
)

// Units of virtual time, ns.
const (
	Microsecond uint64 = 1_000
	Millisecond uint64 = 1_000_000
	Second      uint64 = 1_000_000_000
)

// Options are the machine's ways. The zero value is an exact machine.
type Options struct {
	Seed  uint64
	Slice uint64 // time slice, 1024 us if 0
	// Unlimited takes the arbiter and all limits away: what the tenants get by the hardware alone.
	Unlimited bool
	// Tick is the time between the arbiter's rounds, 5 ms if 0; each comes late by up to TickLate, and once in 50
	// by up to 50 ms if TickLate is not 0.
	Tick, TickLate uint64
	// StampError is how far a process's clock of event stamps may be off; single stamps are off by a twentieth.
	StampError uint64
	// CostError is by what part, 0..1, the cost of single launches differs from what was learned of them.
	CostError float64
	// Stall is how long processes lose their processor, up to, and StallEvery how often, in the mean.
	Stall, StallEvery uint64
	// Play, if not nil, is a GPU to be used in place of the model's own: it answers a line as simgpuctl play does, and
	// its own record is what the tenants' figures are read from.
	Play func(line string) ([]string, error)
	// ArbiterDiesAt stops the arbiter then, ArbiterBackAt starts a new one; 0 for never.
	ArbiterDiesAt, ArbiterBackAt uint64
}

// Model is one run.
type Model struct {
	Options
	now     uint64
	events  events
	order   uint64
	random  *rand.Rand
	gpu     engine
	tenants []*Tenant
	arbiter governor
}

// New makes a machine without tenants; its clock begins at one second, so that 0 is no moment.
func New(o Options) *Model {
	if o.Slice == 0 {
		o.Slice = 1024 * Microsecond
	}
	if o.Tick == 0 {
		o.Tick = 5 * Millisecond
	}
	m := &Model{Options: o, now: Second, random: rand.New(rand.NewPCG(o.Seed, 0x6469767679))}
	m.gpu = &gpu{m: m}
	if o.Play != nil {
		m.gpu = &player{m: m, say: o.Play, launches: map[string][]*launch{}, clients: map[string]*process{}, at: Second}
	}
	m.arbiter.m = m
	if !o.Unlimited {
		m.after(0, m.arbiter.round)
	}
	m.after(0, m.arbiter.sample)
	return m
}

// Now is the virtual time.
func (m *Model) Now() uint64 { return m.now }

// Run lets time pass.
func (m *Model) Run(span uint64) {
	end := m.now + span
	for len(m.events) > 0 && m.events[0].at <= end {
		e, _ := heap.Pop(&m.events).(event)
		m.now = e.at
		e.do()
	}
	m.now = end
	m.gpu.account()
}

// Busy is how long the GPU has had work.
func (m *Model) Busy() uint64 { m.gpu.account(); return m.gpu.worked() }

// engine is the GPU itself.
type engine interface {
	give(p *process, l *launch) // puts work on the process's queue
	account()                   // books GPU time up to now
	drop(p *process)            // ends a process
	worked() uint64             // how long the GPU has had work
}

// at does something at a moment that is not past.
func (m *Model) at(moment uint64, do func()) {
	m.order++
	heap.Push(&m.events, event{at: max(moment, m.now), order: m.order, do: do})
}

func (m *Model) after(span uint64, do func()) { m.at(m.now+span, do) }

// upTo is a random span of at most most.
func (m *Model) upTo(most uint64) uint64 {
	if most == 0 {
		return 0
	}
	return m.random.Uint64N(most + 1)
}

// vary is 1 give or take up to part.
func (m *Model) vary(part float64) float64 { return 1 + part*(2*m.random.Float64()-1) }

type event struct {
	at, order uint64
	do        func()
}

// events is a heap by time, and by order among those of one moment.
type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	if e[i].at != e[j].at {
		return e[i].at < e[j].at
	}
	return e[i].order < e[j].order
}

// Push implements heap.Interface.
func (e *events) Push(x any) {
	if one, ok := x.(event); ok {
		*e = append(*e, one)
	}
}

// Pop implements heap.Interface.
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = event{}
	*e = (*e)[:len(*e)-1]
	return last
}
