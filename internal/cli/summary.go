package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/launch"
)

// commandStatus is how a command of `divvy run --summary` ended, as shells number it.
type commandStatus int

// Error implements error.
func (s commandStatus) Error() string { return fmt.Sprintf("the command ended with status %d", int(s)) }

// Is reports that nobody has to be told: the command told what it had to.
func (s commandStatus) Is(target error) bool { return target == program.ErrReported }

// summaryTime is how long an agent may take to tell of a share whose command has ended.
const summaryTime = 5 * time.Second

// runSummed runs the plan as a child, says what its share used, and returns how it ended.
func (a *app) runSummed(ctx context.Context, endpoint control.Endpoint, created *control.Created, plan launch.Plan) error {
	command := &exec.Cmd{Path: plan.Program, Args: plan.Args, Env: plan.Env, Stdin: os.Stdin, Stdout: a.out, Stderr: a.err}
	signals := make(chan os.Signal, len(passedOn))
	for _, s := range passedOn {
		if !signal.Ignored(s) { // else the command ignores it too
			signal.Notify(signals, s)
		}
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("run %s: %w: reinstall Divvy", plan.Program, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	var err error
	for running := true; running; {
		select {
		case s := <-signals:
			if reachesAlone(s) {
				_ = command.Process.Signal(s) // it may have ended
			}
		case err = <-ended:
			running = false
		}
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), summaryTime)
	defer cancel()
	a.sum(asking, endpoint, &created.Tenant)
	return endOf(command.ProcessState)
}

// passedOn are the signals that end programs, or mean what each program takes them for.
var passedOn = []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2}

// reachesAlone reports whether a signal that this process got has to be passed on: what is
// typed on a terminal has reached the command too.
func reachesAlone(s os.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT {
		return true
	}
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return true
	}
	defer terminal.Close()
	foreground, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err != nil || foreground != unix.Getpgrp()
}

// endOf is nil for a command that ended with status 0.
func endOf(state *os.ProcessState) error {
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case !ok || state.Success():
		return nil
	case status.Signaled():
		return commandStatus(signaled + int(status.Signal()))
	}
	return commandStatus(status.ExitStatus())
}

// signaled is what shells add to the number of the signal that ended a command.
const signaled = 128

// sum says what a share used whose command has ended.
func (a *app) sum(ctx context.Context, endpoint control.Endpoint, t *control.Tenant) {
	l := listing{endpoint: endpoint}
	if err := l.list(ctx); err != nil {
		say(a.err, "divvy: what %s used is not known: %v", t.Name, err)
		return
	}
	for i := range l.Tenants {
		if l.Tenants[i].ID == t.ID {
			for _, line := range summary(&l.Listing, &l.Tenants[i]) {
				say(a.err, "divvy: %s", line)
			}
			return
		}
	}
	say(a.err, "divvy: what %s used is not known: the agent has ended the share", t.Name)
}

// summary is what a share used, in sentences: one line for each of its GPUs.
func summary(l *control.Listing, t *control.Tenant) []string {
	age := l.Time.Sub(t.Created)
	lines := []string{}
	for i := range t.Shares {
		s := &t.Shares[i]
		text := fmt.Sprintf("%s ended after %s.", t.Name, span(age))
		if len(t.Shares) > 1 {
			text = fmt.Sprintf("%s ended after %s. Of GPU %d:", t.Name, span(age), s.Index)
		}
		text += fmt.Sprintf(" Peak memory: %s of %s.", amount(s.Peak), size(s.Limit))
		if s.Time != nil && s.Time.Limited {
			text += fmt.Sprintf(" GPU time: %s, %s of a GPU. Held back: %s.", nanoseconds(s.Time.Used), part(s.Time.Used, age), partOf(s.Time.HeldBackTotal, age))
		}
		lines = append(lines, text+" "+refusalsOf(s, l.Time))
	}
	if others := livingOf(t); others > 0 {
		lines = append(lines, fmt.Sprintf("%s goes on: processes of it still run (%d).", t.Name, others))
	}
	return lines
}

// livingOf counts the processes of a tenant that use a GPU.
func livingOf(t *control.Tenant) (most int) {
	for i := range t.Shares {
		most = max(most, len(t.Shares[i].Process))
	}
	return most
}

// amount is size of a figure that a share tells itself, whatever that is.
func amount(n uint64) string {
	const any = 1 << 50 // a PiB
	if n >= any {
		return "more than any GPU has"
	}
	return size(n)
}

// refusalsOf tells of refused allocations in a sentence.
func refusalsOf(s *control.Share, now time.Time) string {
	r := s.Refusals
	if r == nil {
		return "No allocation was refused."
	}
	by := "by the limit of the share"
	if r.By == control.RefuserGPU {
		by = "by the GPU, which was full"
	}
	if r.Count == 1 {
		return fmt.Sprintf("One allocation was refused, of %s, at %s, %s.", amount(r.Last), moment(r.At, now), by)
	}
	text := fmt.Sprintf("%d allocations were refused", r.Count)
	switch r.ByGPU {
	case 0:
		by = "by the limit of the share"
	case r.Count:
		by = "by the GPU, which was full"
	default:
		text += fmt.Sprintf(", %d by the limit of the share and %d by the GPU, which was full", r.Count-min(r.ByGPU, r.Count), r.ByGPU)
	}
	return fmt.Sprintf("%s: the largest of %s, the last of %s, at %s, %s.", text, amount(r.Largest), amount(r.Last), moment(r.At, now), by)
}
