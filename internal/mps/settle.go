package mps

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
)

// The commands of which the supervisor makes sessions. The GPU is number 0 for a daemon that sees no other.
const (
	getPercentage       = "get_default_active_thread_percentage"
	getMemory           = "get_default_device_pinned_mem_limit 0"
	getServers          = "get_server_list"
	getServerPercentage = "get_active_thread_percentage %d"
	getServerMemory     = "get_device_pinned_mem_limit %d 0"
	getStatus           = "get_server_status %d"
	getClients          = "get_client_list %d"
	startServer         = "start_server -uid %d"
)

// settings are what a daemon was told, and what it has told of that since. What a server tells of limits is compared as
// text, because no document says how it is written.
type settings struct {
	daemon  process.ID
	limits  Limits
	servers map[int][]string
	// started are the users whose servers were started, and when.
	started map[int]time.Time
}

// startPause is the time between two tries to start a user's server.
const startPause = 10 * time.Second

// take waits for the supervisor's turn to change and compare what the daemon has, and returns what ends the turn.
func (s *Supervisor) take(ctx context.Context) (release func(), err error) {
	s.once.Do(func() { s.turn = make(chan struct{}, 1) })
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("ask the MPS control daemon: %w", errors.Join(ErrSilent, context.Cause(ctx)))
	}
}

// Settle gives the daemon the limits and the servers of this moment. It asks nothing where the daemon has them: of many
// calls at once the first does it for all. It may run beside [Supervisor.Run].
func (s *Supervisor) Settle(ctx context.Context) error {
	release, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	limits, users := s.Limits(), s.unserved()
	if len(users) == 0 && s.has.daemon == s.Process() && s.has.limits == limits {
		return nil
	}
	return s.settle(ctx, limits, users)
}

// unserved are the users whose servers do not run. One server serves all where the daemon serves several.
func (s *Supervisor) unserved() []int {
	users := s.Users()
	for _, server := range s.servers {
		if s.Daemon.MultiUser {
			return nil
		}
		users = slices.DeleteFunc(users, func(uid int) bool { return process.Owner(server.PID) == uid })
	}
	if s.has.daemon != s.Process() {
		return users
	}
	return slices.DeleteFunc(users, func(uid int) bool { return s.Now().Sub(s.has.started[uid]) < startPause })
}

// settle gives the daemon limits for the clients that come from now on, and starts the servers of users. The turn is held.
func (s *Supervisor) settle(ctx context.Context, limits Limits, users []int) error {
	amount := limits.Memory / mebibyte
	if amount == 0 || !(limits.Percentage > 0 && limits.Percentage <= 100) {
		return fmt.Errorf("limit MPS clients: %v percent and %d bytes: want more than 0 and at most 100 percent, and 1 MiB", limits.Percentage, limits.Memory)
	}
	started := map[int]time.Time{}
	if s.has.daemon == s.Process() && s.has.started != nil {
		started = s.has.started
	}
	s.has = settings{} // until all is done
	commands := []string{
		fmt.Sprintf("set_default_active_thread_percentage %g", limits.Percentage), getPercentage,
		fmt.Sprintf("set_default_device_pinned_mem_limit 0 %dM", amount), getMemory, getServers,
	}
	for _, uid := range users {
		commands = append(commands, fmt.Sprintf(startServer, uid))
	}
	daemon := s.Process()
	replies, err := s.Daemon.session(ctx, commands...)
	if err != nil {
		return fmt.Errorf("limit MPS clients: %w", err)
	}
	if err := limits.heldBy(replies[1].lines, replies[3].lines); err != nil {
		return fmt.Errorf("limit MPS clients: %w", errors.Join(err, replies[0].err(), replies[2].err()))
	}
	for _, r := range replies[5:] {
		if err := r.err(); err != nil {
			return fmt.Errorf("start an MPS server: %w", err)
		}
	}
	for _, uid := range users {
		started[uid] = s.Now()
	}
	servers, err := replies[4].pids()
	if err != nil {
		return err
	}
	told, err := s.limitServers(ctx, servers, limits)
	if err != nil {
		return err
	}
	s.has = settings{daemon: daemon, limits: limits, servers: told, started: started}
	return nil
}

// heldBy says what a daemon tells of its limits that is not these. It tells one digit after the point.
func (l Limits) heldBy(percentage, memory []string) error {
	set, err := parsePercentage(percentage)
	if err != nil {
		return err
	}
	if math.Abs(set-l.Percentage) > 0.05 {
		return fmt.Errorf("%w: it has %g percent instead of %g", ErrAnswer, set, l.Percentage)
	}
	if wanted := printed(l.Memory / mebibyte); !slices.Equal(memory, []string{wanted}) {
		return fmt.Errorf("%w: it has %q instead of %s", ErrAnswer, memory, wanted)
	}
	return nil
}

// limitServers gives servers that run the limits, and returns what each tells of them then. One that has ended is left out.
func (s *Supervisor) limitServers(ctx context.Context, servers []int, limits Limits) (map[int][]string, error) {
	told := map[int][]string{}
	if len(servers) == 0 {
		return told, nil
	}
	var commands []string
	for _, pid := range servers {
		commands = append(commands,
			fmt.Sprintf("set_active_thread_percentage %d %g", pid, limits.Percentage),
			fmt.Sprintf("set_device_pinned_mem_limit %d 0 %dM", pid, limits.Memory/mebibyte),
			fmt.Sprintf(getServerPercentage, pid), fmt.Sprintf(getServerMemory, pid))
	}
	replies, err := s.Daemon.session(ctx, commands...)
	if err != nil {
		return nil, fmt.Errorf("limit the clients of an MPS server: %w", err)
	}
	for i, pid := range servers {
		four := replies[4*i : 4*i+4]
		if errors.Is(four[0].err(), ErrNoServer) {
			continue
		}
		told[pid] = serverLimits(four[2], four[3])
	}
	return told, nil
}

// serverLimits is what a server tells of its limits: nothing before it is ready.
func serverLimits(percentage, memory reply) []string {
	return []string{strings.Join(percentage.lines, " "), strings.Join(memory.lines, " ")}
}

// pids are the processes that an answer lists.
func (r reply) pids() ([]int, error) {
	if err := r.err(); err != nil {
		return nil, err
	}
	return parsePIDs(r.lines)
}
