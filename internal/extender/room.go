package extender

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// roomBytes is what questions may have together while they are read and answered: three of the longest. A question takes about
	// four times its bytes, and the container has 512 MiB. leastBytes is what each counts at least.
	roomBytes  = 3 * longestMessage
	leastBytes = 64 << 10
	// longestWait is how long a question may wait for room.
	longestWait = 5 * time.Second
	// longestHold is how long one who sends or reads slowly may keep others waiting. A scheduler does either in milliseconds.
	longestHold = 500 * time.Millisecond
)

// errFull says that a question found no room.
var errFull = errors.New("too many questions are being read already")

// room bounds the memory of questions. While some wait for it, whoever has kept it waiting for longer than longestHold loses the
// connection, and the question that came last is let in first: so however many send or read a byte at a time, one who does not
// waits little longer than that.
type room struct {
	mu      sync.Mutex // guards what follows and the stays' fields; nothing else is locked within
	free    int64
	inside  []*stay
	waiting []*stay
}

// stay is a question in the room, or one that waits for it.
type stay struct {
	of    *room
	bytes int64
	// hang ends the connection.
	hang    func()
	entered chan struct{}
	// since is when the server began to wait for who asks; the zero time while it does not.
	since time.Time
}

func newRoom(bytes int64) *room { return &room{free: bytes} }

// enter waits until a question of so many bytes has room.
func (r *room) enter(ctx context.Context, bytes int64, hang func()) (*stay, error) {
	s := &stay{of: r, bytes: max(bytes, leastBytes), hang: hang, entered: make(chan struct{})}
	r.mu.Lock()
	r.waiting = append(r.waiting, s)
	r.admit(time.Now())
	r.mu.Unlock()
	select {
	case <-s.entered: // as nearly always
		return s, nil
	default:
	}
	last, again := time.NewTimer(longestWait), time.NewTicker(longestHold/2)
	defer last.Stop()
	defer again.Stop()
	for {
		select {
		case <-s.entered:
			return s, nil
		case now := <-again.C:
			r.mu.Lock()
			r.admit(now)
			r.mu.Unlock()
		case <-ctx.Done():
			s.leave()
			return nil, ctx.Err()
		case <-last.C:
			s.leave()
			return nil, fmt.Errorf("%w: %w", errAway, errFull)
		}
	}
}

// admit lets in who fits, the last first, and ends the connections of those who keep others waiting. room.mu is held.
func (r *room) admit(now time.Time) {
	for i := len(r.waiting) - 1; i >= 0; i-- {
		if s := r.waiting[i]; s.bytes <= r.free {
			r.waiting = slices.Delete(r.waiting, i, i+1)
			r.inside = append(r.inside, s)
			r.free -= s.bytes
			s.since = now
			close(s.entered)
		}
	}
	if len(r.waiting) == 0 {
		return
	}
	for _, s := range r.inside {
		if !s.since.IsZero() && now.Sub(s.since) > longestHold {
			s.since = time.Time{} // once
			s.hang()
		}
	}
}

// waits tells whether the server waits for who asks from now on. A nil stay takes no room.
func (s *stay) waits(does bool) {
	if s == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.since = time.Time{}
	if does {
		s.since = time.Now()
	}
}

// leave gives the room to others.
func (s *stay) leave() {
	if s == nil {
		return
	}
	r := s.of
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.inside, s); i >= 0 {
		r.inside = slices.Delete(r.inside, i, i+1)
		r.free += s.bytes
	} else if i := slices.Index(r.waiting, s); i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
	}
	r.admit(time.Now())
}

// counts are how many are inside, and how many wait.
func (r *room) counts() (inside, waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.inside), len(r.waiting)
}
