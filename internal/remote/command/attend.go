package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/line"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// LineFD is the descriptor by which an attendant has its line to the server.
const LineFD = 3

const (
	// leaveTime is how long what a command has started may take to end by itself.
	leaveTime = 2 * time.Second
	// leaveMost is after how long what cannot be ended, such as another user's program, is left.
	leaveMost = 8 * time.Second
	// leavePause is between two looks for what is left.
	leavePause = 20 * time.Millisecond
)

// attendant is the parent of a command.
type attendant struct {
	line *line.Line
	// pid is the command's, which leads a process group.
	pid int
	// stops and exit are told by whoever waits for children; exit is closed after the last child.
	stops chan int
	exit  chan wire.Exited
	none  chan struct{}
}

// Attend runs the command that the server on descriptor LineFD tells, until it and all that it started have ended. prepare is
// called before anything is started: what it leaves running is not the command's.
func Attend(ctx context.Context, prepare func(context.Context) error) error {
	l, err := line.Of(os.NewFile(LineFD, "line"), maxOrder)
	if err != nil {
		return err
	}
	begin, err := hearBegin(l)
	if err != nil {
		return err
	}
	a := &attendant{line: l, stops: make(chan int), exit: make(chan wire.Exited, 1), none: make(chan struct{})}
	if err := a.begin(ctx, begin, prepare); err != nil {
		refused := wire.Refused{Code: wire.CodeHost, Text: err.Error()}
		if errors.Is(err, ErrDirectory) {
			refused.Code = wire.CodeDirectory
		}
		return l.Say(report{Refused: &refused}, nil)
	}
	return a.attend()
}

// begin starts the command.
func (a *attendant) begin(ctx context.Context, b *Begin, prepare func(context.Context) error) error {
	if err := Enter(b.Directory); err != nil {
		return err
	}
	if err := prepare(ctx); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keep what the command starts: %w", err)
	}
	files := []uintptr{0, 1, 2}
	sys := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var ours *os.File
	if len(b.Terminals) > 0 {
		terminal, theirs, err := openTerminal(b.Window)
		if err != nil {
			return err
		}
		defer terminal.Close()
		defer theirs.Close()
		ours = terminal
		// This process leads a session without a terminal: the server made it so.
		if err := unix.IoctlSetInt(int(theirs.Fd()), unix.TIOCSCTTY, 0); err != nil {
			return fmt.Errorf("make the terminal the command's: %w", err)
		}
		sys.Foreground, sys.Ctty = true, int(theirs.Fd())
		for _, stream := range b.Terminals {
			files[stream] = theirs.Fd()
		}
	}
	needThreads()
	if err := a.line.Say(report{Started: true}, ours); err != nil {
		return err
	}
	return a.start(b, &syscall.ProcAttr{Env: b.Env, Files: files, Sys: sys})
}

// mostThreads bounds how many threads are tried.
const mostThreads = 64

// needThreads makes about as many threads for a moment as start and `divvy run` need. Where the user may have no more, Go ends
// this process. The server tells that while the command has not begun; later such an end would go to the command's streams.
func needThreads() {
	var made, ended sync.WaitGroup
	n := min(8+2*runtime.GOMAXPROCS(0), mostThreads)
	made.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread() // the thread ends with this function
			made.Done()
			made.Wait()
		})
	}
	ended.Wait()
}

// start starts the command and waits for children from then on.
func (a *attendant) start(b *Begin, attr *syscall.ProcAttr) error {
	started := make(chan error)
	go func() {
		// The kernel ends the command when the thread that started it ends.
		runtime.LockOSThread()
		pid, err := syscall.ForkExec(b.Args[0], b.Args, attr)
		a.pid = pid
		started <- err
		if err == nil {
			a.wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("run %s: %w: reinstall Divvy", b.Args[0], err)
	}
	// The command has its own; an end of its streams must be the end of all who have them.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	defer null.Close()
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return fmt.Errorf("leave the streams to the command: %w", err)
		}
	}
	return nil
}

// wait waits for all children: also those of others that have ended are this process's.
func (a *attendant) wait() {
	defer close(a.none)
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // there is none
			return
		case pid != a.pid:
		case status.Stopped():
			a.stops <- int(status.StopSignal())
		case status.Signaled():
			a.exit <- wire.Exited{Signal: int(status.Signal())}
		case status.Exited():
			a.exit <- wire.Exited{Status: status.ExitStatus()}
		}
	}
}

// attend passes signals on until the command ends or the server is gone, and then ends what is left.
func (a *attendant) attend() error {
	orders, gone := make(chan order), make(chan struct{})
	go a.listen(orders, gone)
	for {
		select {
		case o := <-orders:
			a.signal(syscall.Signal(o.Signal))
		case signal := <-a.stops:
			if err := a.line.Say(report{Stopped: &wire.Stopped{Signal: signal}}, nil); err != nil {
				gone = closed
			}
		case exited := <-a.exit:
			a.endAll()
			return a.line.Say(report{Exited: &exited}, nil)
		case <-gone:
			a.endAll()
			return nil
		}
	}
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (a *attendant) listen(orders chan<- order, gone chan<- struct{}) {
	for {
		var o order
		if err := a.line.Hear(&o); err != nil {
			close(gone)
			return
		}
		orders <- o
	}
}

// typed are the signals that a terminal sends to a whole process group.
var typed = []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGHUP, syscall.SIGCONT, syscall.SIGWINCH}

// signal passes a signal on. The command may have ended.
func (a *attendant) signal(s syscall.Signal) {
	to := a.pid
	if slices.Contains(typed, s) {
		to = -a.pid
	}
	_ = syscall.Kill(to, s)
}

// endAll ends everything that descends from this process: what has lost its parents is this one's child.
func (a *attendant) endAll() {
	self := os.Getpid()
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGCONT} {
		for _, id := range process.Descendants(self) {
			_ = id.Signal(s) // it may have ended
		}
	}
	late, most := time.After(leaveTime), time.After(leaveMost)
	look := time.NewTicker(leavePause)
	defer look.Stop()
	kill := false
	for {
		select {
		case <-a.none:
			return
		case <-most:
			return
		case <-a.stops:
		case <-late:
			kill = true
		case <-look.C:
		}
		if kill {
			for _, id := range process.Descendants(self) {
				_ = id.Signal(syscall.SIGKILL) // it may have ended
			}
		}
	}
}
