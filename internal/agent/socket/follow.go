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

// Follow calls serve again and again until ctx is done: at once if the socket was
// created again since the last call, otherwise after pauses that grow while serve keeps
// failing. Other changes in the socket's directory, where serve may have files of its
// own, shorten no pause. serve returns an error unless ctx is done; told is called with
// the first of a series of errors and with each that differs from the one before.
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

// renewed waits for the pause or until ctx is done. It returns true as soon as the
// socket is another one than the known one.
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
