package mps

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/process"
)

// inspect asks what the servers do and which limits the daemon has, and puts these right where somebody else changed them:
// daemons before driver 550 let every user who reaches them do so, and all daemons the root of a container.
func (s *Supervisor) inspect(ctx context.Context) error {
	release, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	var known []int
	for _, server := range s.servers {
		known = append(known, server.PID)
	}
	replies, err := s.Daemon.session(ctx, append([]string{getServers, getPercentage, getMemory}, questions(known)...)...)
	if err != nil {
		return err
	}
	servers, err := replies[0].pids()
	if err != nil {
		return err
	}
	changed, err := s.judgeLimits(ctx, replies, known)
	if err != nil {
		return err
	}
	of := replies[3:]
	if unknown := slices.DeleteFunc(servers, func(pid int) bool { return slices.Contains(known, pid) }); len(unknown) > 0 {
		more, err := s.meet(ctx, unknown)
		if err != nil {
			return err
		}
		known, of = append(known, unknown...), append(slices.Clone(of), more...)
	}
	if err := s.remember(known, of); err != nil {
		return err
	}
	if changed != nil {
		s.Tell(Event{Kind: EventLimits, Err: changed})
	}
	return nil
}

// perServer is how many questions there are about each server.
const perServer = 4

// questions ask about servers.
func questions(servers []int) []string {
	var commands []string
	for _, pid := range servers {
		for _, format := range [perServer]string{getStatus, getClients, getServerPercentage, getServerMemory} {
			commands = append(commands, fmt.Sprintf(format, pid))
		}
	}
	return commands
}

// meet gives servers that are new the limits, and asks about them.
func (s *Supervisor) meet(ctx context.Context, servers []int) ([]reply, error) {
	if s.has.daemon == s.Process() {
		told, err := s.limitServers(ctx, servers, s.has.limits)
		if err != nil {
			return nil, err
		}
		for pid, limits := range told {
			s.has.servers[pid] = limits
		}
	}
	return s.Daemon.session(ctx, questions(servers)...)
}

// judgeLimits compares the limits that the daemon and its servers have with what they were told. It puts right what
// somebody changed, and returns what that was.
func (s *Supervisor) judgeLimits(ctx context.Context, replies []reply, servers []int) (changed error, err error) {
	if s.has.daemon != s.Process() {
		return nil, nil // they are not set yet
	}
	limits := s.has.limits
	changed = limits.heldBy(replies[1].lines, replies[2].lines)
	unready := false
	for i, pid := range servers {
		of := replies[3+perServer*i:]
		told, now := s.has.servers[pid], serverLimits(of[2], of[3])
		switch {
		case of[2].err() != nil || now[0] == "": // it has ended, or takes no clients yet
		case len(told) == 0 || told[0] == "":
			unready = true
		case changed == nil && !slices.Equal(told, now):
			changed = fmt.Errorf("server %d has %q instead of %q", pid, now, told)
		}
	}
	if changed == nil && !unready {
		return nil, nil
	}
	return changed, s.settle(ctx, limits, nil)
}

// remember keeps what is known of servers now. One that has ended is left out.
func (s *Supervisor) remember(servers []int, of []reply) error {
	var found []Server
	for i, pid := range servers {
		server, err := readServer(pid, of[perServer*i], of[perServer*i+1])
		if errors.Is(err, ErrNoServer) {
			continue
		}
		if err != nil {
			return err
		}
		found = append(found, server)
	}
	s.servers = found
	daemon := s.Process()
	family := append(process.Descendants(daemon.PID), daemon)
	s.mu.Lock()
	s.family = family
	s.mu.Unlock()
	return nil
}

// readServer reads the answers about one server. A daemon that cannot tell what a server does is taken to mean that it
// serves.
func readServer(pid int, status, clients reply) (Server, error) {
	server := Server{PID: pid, Status: StatusActive}
	err := status.err()
	if err == nil {
		server.Status, err = parseStatus(status.lines)
	}
	if err != nil && !errors.Is(err, ErrUnknownCommand) {
		return server, err
	}
	server.Clients, err = clients.pids()
	return server, err
}
