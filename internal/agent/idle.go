package agent

import (
	"context"
	"sync"
	"time"
)

// Times after which an ephemeral agent with nothing to do ends.
const (
	// firstLinger is for the program that started it to connect.
	firstLinger = 10 * time.Second
	// linger keeps a shell script with one share after another on one agent.
	linger = time.Second
)

// idle watches for an agent that nobody needs.
type idle struct {
	patience, linger time.Duration // before and after the first use

	mu      sync.Mutex
	open    int
	changed chan struct{}
}

func newIdle() *idle {
	return &idle{patience: firstLinger, linger: linger, changed: make(chan struct{})}
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

// wait returns when for a while there was neither a connection nor a tenant nor
// a waiting request. A program that connects just then finds the door closed
// and starts another agent: see control.Ensure.
func (i *idle) wait(ctx context.Context, a *Agent) {
	patience := i.patience
	for {
		open, connected := i.state()
		tenants, changed := a.Tenants()
		timeout := make(<-chan time.Time)
		if open > 0 || tenants > 0 {
			patience = i.linger
		} else {
			timeout = time.After(patience)
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
