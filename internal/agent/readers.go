package agent

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// readers are the users whose requests for the history are worked on. A page takes much more time than another answer, so each
// user reads one at a time, and then waits for as long as it took: who asks all the time has half of one processor at the most.
type readers struct {
	mu   sync.Mutex
	busy map[int]chan struct{} // closed when the user may read again
}

// enter waits until a user may read a page. Root waits for nobody.
func (r *readers) enter(ctx context.Context, uid int) (leave func(), err error) {
	if uid == 0 {
		return func() {}, nil
	}
	for {
		r.mu.Lock()
		before, reads := r.busy[uid]
		if !reads {
			break
		}
		r.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for an earlier page of the history: %w", ctx.Err())
		}
	}
	defer r.mu.Unlock()
	if r.busy == nil {
		r.busy = map[int]chan struct{}{}
	}
	done, began := make(chan struct{}), time.Now()
	r.busy[uid] = done
	return func() {
		time.AfterFunc(time.Since(began), func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.busy, uid)
			close(done)
		})
	}, nil
}
