package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// maxEvents bounds the events that listings show; the log has all of them.
const maxEvents = 100

// events are the latest events, for listings.
type events struct {
	now func() time.Time

	mu     sync.Mutex
	latest []control.Event
}

func (e *events) add(event control.Event) {
	event.Time = e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.latest = append(e.latest, event)
	if len(e.latest) > maxEvents {
		e.latest = slices.Delete(e.latest, 0, len(e.latest)-maxEvents)
	}
}

func (e *events) list() []control.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.latest)
}
