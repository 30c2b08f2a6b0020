package daemon

import (
	"context"
	"sync"
	"time"
)

// The times after which an idle ephemeral agent ends.
const (
	// firstLinger leaves time to connect to the program that started it.
	firstLinger = 10 * time.Second
	// linger lets a shell script that takes one share after another keep its agent.
	linger = time.Second
)

// ledger tells who needs the agent.
type ledger interface {
	// InUse counts tenants and waiting requests; the channel is closed when that may have changed.
	InUse() (n int, changed <-chan struct{})
}

// idle watches for an agent that nobody needs.
type idle struct {
	mu      sync.Mutex
	open    int
	changed chan struct{}
}

func newIdle() *idle {
	return &idle{changed: make(chan struct{})}
}

// connections is told how many connections are open.
func (i *idle) connections(n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.open = n
	close(i.changed)
	i.changed = make(chan struct{})
}

func (i *idle) state() (open int, changed <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.open, i.changed
}

// wait returns after a while without a connection, a tenant and a waiting request. A
// program that connects at that very moment is refused and starts another agent: see
// control.Ensure.
func (i *idle) wait(ctx context.Context, a ledger) {
	bound := firstLinger
	for {
		open, connected := i.state()
		tenants, changed := a.InUse()
		timeout := make(<-chan time.Time)
		if open > 0 || tenants > 0 {
			bound = linger
		} else {
			timeout = time.After(bound)
		}
		select {
		case <-ctx.Done():
			return
		case <-timeout:
			return
		case <-connected:
		case <-changed:
		}
	}
}
