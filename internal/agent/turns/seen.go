package turns

import (
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/residency"
)

const (
	// span is over which time it is judged whether memory moves too much, in steps.
	span  = time.Minute
	steps = 12
	// much is how long a share's memory has to move in that time before it can be too much: every change takes some time.
	much = span / 4
)

// window adds up times of the last span.
type window struct {
	step  uint64 // of the newest entry
	times [steps]time.Duration
}

func (w *window) advance(now uint64) {
	step := now / uint64(span/steps)
	for passed := min(step-min(step, w.step), steps); passed > 0; passed-- {
		w.times[(step-passed+1)%steps] = 0
	}
	w.step = step
}

func (w *window) add(now uint64, more time.Duration) {
	w.advance(now)
	w.times[w.step%steps] += more
}

func (w *window) total(now uint64) (sum time.Duration) {
	w.advance(now)
	for _, t := range w.times {
		sum += t
	}
	return sum
}

const lateText = "5s after its turn it has not said that its work on the GPU has ended: others have its room, and both drive each other's memory out until that work ends; until it does, others make room for the share rarely"

// moves reports whether its memory moves by order. While its work is waited for nothing does.
func (s *share) moves() bool {
	return s.state == residency.Entering || s.state == residency.Leaving && s.gave()
}

// spend adds up what became of the time since the last look.
func (s *share) spend(now uint64) {
	passed := time.Duration(min(now-min(now, s.spentAt), uint64(time.Second)))
	first := s.spentAt == 0
	s.spentAt = now
	switch {
	case first:
	case s.moves():
		s.spent.add(now, passed)
	case s.state == residency.Resident:
		s.used.add(now, passed)
	}
}

// tales are what people should know of the share since the last look.
func (s *share) tales(now uint64) []tale {
	told := s.news
	s.news = nil
	spent, used := s.spent.total(now), s.used.total(now)
	switch {
	case spent < much/2 || spent < used/2:
		s.thrash = false
	case !s.thrash && spent > used && spent >= much:
		s.thrash = true
		told = append(told, tale{control.EventThrashing, s.member.ID, s.uuid(), s.thrashing(now)})
	}
	return told
}

// uuid is that of its GPU for an event, "" where it has several.
func (s *share) uuid() string {
	if len(s.numbers) > 1 {
		return ""
	}
	return s.member.Shares[0].GPU.UUID
}

// thrashing says that its memory moves for longer than it is used, "" while it does not.
func (s *share) thrashing(now uint64) string {
	if !s.thrash {
		return ""
	}
	return fmt.Sprintf("of the last minute its memory moved for %v and was on the GPU for %v: %s",
		s.spent.total(now).Round(time.Second), s.used.total(now).Round(time.Second), remedy)
}

const remedy = "let fewer shares that work at the same time be here, or give them less memory, so that more of them fit together"

// tales notes where memory moved, and says of which GPUs that is most of the time.
func (m *machine) tales(now uint64, groups []*group) (told []tale) {
	moving := make([]bool, len(m.gpus))
	for _, g := range groups {
		for _, s := range g.shares {
			for _, n := range s.numbers {
				moving[n] = moving[n] || s.moves()
			}
		}
	}
	passed := time.Duration(min(now-min(now, m.at), uint64(time.Second)))
	if m.at == 0 {
		passed = 0
	}
	m.at = now
	for n := range m.gpus {
		if moving[n] {
			m.moves[n].add(now, passed)
		}
		switch total := m.moves[n].total(now); {
		case total < span/4:
			m.thrash[n] = false
		case !m.thrash[n] && total > span/2:
			m.thrash[n] = true
			told = append(told, tale{control.EventThrashing, "", m.uuids[n], m.thrashing(now, n)})
		}
	}
	return told
}

func (m *machine) thrashing(now uint64, n int) string {
	if !m.thrash[n] {
		return ""
	}
	return fmt.Sprintf("memory of shares that take turns moved for %v of the last minute: %s", m.moves[n].total(now).Round(time.Second), remedy)
}

// words are the states for people.
var words = map[residency.State]control.TurnState{
	residency.Away: control.TurnOut, residency.Entering: control.TurnEntering, residency.Resident: control.TurnIn, residency.Leaving: control.TurnLeaving,
}

// Seen is what is known of a tenant's shares, one entry for each; nil for a tenant without turns.
func (l *Loop) Seen(tenant string) []control.Turns {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.tenants[tenant]
	if s == nil || s.looked == 0 {
		return nil
	}
	now, wall := l.config.Clock(), time.Now()
	all := make([]control.Turns, 0, len(s.numbers))
	for i, n := range s.numbers {
		r := &s.residence[i]
		one := control.Turns{
			State: words[s.state], Waits: s.waits && s.closed(), Late: s.late, Swapped: s.bytes[i], OnGPU: s.there[i],
			Room: l.gpus.gpus[n].Room, MovedIn: r.MovedIn, MovedOut: r.MovedOut, Moving: r.Moving, Held: r.Held, Turns: s.turns, Thrashing: s.thrashing(now),
		}
		if s.until > now {
			one.Until = new(wall.Add(time.Duration(s.until - now)))
		}
		if s.fault != nil {
			one.Fault = s.fault.Error()
		}
		all = append(all, one)
	}
	return all
}

// Thrashing says that memory moves on a GPU for most of the time, "" while it does not.
func (l *Loop) Thrashing(uuid string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, known := l.gpus.numbers[uuid]
	if !known || len(l.groups) == 0 {
		return ""
	}
	return l.gpus.thrashing(l.config.Clock(), n)
}

// Closed is since when nothing of a tenant may run on its GPUs and its processes have said that nothing does, in ns of
// CLOCK_MONOTONIC; 0 while something may.
func (l *Loop) Closed(tenant string) (since uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.tenants[tenant]
	if s == nil || s.state != residency.Away || s.running || s.late {
		return 0
	}
	return s.since
}
