package mps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
)

const (
	// interval is the time between questions to a daemon. Its death gives notice, a fault of a server does not.
	interval = time.Second
	// leastPause and longestPause are the first and the longest pause before a daemon is started again. Each failure
	// doubles it.
	leastPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

// Limits are what a client has at most if its environment says nothing less.
type Limits struct {
	// Percentage of the GPU's SMs, above 0 to 100.
	Percentage float64
	// Memory is in bytes.
	Memory uint64
}

// Supervisor keeps the daemon of one GPU alive.
type Supervisor struct {
	Daemon Daemon
	// Limits are asked for before each start of a server.
	Limits func() Limits
	// Admitted are the users who may reach the daemon; everybody may where they are not known.
	Admitted func() (users []int, everybody bool)
	// Users are those whose servers are started with the daemon.
	Users func() []int
	// Tell is called for each event, one after another.
	Tell func(Event)
	// Apart takes a daemon that runs out of what ends with this process, such as a container; nil leaves it there.
	Apart func(daemon process.ID) error
	// Now is the time.
	Now func() time.Time

	telling sync.Mutex
	once    sync.Once
	turn    chan struct{}
	// servers are those of the last look, and has what the daemon was told last. Who has the turn changes them.
	servers []Server
	has     settings
	faults  faults
	stuck   stuck

	mu sync.Mutex
	// id is the daemon, and family are all its processes of the last look. Others than Run ask for them, so mu guards both.
	id     process.ID
	family []process.ID
}

// Has reports whether a process is the daemon or one of its servers.
func (s *Supervisor) Has(id process.ID) bool {
	s.mu.Lock()
	daemon, family := s.id, s.family
	s.mu.Unlock()
	return slices.Contains(family, id) || id == daemon || id.DescendsFrom(daemon)
}

// Process is the daemon, also one that has just died.
func (s *Supervisor) Process() process.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Open starts the daemon, or takes over the one that an earlier agent started, with the limits. [Supervisor.Run] must
// follow.
func (s *Supervisor) Open(ctx context.Context) error {
	s.faults = faults{}
	s.Daemon.Console, s.Daemon.Stuck, s.Daemon.Refused = true, s.unblock, s.evict
	id, err := s.Daemon.Start(ctx)
	if err != nil {
		return err
	}
	if err := s.begin(ctx, id); err != nil {
		return err
	}
	if s.Apart != nil {
		if err := s.Apart(id); err != nil {
			s.tell(Event{Kind: EventTied, Err: err})
		}
	}
	if err := s.Settle(ctx); err != nil {
		return err
	}
	if err := s.Admit(); err != nil {
		return err
	}
	return s.inspect(ctx)
}

// begin forgets what was known of another daemon.
func (s *Supervisor) begin(ctx context.Context, daemon process.ID) error {
	release, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	s.mu.Lock()
	s.id = daemon
	s.mu.Unlock()
	s.servers, s.has = nil, settings{}
	return nil
}

// Admit lets the users of this moment reach the daemon, and nobody else. It may run beside [Supervisor.Run].
func (s *Supervisor) Admit() error {
	return s.Daemon.Dirs.Admit(s.Admitted())
}

// Run keeps the daemon alive until ctx is done. The daemon goes on after that.
func (s *Supervisor) Run(ctx context.Context) {
	for ctx.Err() == nil {
		s.watch(ctx)
		if ctx.Err() == nil {
			s.restart(ctx)
		}
	}
	_ = s.Daemon.release(context.WithoutCancel(ctx)) // whoever follows gives the commands
}

// watch looks at the daemon until it dies.
func (s *Supervisor) watch(ctx context.Context) {
	died, stop, err := s.Process().Watch()
	if err != nil {
		s.tell(Event{Kind: EventFailed, Err: err})
		return
	}
	defer stop()
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-died:
			s.tell(Event{Kind: EventDied, Clients: clients(s.servers)})
			return
		case <-ticks.C:
			err := s.patrol(ctx)
			switch {
			case err != nil && ctx.Err() == nil && s.Process().Alive():
				failed = true
				s.tell(Event{Kind: EventFailed, Err: err})
			case err == nil && failed:
				failed = false
				s.tell(Event{Kind: EventServes})
			}
		}
	}
}

// patrol asks what the servers do, and ends those that do not come out of a fault. Limits that somebody changed are put
// right.
func (s *Supervisor) patrol(ctx context.Context) error {
	if err := s.inspect(ctx); err != nil {
		return err
	}
	events, shutdown := s.faults.judge(s.Now(), s.servers)
	for _, event := range events {
		s.tell(event)
	}
	for _, pid := range shutdown {
		if err := s.Daemon.Shutdown(ctx, pid, true); err != nil {
			return err
		}
	}
	return errors.Join(s.Settle(ctx), s.Daemon.Dirs.trim())
}

// tell tells of events one after another.
func (s *Supervisor) tell(e Event) {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.Tell(e)
}

// End ends the daemon with its servers after [Supervisor.Run], also where it cannot be reached any more: because its
// directory was removed, or others keep it busy.
func (s *Supervisor) End(ctx context.Context) error {
	err := s.Daemon.End(ctx)
	daemon, family := s.Process(), s.remains()
	if daemon.Alive() {
		family = append(append(family, process.Descendants(daemon.PID)...), daemon)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	if killErr := killAll(ctx, family); killErr != nil {
		return errors.Join(err, killErr)
	}
	return nil // what stood in the way of asking is of no account
}

// remains are the daemon's processes of the last look, and those that it started since: they are in its session, whose number
// is no other's while one of them lives.
func (s *Supervisor) remains() []process.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	family := slices.Clone(s.family)
	if s.id != (process.ID{}) {
		family = append(family, process.InSession(s.id)...)
	}
	return family
}

// restart starts the daemon again until it serves. What is left of the one before, such as its servers, is ended first:
// it would hold the GPU.
func (s *Supervisor) restart(ctx context.Context) {
	for pause := leastPause; ; pause = min(2*pause, longestPause) {
		err := killAll(ctx, s.remains())
		if err == nil {
			err = s.Open(ctx)
		}
		if err == nil {
			s.tell(Event{Kind: EventServes})
			return
		}
		if ctx.Err() != nil {
			return
		}
		s.tell(Event{Kind: EventFailed, Err: fmt.Errorf("start the MPS control daemon of %s: %w", s.Daemon.UUID, err)})
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// clients are those of several servers.
func clients(servers []Server) []int {
	var all []int
	for _, s := range servers {
		all = append(all, s.Clients...)
	}
	return all
}
