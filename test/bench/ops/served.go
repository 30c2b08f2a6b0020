package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

// gpus is how many the simulated machine has.
const gpus = 8

// served is a simulated machine with shares that rest after a kernel, and an agent that tells of them.
type served struct {
	machine *simulated.Machine
	agent   *exec.Cmd
	said    strings.Builder
	address string
	shares  int
	tenants []*simulated.Tenant
}

// What shares do.
var (
	// resting is a kernel, and then nothing.
	resting = []string{"load", "--ns", "1000000", "--sync", "1", "--work", "1", "--pause", "3600000"}
	// launching is a kernel of 20 ms after the other, as far as the share's cores go.
	launching = []string{"load", "--ns", "20000000", "--sync", "1"}
)

func openServed(ctx context.Context, build string, shares int) (s *served, err error) {
	return openWith(ctx, build, shares, resting)
}

// openWith opens a machine whose shares run gpubench with arguments.
func openWith(ctx context.Context, build string, shares int, work []string) (s *served, err error) {
	s = &served{shares: shares}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
			s = nil
		}
	}()
	if s.machine, err = simulated.Open(ctx, build, "a800x8"); err != nil {
		return s, err
	}
	if s.address, err = free(ctx); err != nil {
		return s, err
	}
	if err = s.startAgent("--metrics-address", s.address); err != nil {
		return s, err
	}
	if err = s.answers(ctx); err != nil {
		return s, err
	}
	for i := range shares {
		t, err := s.machine.Start([]string{"--gpu", strconv.Itoa(i % gpus), "--cores", "2"}, append([]string{s.machine.Gpubench}, work...)...)
		if err != nil {
			return s, err
		}
		s.tenants = append(s.tenants, t)
		if _, _, err := t.Working(1); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *served) startAgent(flags ...string) error {
	s.agent = exec.Command(s.machine.Divvy, append([]string{"agent", "--simgpu-dir", s.machine.Instance}, flags...)...)
	s.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.agent.Stderr = &s.said
	if err := s.agent.Start(); err != nil {
		s.agent = nil
		return fmt.Errorf("start the agent: %w", err)
	}
	return nil
}

// stopAgent ends the agent. Its shares go on.
func (s *served) stopAgent() error {
	if s.agent == nil {
		return nil
	}
	err := s.agent.Process.Signal(os.Interrupt)
	var ended *exec.ExitError
	if waited := s.agent.Wait(); waited != nil && !errors.As(waited, &ended) {
		err = errors.Join(err, waited)
	}
	s.agent = nil
	return err
}

// answers waits until the agent serves.
func (s *served) answers(ctx context.Context) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		var dialer net.Dialer
		connection, err := dialer.DialContext(ctx, "tcp", s.address)
		if err == nil {
			return connection.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the agent does not serve metrics: %w: %s", err, s.said.String())
		}
		if err := s.machine.Pause(20 * time.Millisecond); err != nil {
			return err
		}
	}
}

// close ends everything that was started.
func (s *served) close() error {
	for _, t := range s.tenants {
		t.End()
	}
	var err error
	if s.agent != nil {
		err = errors.Join(err, s.machine.Alone(), s.stopAgent())
	}
	if s.machine != nil {
		err = errors.Join(err, s.machine.Close())
	}
	return err
}

// free is an address of the loopback interface where nobody listens.
func free(ctx context.Context) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("look for a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}
