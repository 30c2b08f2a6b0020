package socket

import (
	"context"
	"time"
)

// The pauses between two tries to serve: the first, and what they grow to, each
// twice as long as the one before.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
)

// Follow calls serve again and again until ctx is done: at once where the socket
// has been made anew since serve was called, and else after pauses that grow while
// serve keeps failing. What else happens in the socket's directory, where serve may
// have files of its own, shortens no pause. Until ctx is done serve returns errors.
//
// Of these, told is given the first of a row, and what differs from the one before.
func (w *Watcher) Follow(ctx context.Context, serve func(context.Context) error, told func(error)) {
	f := follower{changed: w.changed, identify: func() ID { return Identify(w.path) }, serve: serve, told: told}
	f.run(ctx)
}

type follower struct {
	changed  <-chan struct{}
	identify func() ID
	serve    func(context.Context) error
	told     func(error)
}

func (f *follower) run(ctx context.Context) {
	pause, said := firstPause, ""
	for ctx.Err() == nil {
		began, known := time.Now(), f.identify()
		err := f.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		if text := err.Error(); pause == firstPause || text != said {
			f.told(err)
			said = text
		}
		if f.renewed(ctx, known, pause) {
			pause = firstPause
		} else {
			pause = min(2*pause, lastPause)
		}
	}
}

// renewed waits until the socket is not the known one any more, which it reports,
// or the pause is over, or ctx is done.
func (f *follower) renewed(ctx context.Context, known ID, pause time.Duration) bool {
	over := time.NewTimer(pause)
	defer over.Stop()
	for f.identify() == known {
		select {
		case <-f.changed:
		case <-over.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}
