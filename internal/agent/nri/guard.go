package nri

import (
	"errors"
	"sync"
)

// Guard says whether containers that ask for shares are sure to be shown to the
// plugin before they are made.
type Guard struct {
	mu      sync.Mutex
	reason  error
	changed chan struct{}
}

// The reasons of a guard that is down.
var (
	// ErrApart is a plugin without a connection to the container runtime.
	ErrApart = errors.New("the container runtime is not connected by NRI")
	// ErrUnproven is a runtime of which it is not known yet what it does when
	// the plugin is away.
	ErrUnproven = errors.New("it is not known whether the container runtime refuses containers while the agent is away")
	// ErrOpen is a runtime that would make containers without the plugin.
	ErrOpen = errors.New("the container runtime makes containers without asking required plugins: enable NRI's default_validator in its configuration and restart it")
)

func newGuard() *Guard {
	return &Guard{reason: ErrApart, changed: make(chan struct{})}
}

// Down returns why containers may come past the plugin, nil while none can, and
// a channel that is closed when that changes.
func (g *Guard) Down() (changed <-chan struct{}, reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed, g.reason
}

// set reports whether anything changed.
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
