package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/launch"
	"github.com/divvy-gpu/divvy/internal/process"
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
	status := endOf(command.ProcessState)
	if notBegun(status, created.Tenant.Command) {
		return status // which was said when it was looked for
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), summaryTime)
	defer cancel()
	a.sum(asking, endpoint, &created.Tenant, time.Now(), command.ProcessState)
	return status
}

// notBegun reports whether a command ended as what shells cannot start does, and there is no such program.
func notBegun(status error, command []string) bool {
	const denied, missing = commandStatus(126), commandStatus(127)
	if len(command) == 0 || !errors.Is(status, denied) && !errors.Is(status, missing) {
		return false
	}
	_, err := exec.LookPath(command[0])
	return err != nil
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

const (
	// lateMost is how long the last of what a share did may take to be told: the driver's figures are late.
	lateMost = 2500 * time.Millisecond
	// latePause is between two questions for it.
	latePause = 100 * time.Millisecond
)

// sum says what a share used whose command ended at a moment, when all of that is told.
func (a *app) sum(ctx context.Context, endpoint control.Endpoint, t *control.Tenant, ended time.Time, state *os.ProcessState) {
	for {
		l := listing{endpoint: endpoint}
		if err := l.list(ctx); err != nil {
			say(a.err, "divvy: what %s used is not known: %v", t.Name, err)
			return
		}
		at := slices.IndexFunc(l.Tenants, func(one control.Tenant) bool { return one.ID == t.ID })
		if at < 0 {
			say(a.err, "divvy: what %s used is not known: the agent has ended the share", t.Name)
			return
		}
		now := &l.Tenants[at]
		if time.Since(ended) < lateMost && !toldUntil(now, ended) {
			select {
			case <-ctx.Done():
			case <-time.After(latePause):
			}
			continue
		}
		forget(now)
		endLately(now, l.Time.Sub(ended))
		for _, line := range summary(&l.Listing, now, ended.Sub(now.Created), signalOf(state)) {
			say(a.err, "divvy: %s", line)
		}
		return
	}
}

// toldUntil reports whether all is told that a tenant did until a moment, as far as it ever is, and that its processes
// have ended.
func toldUntil(t *control.Tenant, ended time.Time) bool {
	for i := range t.Shares {
		s := &t.Shares[i]
		divided := s.Instance == nil && s.Backend != v1alpha1.BackendMPS
		if divided && s.Time != nil && s.Time.UsedUntil.Before(ended) {
			return false
		}
	}
	return true
}

// forget leaves out the processes that have ended since the agent looked.
func forget(t *control.Tenant) {
	for i := range t.Shares {
		s := &t.Shares[i]
		s.Process = slices.DeleteFunc(s.Process, func(p control.Process) bool {
			id, err := process.Find(p.PID)
			return err != nil || !id.Alive()
		})
	}
}

// endLately leaves out of what a tenant did lately the time since its command ended, in which it did nothing.
func endLately(t *control.Tenant, since time.Duration) {
	for i := range t.Shares {
		if told := t.Shares[i].Time; told != nil && told.Lately != nil {
			told.Lately.Span = max(told.Lately.Span-max(since, 0), 0)
		}
	}
}

// signalOf is the signal that ended a command, as `divvy run` or its shell saw it; 0 for none.
func signalOf(state *os.ProcessState) syscall.Signal {
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return status.Signal()
	case ok && status.ExitStatus() == signaled+int(unix.SIGKILL), ok && status.ExitStatus() == signaled+int(unix.SIGTERM):
		return syscall.Signal(status.ExitStatus() - signaled)
	}
	return 0
}

// endText says how a share ended, and by whom where that is known.
func endText(l *control.Listing, t *control.Tenant, age time.Duration, by syscall.Signal) string {
	text := fmt.Sprintf("%s ended after %s", t.Name, span(age))
	if t.Ending != "" {
		return text + ": " + printable(t.Ending)
	}
	if by != 0 {
		text += " by " + unix.SignalName(by)
	}
	for i := len(l.Events) - 1; i >= 0; i-- {
		e := &l.Events[i]
		if e.Tenant == t.Name && e.User == t.User && !e.Time.Before(t.Created) && (e.Kind == control.EventMisuse || e.Kind == control.EventExcess) {
			return text + "; of it was told: " + printable(e.Text)
		}
	}
	return text
}

// summary is what a share used in its time, in sentences: one line for each of its GPUs. by is the signal that ended its
// command, 0 for none.
func summary(l *control.Listing, t *control.Tenant, age time.Duration, by syscall.Signal) []string {
	lines := []string{}
	ending := endText(l, t, age, by)
	for i := range t.Shares {
		s := &t.Shares[i]
		text := ending + "."
		if len(t.Shares) > 1 {
			text = fmt.Sprintf("%s. Of GPU %d:", ending, s.Index)
		}
		text += fmt.Sprintf(" Peak memory: %s of %s.", amount(s.Peak), size(s.Limit))
		if s.Time != nil && isTimed(s, l.Time) {
			text += fmt.Sprintf(" GPU time: %s, %s of a GPU. Held back: %s.", nanoseconds(s.Time.Used), part(s.Time.Used, age), partOf(s.Time.HeldBackTotal, age))
		}
		text += " " + refusalsOf(s, l.Time)
		if s.Time != nil && s.Time.Lately != nil {
			if idle, ok := idleText(s.Time.Lately); ok {
				text += " " + idle
			}
		}
		lines = append(lines, text)
	}
	if others := livingOf(t); others > 0 {
		lines = append(lines, fmt.Sprintf("%s goes on: processes of it still run (%d).", t.Name, others))
	}
	return lines
}

// isTimed reports whether what a share uses of its GPU is counted, by its library or by the driver's figures.
func isTimed(s *control.Share, now time.Time) bool {
	const late = 10 * time.Second
	return s.Time.Limited || now.Sub(s.Time.UsedUntil) < late
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
