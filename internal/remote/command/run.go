package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// ErrLost is returned where the connection to the host of a command has ended. The command ends then, too.
var ErrLost = errors.New("the connection to the command's host has ended, and so has the command")

// Client runs commands with the streams and signals of this process.
type Client struct {
	// Streams are 0, 1 and 2 of the process.
	Streams [3]*os.File
	// Tell is told what people should know.
	Tell func(text string)
}

// Run says what is to run on a new connection, and returns how it ended. It describes the streams and the directory itself. The
// context ends a request that waits, or whose command is about to start; from then on the command hears of signals itself.
func (c Client) Run(ctx context.Context, conn *wire.Conn, open wire.Open) (wire.Exited, error) {
	r := &running{Client: c, conn: conn}
	for stream, file := range c.Streams {
		if screen := openScreen(int(file.Fd())); screen != nil {
			open.Command.Terminals = append(open.Command.Terminals, stream)
			r.typed = r.typed || stream == 0
			if r.screen == nil {
				r.screen, open.Command.Window = screen, screen.window()
				open.Command.Term = os.Getenv("TERM")
			}
		}
	}
	directory, forget, err := Here()
	if err != nil {
		return wire.Exited{}, err
	}
	open.Command.Directory, r.terminals = directory, open.Command.Terminals
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = r.begin(open)
	forget()
	if !stop() && err != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return wire.Exited{}, err
	}
	return r.run(context.WithoutCancel(ctx))
}

// running is a command on another host.
type running struct {
	Client
	conn *wire.Conn
	// screen is the terminal, nil for none. terminals are the streams that are it.
	screen    *screen
	terminals []int
	// typed is whether what is typed at the terminal is the command's input. Otherwise the terminal stays as it is, so that its
	// keys signal this process and a job in the background is not stopped.
	typed bool

	input   *source
	outputs map[uint8]*sink
}

// begin asks for the command and returns when it is about to start.
func (r *running) begin(open wire.Open) error {
	err := r.conn.Send(open)
	if long := new(wire.TooLongError); errors.As(err, &long) {
		return fmt.Errorf("the command and its variables have %d bytes, and another host takes %d: put some into a file", long.Bytes, wire.MaxMessage)
	} else if err != nil {
		return err
	}
	var a wire.Answer
	for more := true; more; more = a.Queued != nil {
		a = wire.Answer{}
		if err := r.conn.Receive(&a); err != nil {
			return err
		}
		if a.Queued != nil {
			r.Tell(a.Queued.String())
		}
	}
	switch {
	case a.Refused != nil:
		return a.Refused
	case a.Started == nil:
		return fmt.Errorf("%w: an answer that is none to a command", wire.ErrFrame)
	}
	for _, name := range a.Started.Dropped {
		r.Tell("the host does not let the command have the variable " + name)
	}
	return nil
}

// passedOn are the signals that a command gets when this process gets them.
var passedOn = []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH}

// catch has the signals that are passed on come by a channel.
func catch() chan os.Signal {
	signals := make(chan os.Signal, 64)
	for _, s := range passedOn {
		if !signal.Ignored(s) { // nohup's and a shell's background jobs'
			signal.Notify(signals, s)
		}
	}
	return signals
}

func (r *running) run(ctx context.Context) (wire.Exited, error) {
	signals := catch()
	defer signal.Stop(signals)
	// A stream that nobody reads here is one that nobody reads there.
	signal.Ignore(unix.SIGPIPE)
	if r.typed {
		if err := r.screen.raw(); err != nil {
			return wire.Exited{}, err
		}
		defer r.screen.restore()
	}
	if err := r.flow(); err != nil {
		return wire.Exited{}, err
	}
	answers, broken := make(chan wire.Answer), make(chan error, 1)
	go func() { broken <- r.listen(answers) }()
	for {
		select {
		case s := <-signals:
			if err := r.signalled(s, signals); err != nil {
				return wire.Exited{}, r.lost(err)
			}
		case a := <-answers:
			switch {
			case a.Stopped != nil:
				if err := r.pause(signals); err != nil {
					return wire.Exited{}, r.lost(err)
				}
			case a.Exited != nil:
				if err := sane(*a.Exited); err != nil {
					return wire.Exited{}, r.lost(err)
				}
				return *a.Exited, r.written()
			case a.Ended != nil:
				return wire.Exited{}, r.lost(errors.New(a.Ended.Text))
			}
		case err := <-broken:
			return wire.Exited{}, r.lost(err)
		case <-ctx.Done():
			return wire.Exited{}, ctx.Err()
		}
	}
}

// sane returns why no command can end like that. A status that does not fit would become another one, such as success.
func sane(e wire.Exited) error {
	if e.Status < 0 || e.Status > 255 || e.Signal < 0 || e.Signal > mostSignal {
		return fmt.Errorf("%w: status %d and signal %d", wire.ErrFrame, e.Status, e.Signal)
	}
	return nil
}

func (r *running) lost(err error) error { return fmt.Errorf("%w: %w", ErrLost, err) }

// flow begins to carry the streams.
func (r *running) flow() error {
	took := func(t wire.Took) error { return r.conn.Send(wire.Said{Took: &t}) }
	r.outputs = map[uint8]*sink{}
	for stream := uint8(1); stream <= 2; stream++ {
		file, err := again(r.Streams[stream])
		if err != nil {
			return err
		}
		r.outputs[stream] = newSink(stream, file, took, r.conn.End)
		go r.outputs[stream].run()
	}
	file, err := again(r.Streams[0])
	if err != nil {
		return err
	}
	if r.input, err = newSource(r.conn, 0, file); err != nil {
		return err
	}
	go func() {
		r.input.run()
		_ = r.Streams[0].Close() // whoever writes to it hears that nobody reads
	}()
	return nil
}

// listen reads what the server says until the connection ends.
func (r *running) listen(answers chan<- wire.Answer) error {
	for {
		f, err := r.conn.Read()
		if err != nil {
			return err
		}
		out := r.outputs[f.Stream]
		switch {
		case f.Kind == wire.KindEnd && f.Stream == 0:
			r.input.stop()
		case f.Kind != wire.KindMessage && out == nil:
			err = fmt.Errorf("%w: stream %d", wire.ErrFrame, f.Stream)
		case f.Kind == wire.KindData:
			err = out.put(f.Content)
		case f.Kind == wire.KindEnd:
			out.end()
		case f.Kind == wire.KindMessage:
			err = r.answered(f, answers)
		}
		if err != nil {
			return err
		}
	}
}

func (r *running) answered(f wire.Frame, answers chan<- wire.Answer) error {
	var a wire.Answer
	if err := f.Decode(&a); err != nil {
		return err
	}
	if a.Took != nil {
		if a.Took.Stream != 0 || !r.input.gate.give(a.Took.Bytes) {
			return fmt.Errorf("%w: %d bytes taken that were not sent", wire.ErrFrame, a.Took.Bytes)
		}
		return nil
	}
	if a.Refused != nil {
		return a.Refused
	}
	answers <- a
	return nil
}

// written returns when everything that the command wrote is written here, or nobody reads it. What could not be carried is its
// error: a status that says all went well would hide it.
func (r *running) written() error {
	var faults []error
	for _, out := range r.outputs {
		out.end()
		<-out.over
		if out.fault != nil && !errors.Is(out.fault, unix.EPIPE) {
			faults = append(faults, incomplete("what the command wrote to standard "+[...]string{1: "output", 2: "error"}[out.stream], out.fault))
		}
	}
	if fault := r.input.fault.Load(); fault != nil && !r.typed {
		faults = append(faults, incomplete("what the command read", *fault))
	}
	return errors.Join(faults...)
}

// incomplete is the error of a stream. It has the error's words alone: the file's path is /dev/stdout, whatever is behind it, and
// what is done about a full file system of that path would be wrong.
func incomplete(what string, err error) error {
	if file := (*os.PathError)(nil); errors.As(err, &file) {
		err = file.Err
	}
	return errors.New(what + " is not complete: " + err.Error())
}

// signalled passes a signal on.
func (r *running) signalled(s os.Signal, signals chan os.Signal) error {
	number, ok := s.(syscall.Signal)
	switch {
	case !ok:
		return nil
	case number == unix.SIGWINCH:
		if r.screen == nil {
			return nil
		}
		size := r.screen.window()
		return r.conn.Send(wire.Said{Window: &size})
	case number == unix.SIGTSTP:
		if err := r.conn.Send(wire.Said{Signal: int(number)}); err != nil {
			return err
		}
		return r.pause(signals)
	}
	return r.conn.Send(wire.Said{Signal: int(number)})
}

// pause stops this process's group as the terminal would have done it, and has the command go on when the group does.
func (r *running) pause(signals chan os.Signal) error {
	if r.typed {
		r.screen.restore()
	}
	if err := r.conn.Send(wire.Said{Away: true}); err != nil {
		return err
	}
	before, err := act(unix.SIGTSTP, action{})
	if err == nil {
		err = syscall.Kill(0, unix.SIGTSTP)
	}
	if err == nil {
		err = r.stopped(signals)
		_, failed := act(unix.SIGTSTP, before)
		err = errors.Join(err, failed)
	}
	if err != nil {
		return fmt.Errorf("stop with the command: %w", err)
	}
	if r.typed {
		if err := r.screen.raw(); err != nil {
			return err
		}
	}
	if r.screen != nil {
		size := r.screen.window()
		if err := r.conn.Send(wire.Said{Window: &size}); err != nil {
			return err
		}
	}
	return r.conn.Send(wire.Said{Signal: int(unix.SIGCONT)})
}

// stopTime is how long the kernel may take to stop a process that sent itself a signal.
const stopTime = 100 * time.Millisecond

// stopped returns when this process goes on. Where nobody could have its group go on, the kernel does not stop it.
func (r *running) stopped(signals <-chan os.Signal) error {
	late := time.After(stopTime)
	for {
		select {
		case s := <-signals:
			if s == unix.SIGCONT {
				return nil
			}
			if number, ok := s.(syscall.Signal); ok {
				if err := r.conn.Send(wire.Said{Signal: int(number)}); err != nil {
					return err
				}
			}
		case <-late:
			return nil
		}
	}
}

// Status is the exit status of this process for how a command ended. A signal that ended the command ends this process, so
// that whoever waits for it learns the same.
func Status(e wire.Exited) int {
	if e.Signal == 0 {
		return e.Status
	}
	// The core is that of the command, on its host.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // a core too many does no harm
	_, err := act(syscall.Signal(e.Signal), action{})
	if err == nil || syscall.Signal(e.Signal) == unix.SIGKILL {
		_ = syscall.Kill(os.Getpid(), syscall.Signal(e.Signal))
		<-time.After(stopTime) // another thread may have it to take
	}
	return signalled + e.Signal // which ends no program by default, such as SIGCHLD
}

// mostSignal is the largest number of a signal that Linux has.
const mostSignal = 64

// signalled is what shells add to the number of the signal that ended a command.
const signalled = 128

// action is what the kernel does with a signal: a handler, flags, the address to return by, and a mask of 64 signals, as Linux
// has them (struct kernel_sigaction). The zero value is what it does by default.
type action [4]uintptr

// act sets what is done with a signal, and returns what was done before. Package signal leaves Go's own handlers in place, which
// neither stop a process nor end it as the kernel would.
func act(s syscall.Signal, a action) (before action, err error) {
	_, _, failed := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&a)), uintptr(unsafe.Pointer(&before)), 8, 0, 0)
	if failed != 0 {
		return before, fmt.Errorf("set what signal %d does: %w", s, failed)
	}
	return before, nil
}
