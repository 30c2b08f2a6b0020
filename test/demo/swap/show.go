package main

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
	"github.com/divvy-gpu/divvy/test/demo/screen"
)

const (
	// watch is how long a person gets to look at each scene.
	watch = 6 * time.Second
	// longest bounds every wait.
	longest = 2 * time.Minute
	// mostTries bounds how often a tenant is suspended that its program keeps awake.
	mostTries = 5
	// sleeper is the tenant that sleeps.
	sleeper = "eva"
	// asleep is how much memory it has. The simulated driver copies it with the processors' time.
	asleep = 512 << 20
	// hostMemory is what the agent may use of the host's memory.
	hostMemory = "12Gi"
)

// show is the demonstration.
type show struct {
	*simulated.Machine
	screen  *screen.Screen
	agent   *simulated.Agent
	tenants []*simulated.Tenant
}

// play runs the scenes in turn; an error ends the show.
func (s *show) play() (err error) {
	s.screen.Say("A GPU of 4 GiB. Its agent may use %s of host memory for what does not fit.", hostMemory)
	if s.agent, err = s.StartAgent("--swap-memory", hostMemory); err != nil {
		return err
	}
	for _, scene := range []func() error{s.turns, s.sleep} {
		if err := scene(); err != nil {
			return err
		}
	}
	return nil
}

// start starts a program in a share with a name.
func (s *show) start(name string, share []string, sweep ...string) (*simulated.Tenant, error) {
	t, err := s.Start(append([]string{"--name", name}, share...), append([]string{s.Gpubench, "sweep", "--pieces", "48"}, sweep...)...)
	if err != nil {
		return nil, err
	}
	s.tenants = append(s.tenants, t)
	return t, nil
}

// look shows the table for a scene's time, or until is true.
func (s *show) look(most time.Duration, until func() (bool, error)) error {
	for end := time.Now().Add(most); ; {
		text, err := exec.CommandContext(s.Context(), s.Divvy, "ls", "--simgpu", "swap-4g").Output()
		if err != nil {
			return fmt.Errorf("list shares: %w", err)
		}
		s.screen.Table(string(text))
		if done, err := until(); done || err != nil {
			return err
		}
		if time.Now().After(end) {
			return nil
		}
		if err := s.Pause(200 * time.Millisecond); err != nil {
			return err
		}
	}
}

// never is for scenes that take their time.
func never() (bool, error) { return false, nil }

// steps are how many steps of a tenant ended in a span of CLOCK_MONOTONIC, ns.
func steps(t *simulated.Tenant, from, to uint64) (n int) {
	for _, l := range t.All() {
		if l.Wall > 0 && l.End > from && l.End <= to {
			n++
		}
	}
	return n
}

// hadTurns reports whether each of two has gone on after the other since a moment of CLOCK_MONOTONIC, ns.
func hadTurns(both []*simulated.Tenant, since uint64) func() (bool, error) {
	return func() (bool, error) {
		var first, last [2]uint64
		for i, t := range both {
			for _, l := range t.All() {
				if l.Wall == 0 || l.End <= since {
					continue
				}
				if first[i] == 0 {
					first[i] = l.End
				}
				last[i] = l.End
			}
		}
		return first[0] != 0 && first[1] != 0 && last[0] > first[1] && last[1] > first[0], nil
	}
}

// pace is how two tenants go on in a while.
type pace struct {
	perSecond float64
	each      [2]int // steps
	// stretch is how many steps one ends on average before the other one ends one. It tells of turns, however busy the machine is.
	stretch float64
}

// alive reports whether both have gone on.
func (p pace) alive() bool { return p.each[0] > 0 && p.each[1] > 0 }

// paceOf looks at the steps that ended in a span of CLOCK_MONOTONIC, ns.
func paceOf(both []*simulated.Tenant, from, to uint64) (p pace) {
	type step struct {
		end uint64
		of  int
	}
	var all []step
	for i, t := range both {
		for _, l := range t.All() {
			if l.Wall > 0 && l.End > from && l.End <= to {
				all = append(all, step{l.End, i})
				p.each[i]++
			}
		}
	}
	slices.SortFunc(all, func(a, b step) int { return cmp.Compare(a.end, b.end) })
	changes := 0
	for i := 1; i < len(all); i++ {
		if all[i].of != all[i-1].of {
			changes++
		}
	}
	p.perSecond = float64(len(all)) / (float64(to-from) / 1e9)
	p.stretch = float64(len(all)) / float64(changes+1)
	return p
}

// pace watches both for as long as a scene takes, and goes on until each has gone on after the other: the slower memory moves, the
// longer are turns, and steps where nobody gives turns.
func (s *show) pace(both []*simulated.Tenant, least time.Duration) (pace, error) {
	from, err := s.Oracle.Now(s.Context())
	if err != nil {
		return pace{}, err
	}
	had := hadTurns(both, from.At)
	if s.agent != nil {
		err = errors.Join(s.look(least, never), s.look(longest, had))
	} else {
		err = s.Pause(least)
		for end := time.Now().Add(longest); err == nil && time.Now().Before(end); err = s.Pause(200 * time.Millisecond) {
			if done, _ := had(); done {
				break
			}
		}
	}
	if err != nil {
		return pace{}, err
	}
	to, err := s.Oracle.Now(s.Context())
	if err != nil {
		return pace{}, err
	}
	return paceOf(both, from.At, to.At), nil
}

// turns has two tenants take turns, then lose the agent that gives them, then find another one.
func (s *show) turns() error {
	s.screen.Say("Two tenants have 3 GiB each and go through all of it, again and again. They take turns.")
	var both []*simulated.Tenant
	for _, name := range []string{"ada", "ben"} {
		t, err := s.start(name, []string{"--swap", "--memory", "3136Mi", "--kept", "64Mi"}, "--bytes", "3Gi", "--ns", "50000000", "--count", "0")
		if err != nil {
			return err
		}
		both = append(both, t)
	}
	// The first turns are longer: how fast memory moves is measured when it does.
	if err := s.look(longest, hadTurns(both, 0)); err != nil {
		return err
	}
	turns, err := s.pace(both, watch)
	if err != nil {
		return err
	}
	s.screen.Check(turns.alive() && turns.stretch > 3, "by turns they go through their memory %.1f times a second, %.0f times in a turn; alone one could 20 times a second", turns.perSecond, turns.stretch)
	s.screen.Say("kill -9 of the agent: nobody gives turns, and each drives the other's memory out.")
	s.agent.End(syscall.SIGKILL)
	s.agent = nil
	if err := s.Pause(1500 * time.Millisecond); err != nil { // the gates open within a second
		return err
	}
	none, err := s.pace(both, watch/2)
	if err != nil {
		return err
	}
	s.screen.Check(none.alive() && none.stretch < turns.stretch/2, "without turns %.1f times a second: slow, and both alive", none.perSecond)
	s.screen.Say("The next agent goes on.")
	if s.agent, err = s.StartAgent("--swap-memory", hostMemory); err != nil {
		return err
	}
	again, err := s.pace(both, watch)
	if err != nil {
		return err
	}
	s.screen.Check(again.alive() && again.stretch > 2*none.stretch, "with the next agent %.1f times a second", again.perSecond)
	for _, t := range both {
		if err := s.finish(t); err != nil {
			return err
		}
	}
	return s.Alone()
}

// finish ends a tenant and checks that it found what it had written.
func (s *show) finish(t *simulated.Tenant) error {
	pids, _, err := t.Working(1)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pids[0], syscall.SIGTERM); err != nil {
		return fmt.Errorf("end a program: %w", err)
	}
	lines, err := t.Wait(s.Context())
	if err != nil {
		return err
	}
	last := lines[len(lines)-1]
	s.screen.Check(last.Result == "CUDA_SUCCESS" && last.Changed == 0, "its memory is as it was written, after it went through it %d times", last.Steps)
	return nil
}

// doze suspends a tenant after one of its steps. On a busy machine the next step may begin before the tenant is off the GPU, and keeps
// it there: it is suspended after that one.
func (s *show) doze(t *simulated.Tenant) error {
	for try := 1; ; try++ {
		if err := s.look(longest, s.worked(t, steps(t, 0, ^uint64(0))+1)); err != nil {
			return err
		}
		text, err := exec.CommandContext(s.Context(), s.Divvy, "suspend", sleeper, "--simgpu", "swap-4g").CombinedOutput()
		if err == nil {
			return nil
		}
		if try == mostTries || !strings.Contains(string(text), "calls the GPU") {
			return fmt.Errorf("suspend a tenant: %w: %s", err, text)
		}
	}
}

// worked reports whether a tenant has had so many steps.
func (s *show) worked(t *simulated.Tenant, n int) func() (bool, error) {
	return func() (bool, error) {
		select {
		case <-t.Ended():
			return false, errors.New("the tenant ended: " + t.Said())
		default:
			return steps(t, 0, ^uint64(0)) >= n, nil
		}
	}
}

// sleep has an idle tenant leave the GPU with all that it has, and come back by its program's next call.
func (s *show) sleep() error {
	s.screen.Say("A tenant in ordinary memory works for a moment every ten seconds. Meanwhile it can sleep.")
	t, err := s.start(sleeper, []string{"--memory", "1Gi"}, "--bytes", strconv.Itoa(asleep), "--ns", "50000000", "--count", "0", "--period", "10000")
	if err != nil {
		return err
	}
	if err := s.doze(t); err != nil {
		return err
	}
	r, err := s.record()
	if err != nil {
		return err
	}
	s.screen.Check(r.GPUs[0].Used == 0 && r.HostBytes >= asleep, "asleep it has nothing on the GPU, and %d MiB are in host memory", r.HostBytes>>20)
	err = s.look(longest, func() (bool, error) {
		r, err = s.record()
		return err == nil && r.GPUs[0].Used >= asleep, err
	})
	if err != nil {
		return err
	}
	s.screen.Check(r.GPUs[0].Used >= asleep, "its program's next call wakes it")
	return s.finish(t)
}

// record is the simulated driver's own.
func (s *show) record() (*simgpu.Report, error) {
	text, err := exec.CommandContext(s.Context(), s.Simgpuctl, "report", s.Instance).Output()
	if err != nil {
		return nil, fmt.Errorf("read the simulated driver's record: %w", err)
	}
	return simgpu.ParseReport(text)
}

// close stops what was started.
func (s *show) close() error {
	for _, t := range s.tenants {
		t.End()
	}
	var said string
	if s.agent != nil {
		said = strings.TrimSpace(s.agent.End(syscall.SIGTERM))
	}
	if err := s.Close(); err != nil {
		return fmt.Errorf("%w; the agent: %s", err, said)
	}
	return nil
}
