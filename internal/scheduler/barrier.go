package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrGang marks members that are not bound because another member of their gang cannot be.
var ErrGang = errors.New("gang is not bound")

// gangLimit bounds how long a member that has written its claims waits for the others.
const gangLimit = 30 * time.Second

// Barrier lets members of a gang on when all of them have written their claims, or none. Anybody may call its methods.
type Barrier struct {
	mutex sync.Mutex
	left  int
	err   error
	open  chan struct{}
}

func newBarrier(members int) *Barrier { return &Barrier{left: members, open: make(chan struct{})} }

// Arrive waits for all members, or for the first that fails. It waits 30 seconds at most: then all fail.
func (b *Barrier) Arrive(ctx context.Context) error {
	b.mutex.Lock()
	if b.left--; b.left == 0 && b.err == nil {
		close(b.open)
	}
	b.mutex.Unlock()
	timer := time.NewTimer(gangLimit)
	defer timer.Stop()
	select {
	case <-b.open:
	case <-timer.C:
		b.Fail(errors.New("a member did not write its claims in time"))
	case <-ctx.Done():
		b.Fail(ctx.Err())
	}
	<-b.open
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.err
}

// Fail stops all members, unless all have arrived.
func (b *Barrier) Fail(why error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.left > 0 && b.err == nil {
		b.err = fmt.Errorf("%w: %w", ErrGang, why)
		close(b.open)
	}
}
