package residency_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/divvy-gpu/divvy/internal/residency"
)

const (
	ms     = uint64(1_000_000)
	second = 1000 * ms
	mib    = uint64(1) << 20
	gib    = 1024 * mib
)

// tenant is a modelled share: it works for a while, which it asks for anew after each pause.
type tenant struct {
	residency.Share
	work  func() uint64 // ns of GPU time that it asks for
	pause func() uint64 // ns until it asks again

	order    residency.Order
	left     uint64 // of its work
	wakes    uint64 // when its pause ends
	kernel   uint64 // ns that its last kernel runs on after its gate closed
	stays    uint64 // when this kernel ends, while it leaves
	moved    uint64 // when its moving ends
	moving   bool
	stuck    bool   // its kernel never ends
	worked   bool   // since the last decision
	asked    uint64 // when it last began to wait for its gate
	arrived  uint64
	gpuTime  uint64
	waited   uint64 // ns at its gate and for its memory
	longest  uint64 // the longest single wait
	inBytes  uint64
	outBytes uint64
}

// machine moves memory in one queue for each GPU, and runs what is resident in equal parts.
type machine struct {
	t       *testing.T
	law     residency.Law
	gpus    []residency.GPU
	tenants []*tenant
	now     uint64
	queues  []uint64 // until when each GPU's moves take
	changes int      // how often a share left
	turns   int      // how often a gate opened
	born    int
	spent   uint64 // ns in which memory moved
	// judge is called after each decision.
	judge func(m *machine)
}

func newMachine(t *testing.T, gpus ...residency.GPU) *machine {
	return &machine{t: t, gpus: gpus, queues: make([]uint64, len(gpus)), now: second}
}

func always(n uint64) func() uint64 { return func() uint64 { return n } }

// busy works without pause.
func busy() (work, pause func() uint64) { return always(1 << 58), always(0) }

func (m *machine) add(name string, weight int, work, pause func() uint64, bytes ...uint64) *tenant {
	one := &tenant{Share: residency.Share{Key: name, Weight: weight, Bytes: bytes, There: make([]uint64, len(m.gpus))}, work: work, pause: pause,
		kernel: 10 * ms, wakes: m.now}
	m.tenants = append(m.tenants, one)
	return one
}

func (m *machine) remove(one *tenant) {
	for i, other := range m.tenants {
		if other == one {
			m.tenants = append(m.tenants[:i], m.tenants[i+1:]...)
			return
		}
	}
}

// run lets time pass, from event to event.
func (m *machine) run(span uint64) {
	for end := m.now + span; m.now < end; {
		for _, one := range m.tenants {
			if one.left == 0 && one.wakes <= m.now {
				one.left, one.asked = one.work(), m.now
			}
		}
		next := min(end, m.decide(), m.settle())
		for _, one := range m.tenants {
			next = min(next, m.acts(one))
		}
		if next <= m.now {
			m.t.Fatalf("time stands still at %d ms: %s", m.now/ms, m)
		}
		m.pass(next)
	}
}

// acts is when a tenant does something next.
func (m *machine) acts(one *tenant) uint64 {
	switch {
	case one.left == 0:
		return one.wakes
	case one.running():
		return m.now + one.left*uint64(max(1, m.runners()))
	}
	return math.MaxUint64
}

func (t *tenant) running() bool { return t.left > 0 && t.order.State == residency.Resident }

func (m *machine) runners() (n int) {
	for _, one := range m.tenants {
		if one.running() {
			n++
		}
	}
	return n
}

// pass moves on to a time.
func (m *machine) pass(to uint64) {
	n := uint64(max(1, m.runners()))
	span := to - m.now
	for _, one := range m.tenants {
		switch {
		case one.running():
			done := min(one.left, span/n)
			if done == 0 {
				done = min(one.left, 1)
			}
			one.left -= done
			one.gpuTime += done
			one.worked = true
			if one.left == 0 {
				one.wakes = to + one.pause()
			}
		case one.left > 0:
			one.waited += span
		}
	}
	m.now = to
}

// settle ends moves that are over, begins those that are ordered, and returns when the next ends.
func (m *machine) settle() uint64 {
	next := uint64(math.MaxUint64)
	for _, one := range m.tenants {
		switch one.order.State {
		case residency.Leaving:
			if one.stuck {
				continue
			}
			if !one.moving && m.now >= one.stays {
				m.give(one)
			}
			next = min(next, max(one.stays, one.moved))
			if !one.moving {
				next = one.stays
			}
		case residency.Away:
			if one.stays > m.now {
				next = min(next, one.stays)
			}
		case residency.Entering:
			if !one.moving {
				m.bring(one)
			}
			next = min(next, one.moved)
		}
	}
	if next <= m.now {
		return m.now + 1
	}
	return next
}

func (m *machine) give(one *tenant) {
	one.moving, one.moved = true, m.now
	for g, n := range one.order.Give {
		n = min(n, one.There[g])
		one.There[g] -= n
		one.outBytes += n
		one.moved = max(one.moved, m.transfer(g, n))
	}
}

func (m *machine) bring(one *tenant) {
	one.moving, one.moved = true, m.now
	for g, n := range one.Bytes {
		lacks := n - one.There[g]
		moved := lacks
		for lacks > m.free(g) {
			victim := m.oldest(g, one)
			if victim == nil {
				m.t.Fatalf("there is no room for %s on GPU %d: %s", one.Key, g, m)
			}
			out := min(victim.There[g], lacks-m.free(g))
			victim.There[g] -= out
			victim.outBytes += out
			moved += out
		}
		one.There[g] = n
		one.inBytes += lacks
		one.moved = max(one.moved, m.transfer(g, moved))
	}
	one.arrived = m.now
}

func (m *machine) free(g int) uint64 {
	room := m.gpus[g].Room
	for _, one := range m.tenants {
		room -= one.There[g]
	}
	return room
}

// oldest is who came longest ago of those that are away and have memory on a GPU.
func (m *machine) oldest(g int, but *tenant) (found *tenant) {
	for _, one := range m.tenants {
		if one != but && one.There[g] > 0 && (one.order.State == residency.Away || one.stuck) && (found == nil || one.arrived < found.arrived) {
			found = one
		}
	}
	return found
}

// transfer queues bytes and returns when they have moved.
func (m *machine) transfer(g int, n uint64) uint64 {
	takes := uint64(float64(n) / float64(m.gpus[g].Rate) * float64(second))
	m.queues[g] = max(m.queues[g], m.now) + takes
	m.spent += takes
	return m.queues[g]
}

// decide asks the law, carries its orders out, and returns when it wants to be asked again.
func (m *machine) decide() uint64 {
	shares := make([]residency.Share, len(m.tenants))
	again := false // what the law is told now is not so at the next moment
	for i, one := range m.tenants {
		s := one.Share
		state := one.order.State
		s.Waits = one.left > 0 && state != residency.Resident
		leaving, away := state == residency.Leaving, state == residency.Away
		s.Works = one.worked || one.running() || leaving && (one.stuck || !one.moving && m.now < one.stays) || away && m.now < one.stays
		again = again || one.worked && !one.running()
		s.Done = one.moving && m.now >= one.moved || away && !one.stuck
		one.worked = false
		shares[i] = s
	}
	orders, next := m.law.Decide(m.now, m.gpus, shares)
	changed := false
	for i, one := range m.tenants {
		if orders[i].State != one.order.State {
			changed = true
			m.changed(one, orders[i])
		}
		one.order = orders[i]
	}
	if m.judge != nil {
		m.judge(m)
	}
	if changed || again {
		return m.now + 1
	}
	return next
}

func (m *machine) changed(one *tenant, to residency.Order) {
	one.moving = false
	switch to.State {
	case residency.Leaving:
		one.stays, one.asked = m.now, m.now
		if one.running() {
			one.stays += one.kernel
		}
		m.changes++
	case residency.Resident:
		m.turns++
		one.longest = max(one.longest, m.now-one.asked)
	}
}

func (m *machine) String() (text string) {
	for _, one := range m.tenants {
		text += fmt.Sprintf("\n%s: state %d since bytes %v there %v left %d wakes %d", one.Key, one.order.State, one.Bytes, one.There, one.left, one.wakes)
	}
	return text
}
