// Package store keeps records of what shares did in files: one for each day, in UTC, of lines
// that are only ever added to. Adding never waits for the disk and never fails: what
// cannot be written waits in memory, and is lost beyond a bound, which is told.
package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/history"
)

// Limits bound what is kept.
type Limits struct {
	// Days is for how many days.
	Days int
	// Bytes is how many bytes the files have together.
	Bytes int64
}

// Usual are the limits of an agent that was told none.
var Usual = Limits{Days: 400, Bytes: 64 << 20}

const (
	// mostWaiting bounds the records in memory that are not written.
	mostWaiting = 10_000
	// retries is after how long a write is tried again that failed.
	retries = time.Minute
	// flushTime is how long an agent that ends waits for what is not written.
	flushTime = 2 * time.Second
)

// Config is what a Store works with.
type Config struct {
	// Dir is made when something is written first.
	Dir string
	// Inside is the directory in which Dir is, where that may go for good, as a simulated machine's does: then nothing is written
	// any more. Otherwise it is empty, and all that is missing is made.
	Inside string
	Limits Limits
	Now    func() time.Time
	// Retry is after how long a write is tried again, a minute if it is 0.
	Retry time.Duration
}

// Store is the history of one agent. Several goroutines may use it.
type Store struct {
	config Config
	// What follows is the writer's alone: when it looked for what is beyond the limits, what it has written since, and
	// what was wrong then.
	pruned time.Time
	grown  int64
	within error

	mu      sync.Mutex
	waiting []history.Record
	lost    int           // records that found no room in waiting since the last write
	more    chan struct{} // sent to when something waits
	closing chan struct{}
	written chan struct{} // closed when the writer has ended
	began   bool
	once    sync.Once
}

// New names a history. It reads and writes nothing.
func New(c Config) *Store {
	if c.Retry == 0 {
		c.Retry = retries
	}
	return &Store{config: c, more: make(chan struct{}, 1), closing: make(chan struct{}), written: make(chan struct{})}
}

// Add has records written soon.
func (s *Store) Add(records ...history.Record) {
	s.mu.Lock()
	room := max(0, mostWaiting-len(s.waiting))
	fits := min(room, len(records))
	s.waiting = append(s.waiting, records[:fits]...)
	s.lost += len(records) - fits
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// Start has what is added written until Close. Told is called when writing begins to fail and when it goes on.
func (s *Store) Start(told func(text string, fault bool)) {
	s.mu.Lock()
	s.began = true
	s.mu.Unlock()
	go s.run(told)
}

func (s *Store) run(told func(text string, fault bool)) {
	defer close(s.written)
	failing := false
	for {
		ended := false
		select {
		case <-s.more:
		case <-s.closing:
			ended = true
		}
		err := s.flush()
		switch {
		case err != nil && !failing:
			failing = true
			told(fmt.Sprintf("the history is not written: %v; it is tried again every %s", err, s.config.Retry), true)
		case err == nil && failing:
			failing = false
			told(s.resumed(), false)
		}
		if ended {
			return
		}
		if err != nil {
			s.pause()
		}
	}
}

// pause waits until it is time to try again.
func (s *Store) pause() {
	again := time.NewTimer(s.config.Retry)
	defer again.Stop()
	select {
	case <-again.C:
	case <-s.closing:
	}
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// resumed says what became of the records while nothing could be written.
func (s *Store) resumed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.lost
	s.lost = 0
	if lost == 0 {
		return "the history is written again; nothing of it is lost"
	}
	return fmt.Sprintf("the history is written again; %d records are lost", lost)
}

// Close has what waits written, for a short time.
func (s *Store) Close() {
	s.once.Do(func() { close(s.closing) })
	s.mu.Lock()
	began := s.began
	s.mu.Unlock()
	if !began {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	select {
	case <-s.written:
	case <-ctx.Done():
	}
}

// flush writes what waits. What could not be written waits on.
func (s *Store) flush() error {
	s.mu.Lock()
	records := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	if len(records) == 0 {
		return nil
	}
	n, err := s.write(records)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := slices.Concat(records[n:], s.waiting)
	if over := len(rest) - mostWaiting; over > 0 {
		s.lost += over
		rest = rest[:mostWaiting]
	}
	s.waiting = rest
	return err
}
