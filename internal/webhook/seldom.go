package webhook

import (
	"io"
	"sync"
	"time"
)

// seldomEvery is the least time between two lines of [seldom].
const seldomEvery = 10 * time.Second

// seldom passes on a line in ten seconds, because whoever reaches the port can cause any number of them.
type seldom struct {
	to  io.Writer
	now func() time.Time

	mu   sync.Mutex // guards last
	last time.Time
}

// Write implements [io.Writer].
func (s *seldom) Write(line []byte) (int, error) {
	s.mu.Lock()
	now := s.now()
	pass := s.last.IsZero() || now.Sub(s.last) >= seldomEvery
	if pass {
		s.last = now
	}
	s.mu.Unlock()
	if !pass {
		return len(line), nil
	}
	return s.to.Write(line)
}
