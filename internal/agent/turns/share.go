package turns

import (
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/residency"
)

const (
	// ahead is for how long a closed gate stays closed without the agent, and renewed is when that is written anew, which
	// is at least every 250 ms: looks are calmTick apart.
	ahead   = time.Second
	renewed = ahead - 100*time.Millisecond
	// stampAge is how much older than the call present.called may be.
	stampAge = 2 * time.Millisecond
	// future is how far ahead of the clock a page may name a moment that is believed.
	future = time.Second
	// overdue is for how long after its expected end work still counts. A stopped process never reports the end.
	overdue = time.Second
)

// share is a tenant's memory on its GPUs: what its processes tell, and what was ordered.
type share struct {
	member  Member
	pages   *page.Turns
	numbers []int // of its GPUs, in the order of its pages
	limits  []uint64
	order   uint64 // as in the pages
	written []page.Turn
	fault   error

	// What the pages told with the last look, as far as it can be true. The slices are by its own GPUs.
	bytes, there []uint64
	residence    []page.Residence
	waits        bool
	works        bool
	done         bool
	looked       uint64

	state   residency.State
	late    bool
	until   uint64
	since   uint64 // when the state began
	stayed  []uint64
	left    uint64 // the order by which it left last
	running bool   // of its processes that carry out orders some have not said that nothing runs any more
	turns   uint64 // how often its gate has opened
	rates   []rate
	spent   window // when its memory moved
	used    window // when it had its turn
	thrash  bool
	spentAt uint64
	news    []tale // of the last look
}

// states are those of the law as the pages have them.
var states = map[residency.State]uint64{
	residency.Away: page.TurnAway, residency.Entering: page.TurnEntering, residency.Resident: page.TurnResident, residency.Leaving: page.TurnLeaving,
}

func openShare(m *Member, gpus *machine) (*share, error) {
	opened, err := m.Source.OpenTurns(m.Tenant)
	if err != nil {
		return nil, err
	}
	n := len(m.Shares)
	s := &share{
		pages: opened, numbers: make([]int, n), limits: make([]uint64, n), written: make([]page.Turn, n), bytes: make([]uint64, n), there: make([]uint64, n),
		residence: make([]page.Residence, n), stayed: make([]uint64, n), rates: make([]rate, n),
	}
	for i := range m.Shares {
		s.numbers[i] = gpus.number(m.Shares[i].GPU.UUID)
	}
	s.change(m)
	return s, nil
}

// change takes up the terms.
func (s *share) change(m *Member) {
	s.member = *m
	for i := range m.Shares {
		s.limits[i] = m.Shares[i].Limit - min(m.Shares[i].Limit, m.Shares[i].Kept)
	}
}

func (s *share) close() {
	_ = s.pages.Close() // nothing was written that closing could lose
}

// resume goes on with what an earlier agent ordered.
func (s *share) resume(now uint64, law *residency.Law) {
	gives := make([]uint64, len(s.numbers))
	for i := range s.numbers {
		order, err := s.pages.Order(i)
		if err != nil || i > 0 && order.Order != s.order {
			// It is of another moment, or nonsense. What is ordered next has another number.
			s.order = max(s.order, order.Order) >> page.TurnBits << page.TurnBits
			return
		}
		order.Valid = 0
		s.order, s.written[i], gives[i] = order.Order, order, order.Give
	}
	s.since = now
	s.left = (s.order>>page.TurnBits-1)<<page.TurnBits | page.TurnLeaving
	for state, number := range states {
		if s.order&(1<<page.TurnBits-1) == number {
			s.state = state
			law.Resume(now, s.member.ID, residency.Order{State: state, Give: s.spread(gives)})
			return
		}
	}
}

// spread has figures of the share's GPUs at the numbers of these.
func (s *share) spread(own []uint64) []uint64 {
	all := make([]uint64, s.most())
	for i, n := range s.numbers {
		all[n] = own[i]
	}
	return all
}

func (s *share) most() (count int) {
	for _, n := range s.numbers {
		count = max(count, n+1)
	}
	return count
}

// read takes up what the share's processes tell. Of a page that cannot be read it is taken that the share has all that it
// may, does nothing and carries nothing out: the law then waits for it as for any other that does not answer.
func (s *share) read(now uint64, gpus *machine) {
	told, err := s.pages.Read()
	looked := s.looked
	s.looked, s.fault = now, err
	s.waits, s.works, s.done, s.running = false, false, err == nil, err != nil
	if err != nil {
		copy(s.bytes, s.limits)
		clear(s.there)
		return
	}
	for i := range told {
		p := &told[i]
		s.bytes[i] = min(p.Charged, s.limits[i])
		s.there[i] = 0
		s.works = s.works || p.Works != 0 && now < p.Works+min(uint64(overdue), ^p.Works)
		for k := range p.Living {
			s.hear(now, looked, i, &p.Living[k])
		}
		s.there[i] = min(s.there[i], s.bytes[i], gpus.gpus[s.numbers[i]].Room)
		s.residence[i] = p.Residence
		s.rates[i].learn(p.Residence.MovedIn+p.Residence.MovedOut, p.Residence.Moving)
	}
	switch s.state {
	case residency.Away:
		s.done = !s.running
	case residency.Leaving:
		s.works = !s.done && !s.gave() // its work is waited for as long as nothing has left
	}
}

// hear takes up what one living process tells.
func (s *share) hear(now, looked uint64, i int, p *page.Present) {
	s.there[i] += min(p.There, s.limits[i]) // which never overflows: 1024 processes, 48 bits
	s.waits = s.waits || p.Waits != 0
	if p.TakesPart != 0 && p.Done != s.order {
		s.done = false
		s.running = s.running || p.Done != s.left
	}
	// One that waits for its turn calls for as long, and has no work by that.
	if (p.Waits == 0 || s.state != residency.Away) && p.Called < now+uint64(future) && p.Called+uint64(stampAge) >= looked && looked != 0 {
		s.works = true
	}
}

// gave reports whether some of the memory that the share is to give has left.
func (s *share) gave() bool {
	for i := range s.residence {
		if s.residence[i].MovedOut != s.stayed[i] {
			return true
		}
	}
	return false
}

// law is the share in the words of the law.
func (s *share) law(m *machine) residency.Share {
	l := residency.Share{
		Key: s.member.ID, Online: s.member.Shares[0].Class == v1alpha1.ClassOnline, Weight: s.member.Shares[0].Weight,
		Bytes: make([]uint64, len(m.gpus)), There: make([]uint64, len(m.gpus)), Waits: s.waits && s.state != residency.Resident, Works: s.works, Done: s.done,
	}
	for i, n := range s.numbers {
		l.Bytes[n] = min(s.bytes[i], m.gpus[n].Room)
		l.There[n] = min(s.there[i], l.Bytes[n])
	}
	return l
}

// obey takes up what the law decided.
func (s *share) obey(now uint64, order *residency.Order, rooms []uint64) {
	s.spend(now)
	if order.Late && !s.late {
		s.news = append(s.news, tale{control.EventTurn, s.member.ID, s.uuid(), lateText})
	}
	s.late, s.until = order.Late, order.Until
	number := s.order >> page.TurnBits
	if state := number<<page.TurnBits | states[order.State]; state != s.order {
		s.order = (number+1)<<page.TurnBits | states[order.State]
		s.turn(now, order.State)
	}
	for i, n := range s.numbers {
		w := &s.written[i]
		w.Order, w.Give, w.Room = s.order, 0, rooms[n]
		if order.State == residency.Leaving {
			w.Give = order.Give[n]
		}
	}
}

// turn begins a state.
func (s *share) turn(now uint64, to residency.State) {
	if to == residency.Resident && s.state != residency.Resident && s.since != 0 {
		s.turns++
	}
	if to == residency.Leaving {
		s.left = s.order
	}
	for i := range s.residence {
		s.stayed[i] = s.residence[i].MovedOut
	}
	s.state, s.since = to, now
}

// write orders what was decided.
func (s *share) write(now uint64) {
	for i := range s.written {
		w := &s.written[i]
		if s.closed() && w.Valid < now+uint64(renewed) {
			w.Valid = now + uint64(ahead)
		}
		if err := s.pages.Write(i, *w); err != nil && s.fault == nil {
			s.fault = fmt.Errorf("order turns: %w", err)
		}
	}
}

// closed reports whether its gate is closed.
func (s *share) closed() bool { return s.state != residency.Resident }

// open opens the gate of a share that takes part in no turns any more.
func (s *share) open() {
	s.order = (s.order>>page.TurnBits+1)<<page.TurnBits | page.TurnOpen
	for i := range s.written {
		// A page that cannot be written keeps its gate closed for no longer than the last order is valid.
		_ = s.pages.Write(i, page.Turn{Order: s.order, Room: s.limits[i]})
	}
}

// tick is when it is to be looked at again.
func (s *share) tick() time.Duration {
	switch {
	case s.state == residency.Entering || s.state == residency.Leaving:
		return changeTick
	case s.state == residency.Away && s.waits:
		return busyTick
	}
	return calmTick
}
