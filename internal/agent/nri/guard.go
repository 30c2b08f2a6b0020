package nri

import (
	"errors"
	"sync"
)

// Guard says whether the runtime shows the plugin every container that asks for a
// share before it makes it.
type Guard struct {
	mu      sync.Mutex
	reason  error
	changed chan struct{}
}

// The reasons why a guard is down.
var (
	// ErrApart is returned while the plugin has no connection to the container runtime.
	ErrApart = errors.New("no connection to the container runtime by NRI")
	// ErrUnproven is returned until a probe has shown what the runtime does while the
	// plugin is away.
	ErrUnproven = errors.New("it is not known whether the container runtime refuses containers while the agent is away")
	// ErrOpen is returned for a runtime that makes containers without the plugin.
	ErrOpen = errors.New("the container runtime makes containers although a required plugin is missing: enable NRI's default_validator in its configuration and restart it")
)

func newGuard() *Guard {
	return &Guard{reason: ErrApart, changed: make(chan struct{})}
}

// Down returns why containers may be made without the plugin, nil while none can be,
// and a channel that is closed when that changes.
func (g *Guard) Down() (changed <-chan struct{}, reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed, g.reason
}

// set changes the reason and reports whether it is another one.
func (g *Guard) set(reason error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == nil && reason == nil || g.reason != nil && reason != nil && g.reason.Error() == reason.Error() {
		return false
	}
	g.reason = reason
	close(g.changed)
	g.changed = make(chan struct{})
	return true
}
