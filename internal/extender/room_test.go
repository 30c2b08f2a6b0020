package extender

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Who keeps others waiting loses the connection, and who came last is let in first. Whom the server itself keeps waiting stays.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hung := newRoom(4*leastBytes), map[string]time.Duration{}
		began := time.Now()
		enter := func(name string, bytes int64) *stay {
			t.Helper()
			var s *stay
			s, err := r.enter(t.Context(), bytes, func() {
				hung[name] = time.Since(began)
				go func() { s.leave() }()
			})
			if err != nil {
				t.Fatal(name, err)
			}
			return s
		}
		slow, working := enter("slow", 2*leastBytes), enter("working", leastBytes)
		working.waits(false)
		last := enter("small", 1)
		time.Sleep(10 * longestHold)
		if len(hung) != 0 {
			t.Errorf("nobody waits, and the connections end of %v", hung)
		}
		first, second := make(chan *stay, 1), make(chan *stay, 1)
		began = time.Now()
		go func() { first <- enter("first", 4*leastBytes) }()
		synctest.Wait()
		if _, ended := hung["slow"]; !ended || hung["working"] != 0 {
			t.Errorf("the connections end of %v", hung)
		}
		go func() { second <- enter("second", leastBytes) }()
		s := <-second
		working.waits(true)
		s.leave()
		last.leave()
		working.leave()
		working.leave() // again
		(<-first).leave()
		slow.leave()
		if inside, waiting := r.counts(); inside+waiting != 0 || r.free != 4*leastBytes {
			t.Errorf("%d are inside and %d wait, and %d bytes are free", inside, waiting, r.free)
		}
	})
}

// Who finds no room is told so, and takes none.
func TestNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(leastBytes)
		working, err := r.enter(t.Context(), 1, func() { t.Error("the server's own time is counted") })
		if err != nil {
			t.Fatal(err)
		}
		working.waits(false)
		if _, err := r.enter(t.Context(), 1, nil); !errors.Is(err, errFull) || !errors.Is(err, errAway) {
			t.Errorf("without room: %v", err)
		}
		ctx, gone := context.WithCancel(t.Context())
		gone()
		if _, err := r.enter(ctx, 1, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("gone: %v", err)
		}
		working.leave()
		if inside, waiting := r.counts(); inside+waiting != 0 || r.free != leastBytes {
			t.Errorf("%d are inside and %d wait, and %d bytes are free", inside, waiting, r.free)
		}
	})
}
