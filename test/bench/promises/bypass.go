package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/attack"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/multiuser"
)

const (
	bypassID = "promise.bypass_s"
	// never is taken where nothing happens for so long, in seconds.
	never = 30.0
	// attackingUser is who tries the ways, and has no other processes.
	attackingUser = "u1"
)

// answers are what the agent is told to do, what a row says of it, and within how many
// seconds it must be done.
var answers = []struct {
	name, until string
	goal        float64
}{{"report", "reported", 2}, {"stop", "stopped", 3}, {"kill", "ended", 3}}

// measureBypass tries the ways past the memory limit under each answer. A figure is the
// time from the moment at which the program passed its limit and the tolerance until the
// agent's report, until every process of the share was stopped, or until the program had
// ended; 0 where the simulated driver's record shows that it never passed the limit.
func measureBypass(ctx context.Context, o options) ([]measurement.Row, error) {
	taken := map[string][]float64{}
	for range o.runs() {
		for _, answer := range answers {
			if err := tryWays(ctx, o, answer.name, taken); err != nil {
				return nil, fmt.Errorf("under %s: %w", answer.name, err)
			}
		}
	}
	var rows []measurement.Row
	for _, way := range attack.Ways {
		for _, answer := range answers {
			rows = append(rows, row(bypassID, way.Name+": until "+answer.until, "s", answer.goal, taken[way.Name+answer.name]))
		}
	}
	return rows, nil
}

// guarded is a server with an agent that answers as told.
func guarded(ctx context.Context, o options, answer string, flags ...string) (s *server, err error) {
	if s, err = openServer(ctx, o.build, flags...); err != nil {
		return nil, err
	}
	err = s.Write("etc/divvy/agent.yaml", "apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\noutside: "+answer+"\n")
	if err == nil {
		err = s.Command(ctx, "root", "divvy", "agent").Start()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	for range 1000 {
		if _, err = s.List(ctx); err == nil {
			return s, nil
		}
		if !pause(ctx, 10*time.Millisecond) {
			break
		}
	}
	s.Close()
	return nil, err
}

// tryWays tries each way once under an answer, and adds how long each took.
func tryWays(ctx context.Context, o options, answer string, taken map[string][]float64) error {
	s, err := guarded(ctx, o, answer)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := attack.Build(ctx, filepath.Join(s.Root, "opt")); err != nil {
		return err
	}
	for _, w := range attack.Ways {
		way := w.Name
		a, err := s.attack(ctx, way)
		if err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
		seconds, err := s.until(ctx, answer, way, a)
		if err := errors.Join(err, a.end()); err != nil {
			return err
		}
		taken[way+answer] = append(taken[way+answer], seconds)
	}
	return nil
}

// until is how many seconds after it passed its limit a program was answered, 0 if it
// did not pass it.
func (s *server) until(ctx context.Context, answer, way string, a *attacker) (float64, error) {
	switch {
	case a.passed == 0:
		held, err := s.Used(ctx)
		if err == nil && held > attack.Limit+attack.Tolerance {
			err = fmt.Errorf("%s: it holds %d bytes and passed nothing", way, held)
		}
		return 0, err
	case answer == "report":
		return s.untilReported(ctx, way, a.passed), nil
	case answer == "stop":
		return a.untilStopped(ctx, func() []int { return s.processes(attackingUser) }), nil
	}
	return a.untilEnded(), nil
}

// attacker is a program that has tried one way and waits.
type attacker struct {
	cmd    *exec.Cmd
	input  io.Closer
	pid    int
	passed int64 // when it passed its limit, ns of the wall clock; 0 if it did not
}

func (s *server) attack(ctx context.Context, way string) (*attacker, error) {
	args := append([]string{"divvy", "run", "--memory", strconv.Itoa(attack.Limit), "--name", way, "--"}, attack.Command("/opt", way)...)
	a := &attacker{cmd: s.Command(ctx, attackingUser, args...)}
	a.cmd.Stderr = io.Discard
	input, err := a.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	a.input = input
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	_, passed, _ := strings.Cut(strings.TrimSpace(line), " ")
	if err == nil {
		a.passed, err = strconv.ParseInt(passed, 10, 64)
	}
	if err == nil {
		a.pid, err = multiuser.Child(a.cmd)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read what it did: %w: %q", err, line), a.end())
	}
	return a, nil
}

// end ends the program, also a stopped one: nsenter stops with its child.
func (a *attacker) end() error {
	err := a.input.Close()
	if a.pid != 0 && stateOf(a.pid) == stopped {
		_ = unix.Kill(a.pid, unix.SIGKILL)
		_ = a.cmd.Process.Signal(unix.SIGCONT)
	}
	_ = a.cmd.Wait() // it may have been killed
	return err
}

// untilReported is the time from a moment until the agent told of a share. A listing
// makes the agent look, so none is asked for while the agent should find it by itself.
func (s *server) untilReported(ctx context.Context, name string, since int64) float64 {
	const alone = 2500 * time.Millisecond
	for begin := time.Now(); time.Since(begin).Seconds() < never && pause(ctx, alone); {
		list, err := s.List(ctx)
		if err != nil {
			continue
		}
		i := slices.IndexFunc(list.Events, func(e control.Event) bool { return e.Kind == control.EventExcess && strings.HasSuffix(e.Tenant, name) })
		if i >= 0 {
			return max(list.Events[i].Time.Sub(time.Unix(0, since)).Seconds(), 0)
		}
	}
	return never
}

// untilEnded is the time from the moment at which the program passed its limit until its
// process ended, as its pidfd tells.
func (a *attacker) untilEnded() float64 {
	fd, err := unix.PidfdOpen(a.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return time.Since(time.Unix(0, a.passed)).Seconds()
	}
	if err != nil {
		return never
	}
	defer unix.Close(fd)
	for begin := time.Now(); time.Since(begin).Seconds() < never; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
		if n == 1 {
			return time.Since(time.Unix(0, a.passed)).Seconds()
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return never
}
