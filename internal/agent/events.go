package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// Bounds of the events that listings show; the log has all of them.
const (
	// mostOfUser are those about one user's shares and processes, and those about nobody's.
	mostOfUser = 100
	mostEvents = 500
	// repeats is for how long the same event again is not another one.
	repeats = time.Minute
)

// events are the latest events, for listings. What one user's shares do pushes out no
// event of another's.
type events struct {
	now func() time.Time

	mu      sync.Mutex
	latest  []control.Event
	refused map[string]refusedLately  // by user
	memory  map[string][]toldRefusals // by tenant's id, one for each of its shares
}

// add returns how often the event happened within a minute of the last time.
func (e *events) add(event control.Event) (times int) {
	event.Time, event.Times = e.now(), 1
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.IndexFunc(e.latest, func(o control.Event) bool { return again(o, event) }); i >= 0 {
		event.Times += e.latest[i].Times
		e.latest = slices.Delete(e.latest, i, i+1)
	}
	e.latest = append(e.latest, event)
	if owner, n := e.most(); n > mostOfUser || len(e.latest) > mostEvents {
		oldest := slices.IndexFunc(e.latest, func(o control.Event) bool { return o.User == owner })
		e.latest = slices.Delete(e.latest, oldest, oldest+1)
	}
	return event.Times
}

// again reports whether an event says what another has just said. Shares begin, change and end once each, also those of one name.
func again(before, event control.Event) bool {
	if event.Kind == control.EventGranted || event.Kind == control.EventChanged || event.Kind == control.EventEnded {
		return false
	}
	soon := event.Time.Sub(before.Time) < repeats
	before.Time, before.Times = event.Time, event.Times
	return soon && before == event
}

// most is who has the most events.
func (e *events) most() (owner string, most int) {
	of := map[string]int{}
	for i := range e.latest {
		user := e.latest[i].User
		if of[user]++; of[user] > most {
			owner, most = user, of[user]
		}
	}
	return owner, most
}

func (e *events) list() []control.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.latest)
}
