// Package model is a virtual GPU with tenants that keep to the library's rules, and the arbiter above them, on a clock
// that only events move. Tests and benchmarks of package arbiter use it to judge its laws without the noise of a
// machine: equal seeds give equal runs. It has processes that take time slices in turn, in-order work, launch queues,
// event stamps that are commands of their process, buckets, learned costs, sampled measurement, processes that lose
// their processor for a while, late rounds of the arbiter, and the driver's coarse and late figures. It has no
// concurrent streams, copies or memory.
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

// Options say how the machine deviates from an exact one, which the zero value is.
type Options struct {
	Seed  uint64
	Slice uint64 // time slice, 1024 us if 0
	// Unlimited leaves out the arbiter and all limits, to show what tenants get from the hardware alone.
	Unlimited bool
	// Tick is the time between the arbiter's rounds, 10 ms if 0, as the agent's; each comes late by up to TickLate, and once in 50
	// by up to 50 ms if TickLate is not 0.
	Tick, TickLate uint64
	// StampError is how far a process's clock of event stamps may be off; single stamps are off by a twentieth.
	StampError uint64
	// CostError is the part, 0 to 1, by which the cost of single launches may differ from the learned one.
	CostError float64
	// Stall is the longest time for which a process loses its processor, StallEvery the mean time between two of them.
	Stall, StallEvery uint64
	// Play, if not nil, is used instead of the model's own GPU: it answers a line as simgpuctl play does, and the
	// tenants' figures are read from its record.
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

// New makes a machine without tenants; its clock begins at one second, so that 0 can mean never.
func New(o Options) *Model {
	if o.Slice == 0 {
		o.Slice = 1024 * Microsecond
	}
	if o.Tick == 0 {
		o.Tick = 10 * Millisecond
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
