package listener

import (
	"io"
	"sync"
	"time"
)

// seldomEvery is the least time between two lines of [Seldom].
const seldomEvery = 10 * time.Second

// Seldom passes on a line in ten seconds, because whoever reaches a port can cause any number of them.
type Seldom struct {
	To  io.Writer
	Now func() time.Time

	mu   sync.Mutex // guards last
	last time.Time
}

// Write implements [io.Writer].
func (s *Seldom) Write(line []byte) (int, error) {
	s.mu.Lock()
	now := s.Now()
	pass := s.last.IsZero() || now.Sub(s.last) >= seldomEvery
	if pass {
		s.last = now
	}
	s.mu.Unlock()
	if !pass {
		return len(line), nil
	}
	return s.To.Write(line)
}
