package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	topID   = "ops.top_cpu_percent"
	topGoal = 1
	// Rows and columns of the terminal.
	topRows, topColumns = 50, 160
)

// measureTop takes the part of a core that `divvy top` needs to follow shares on a terminal, a look each second. Its start
// is left out.
func measureTop(ctx context.Context, o options) ([]measurement.Row, error) {
	shares, followed, runs := 200, 60*time.Second, 3
	if o.quick {
		shares, followed, runs = 16, 5*time.Second, 1
	}
	s, err := openServed(ctx, o.build, shares)
	if err != nil {
		return nil, err
	}
	var percents []float64
	written := 0
	for range runs {
		var percent float64
		if percent, written, err = s.top(followed); err != nil {
			return nil, errors.Join(err, s.close())
		}
		percents = append(percents, percent)
	}
	if err := s.close(); err != nil {
		return nil, err
	}
	row := measurement.Of(topID, "%", topGoal, measurement.Lower, "make bench-ops ONLY="+topID, percents...)
	row.Case = fmt.Sprintf("%d shares on %d GPUs, a look each second", shares, gpus)
	row.Note = fmt.Sprintf("of a core, during %s, on a terminal of %d rows and %d columns, to which it wrote %.1f KiB a second",
		followed, topRows, topColumns, float64(written)/1024/followed.Seconds())
	return []measurement.Row{row}, nil
}

// top follows the shares for a while. It returns the part of a core that was needed, and how many bytes were written to
// the terminal.
func (s *served) top(followed time.Duration) (percent float64, written int, err error) {
	screen, terminal, err := openTerminal()
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, screen.Close()) }()
	command := exec.Command(s.machine.Divvy, "top", "--interval", "1s")
	command.Env = append(os.Environ(), "TERM=xterm-256color")
	command.Stdin, command.Stdout, command.Stderr = terminal, terminal, terminal
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	err = errors.Join(command.Start(), terminal.Close())
	if err != nil {
		return 0, 0, fmt.Errorf("start divvy top: %w", err)
	}
	var total atomic.Int64
	shown := make(chan struct{})
	go drain(screen, &total, shown)
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
	}()
	select {
	case <-shown:
	case <-time.After(20 * time.Second):
		return 0, 0, errors.New("divvy top shows no share")
	}
	if err := s.machine.Pause(2 * time.Second); err != nil {
		return 0, 0, err
	}
	begin, before := time.Now(), total.Load()
	spent, err := simulated.Spent(command.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	if err := s.machine.Pause(followed); err != nil {
		return 0, 0, err
	}
	now, err := simulated.Spent(command.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	return 100 * (now - spent).Seconds() / time.Since(begin).Seconds(), int(total.Load() - before), nil
}

// drain reads what is shown, as a terminal does, until the program ends. It closes shown when a share is on the screen.
func drain(screen *os.File, total *atomic.Int64, shown chan<- struct{}) {
	var seen []byte
	text := make([]byte, 1<<16)
	for {
		n, err := screen.Read(text)
		total.Add(int64(n))
		if shown != nil {
			if seen = append(seen, text[:n]...); bytes.Contains(seen, []byte("gpubench")) {
				close(shown)
				shown = nil
			}
		}
		if err != nil {
			return
		}
	}
}

// openTerminal makes a pseudoterminal: the screen's end and the program's.
func openTerminal() (screen, terminal *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	screen = os.NewFile(uintptr(fd), "ptmx")
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: topRows, Col: topColumns}))
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open a terminal: %w", err), screen.Close())
	}
	return screen, terminal, nil
}
