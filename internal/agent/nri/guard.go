package nri

import (
	"errors"
	"sync"
)

// Guard says whether the runtime shows the plugin every container before it makes it.
type Guard struct {
	mu      sync.Mutex
	reason  error
	changed chan struct{}
}

// The reasons why a guard is down.
var (
	// ErrApart is returned while the plugin has no connection to the container runtime.
	ErrApart = errors.New("no connection to the container runtime by NRI")
	// ErrOff is returned where the runtime has no socket for plugins.
	ErrOff = errors.New(`NRI is off in the container runtime: in containerd's config.toml set disable = false below [plugins."io.containerd.nri.v1.nri"], in CRI-O's crio.conf enable_nri = true below [crio.nri], and restart it`)
)

func newGuard() *Guard {
	return &Guard{reason: ErrApart, changed: make(chan struct{})}
}

// Down returns why the plugin is not asked, nil while it is, and a channel that is closed
// when that changes.
func (g *Guard) Down() (changed <-chan struct{}, reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed, g.reason
}

// set changes the reason.
func (g *Guard) set(reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == nil && reason == nil || g.reason != nil && reason != nil && g.reason.Error() == reason.Error() {
		return
	}
	g.reason = reason
	close(g.changed)
	g.changed = make(chan struct{})
}
