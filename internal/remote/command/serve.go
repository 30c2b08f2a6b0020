package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/line"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// Host says how a server runs commands.
type Host struct {
	// Attendant is a command line that calls [Attend].
	Attendant []string
	// Run is the command line that becomes the client's command, which is appended to it. Its first word is a program's path.
	Run []string
	// User is whose the command is. Switch has the attendant become that user, which only root can.
	User   User
	Switch bool
	// Variables are patterns of those that a client may set beside the usual ones.
	Variables []string
	// Own are variables for Divvy itself.
	Own []string
	// Ended is called when a command has ended, before its client hears of it, who may ask for the next one at once. Clean says
	// that its attendant has ended all that it started; otherwise what is left has to be ended before Ended returns, because
	// it may keep the streams. It may be called twice, and be nil.
	Ended func(clean bool)
}

// beginTime is how long an attendant may take until it starts the command: an agent may have to be started first, and a file
// server may be slow.
const beginTime = time.Minute

// lastTime is how long a client may take to hear why its command ends.
const lastTime = 10 * time.Second

// Serve runs a client's command and returns when it has ended, or the client has gone. A [wire.Refused] is for the client, who
// was told nothing then. When the context is done the command ends, and its client hears why.
func (h Host) Serve(ctx context.Context, conn *wire.Conn, c wire.Command) error {
	if err := checked(c); err != nil {
		return &wire.Refused{Code: wire.CodeMessage, Text: err.Error()}
	}
	// Whoever has to hear of the end may not listen.
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastTime, func() { _ = conn.Close() }) })
	defer stop()
	s := &serving{conn: conn, command: c, ended: h.Ended}
	if s.ended == nil {
		s.ended = func(bool) {}
	}
	defer s.end()
	accepted, dropped := Accept(c.Env, h.Variables)
	begin := Begin{
		Directory: c.Directory, Args: append(slices.Clone(h.Run), c.Args...), Terminals: c.Terminals, Window: c.Window,
		Env: append(h.User.environment(accepted, c.Term), h.Own...),
	}
	err := s.start(ctx, h)
	if err == nil {
		err = s.begin(ctx, &begin)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return Refusal(context.Cause(ctx))
	case err != nil:
		return Refusal(err)
	}
	if err := conn.Send(wire.Answer{Started: &wire.Started{Dropped: dropped}}); err != nil {
		return gone(conn)
	}
	return s.serve(ctx)
}

// ErrClient is why a command ended whose client has gone.
var ErrClient = errors.New("the client has gone")

func gone(conn *wire.Conn) error { return fmt.Errorf("%w: %w", ErrClient, conn.Err()) }

// serving is a command of a client.
type serving struct {
	conn    *wire.Conn
	command wire.Command
	ended   func(clean bool)

	line      *line.Line
	attendant *exec.Cmd
	id        process.ID
	// ends are the server's ends of the streams that are no terminal, nil for one that is.
	ends [3]*os.File
	// screen is the terminal, nil for none.
	screen *os.File

	// input and outputs stay as they are from before the goroutines that use them begin.
	input   *sink
	outputs map[uint8]*source
}

// isTerminal reports whether a stream is a terminal on the client's side.
func (s *serving) isTerminal(stream int) bool { return slices.Contains(s.command.Terminals, stream) }

// start starts the attendant.
func (s *serving) start(ctx context.Context, h Host) error {
	ours, theirs, err := line.Pair(maxOrder)
	if err != nil {
		return err
	}
	s.line = ours
	defer theirs.Close()
	var given [3]*os.File
	defer func() {
		for _, file := range given {
			if file != nil {
				file.Close()
			}
		}
	}()
	for stream := range given {
		if given[stream], err = s.open(stream); err != nil {
			return err
		}
	}
	// It ends by itself when the line ends, so that it can end the command.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), h.Attendant[0], h.Attendant[1:]...)
	cmd.Path = line.Program(h.Attendant[0])
	cmd.Dir, cmd.Env = "/", h.User.environment(h.Own, "")
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = given[0], given[1], given[2], []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if h.Switch {
		cmd.SysProcAttr.Credential = h.User.Credential()
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the command's attendant: %w", err)
	}
	s.attendant = cmd
	s.id, err = process.Find(cmd.Process.Pid)
	return err
}

// open makes a stream and returns the command's end of it.
func (s *serving) open(stream int) (*os.File, error) {
	if s.isTerminal(stream) {
		return os.OpenFile(os.DevNull, os.O_RDWR, 0)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a stream: %w", err)
	}
	if stream == 0 {
		s.ends[stream] = write
		return read, nil
	}
	s.ends[stream] = read
	return write, nil
}

// begin tells the attendant what to run, and returns when that is about to start, or is refused.
func (s *serving) begin(ctx context.Context, b *Begin) error {
	begun, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-begun.Done():
		case <-s.conn.Done():
		}
		if ctx.Err() != nil || s.conn.Err() != nil {
			_ = s.line.Close() // nobody waits for it any more
		}
	}()
	if err := b.tell(s.line); err != nil {
		return early(err)
	}
	if err := s.line.SetHearDeadline(time.Now().Add(beginTime)); err != nil {
		return fmt.Errorf("bound the attendant's time: %w", err)
	}
	var r report
	screen, err := s.line.HearWith(&r)
	if err != nil {
		return early(err)
	}
	s.screen = screen
	if r.Refused != nil {
		return r.Refused
	}
	if !r.Started || len(s.command.Terminals) > 0 != (screen != nil) {
		return errors.New("start the command: its attendant told no terminal")
	}
	return s.line.SetHearDeadline(time.Time{})
}

// serve carries streams and signals until the command has ended or the client is gone.
func (s *serving) serve(ctx context.Context) error {
	if err := s.flow(); err != nil {
		return err
	}
	reports, silent := make(chan report), make(chan struct{})
	go func() {
		defer close(silent)
		for {
			var r report
			if err := s.line.Hear(&r); err != nil {
				return
			}
			select {
			case reports <- r:
			case <-s.conn.Done():
				return
			}
		}
	}()
	broken := make(chan error, 1)
	go func() { broken <- s.listen() }()
	for {
		select {
		case r := <-reports:
			switch {
			case r.Stopped != nil:
				if err := s.conn.Send(wire.Answer{Stopped: r.Stopped}); err != nil {
					return gone(s.conn)
				}
			case r.Exited != nil:
				return s.exited(ctx, r.Exited)
			}
		case <-silent:
			endSession(s.id) // somebody has ended the attendant
			s.ended(false)
			return s.exited(ctx, &wire.Exited{Signal: int(syscall.SIGKILL)})
		case err := <-broken:
			return err
		case <-s.conn.Done(): // what listens may wait for an attendant that was stopped
			return gone(s.conn)
		case <-ctx.Done():
			return s.tellEnd(ctx)
		}
	}
}

// flow begins to carry the streams. A terminal is one stream each way.
func (s *serving) flow() error {
	s.outputs = map[uint8]*source{}
	took := func(t wire.Took) error { return s.conn.Send(wire.Answer{Took: &t}) }
	input, outputs := s.ends[0], map[uint8]*os.File{1: s.ends[1], 2: s.ends[2]}
	if s.screen != nil {
		if input == nil {
			var err error
			if input, err = again(s.screen); err != nil {
				return err
			}
		}
		stream := uint8(1)
		if !s.isTerminal(1) {
			stream = 2
		}
		if s.isTerminal(1) || s.isTerminal(2) {
			screen, err := again(s.screen)
			if err != nil {
				return err
			}
			outputs[stream] = screen
		} else {
			// What the terminal echoes has nowhere to go, and the command must not wait for it.
			go drain(s.screen)
		}
	}
	s.input = newSink(0, input, took, s.conn.End)
	go s.input.run()
	for stream, file := range outputs {
		if file == nil {
			continue
		}
		out, err := newSource(s.conn, stream, file)
		if err != nil {
			return err
		}
		s.outputs[stream] = out
		go out.run()
	}
	s.ends = [3]*os.File{} // they are those of sink and sources
	return nil
}

// listen reads what the client says until the connection ends.
func (s *serving) listen() error {
	for {
		f, err := s.conn.Read()
		if err != nil {
			return gone(s.conn)
		}
		s.conn.Forgive(false)
		switch f.Kind {
		case wire.KindData:
			if f.Stream != 0 {
				return fmt.Errorf("%w: data of stream %d", wire.ErrFrame, f.Stream)
			}
			err = s.input.put(f.Content)
		case wire.KindEnd:
			err = s.closed(f.Stream)
		case wire.KindMessage:
			err = s.said(f)
		}
		if err != nil {
			return err
		}
	}
}

// closed is told that the client's end of a stream is closed.
func (s *serving) closed(stream uint8) error {
	if stream == 0 {
		if !s.isTerminal(0) { // a terminal is closed with the client
			s.input.end()
		}
		return nil
	}
	out, ok := s.outputs[stream]
	if !ok {
		return fmt.Errorf("%w: the end of stream %d", wire.ErrFrame, stream)
	}
	out.stop()
	return nil
}

func (s *serving) said(f wire.Frame) error {
	var said wire.Said
	if err := f.Decode(&said); err != nil {
		return err
	}
	switch {
	case said.Took != nil:
		if out, ok := s.outputs[said.Took.Stream]; ok && !out.gate.give(said.Took.Bytes) {
			return fmt.Errorf("%w: %d bytes taken that were not sent", wire.ErrFrame, said.Took.Bytes)
		}
		return nil
	case said.Away:
		s.conn.Forgive(true)
		return nil
	case said.Window != nil && s.screen != nil:
		return resize(s.screen, *said.Window)
	case said.Signal > 0 && said.Signal <= mostSignal:
		return s.line.Say(order{Signal: said.Signal}, nil)
	}
	return nil
}

// tellEnd tells the client why its command ends.
func (s *serving) tellEnd(ctx context.Context) error {
	s.conn.Last(wire.Answer{Ended: &wire.Ended{Text: context.Cause(ctx).Error()}})
	return context.Cause(ctx)
}

// exited tells the client how the command ended, after all that it wrote.
func (s *serving) exited(ctx context.Context, e *wire.Exited) error {
	for _, out := range s.outputs {
		select {
		case <-out.over:
		case <-s.conn.Done():
			return gone(s.conn)
		case <-ctx.Done(): // the client may take nothing
			return s.tellEnd(ctx)
		}
	}
	s.ended(true)
	s.conn.Last(wire.Answer{Exited: e})
	<-s.conn.Done()
	return nil
}

// end leaves nothing of a command: an attendant whose line has ended ends all that the command started.
func (s *serving) end() {
	for _, file := range append(s.ends[:], s.screen) {
		if file != nil {
			file.Close()
		}
	}
	if s.input != nil {
		s.input.end()
	}
	if s.line != nil {
		_ = s.line.Close() // which has ended
	}
	if s.attendant != nil {
		await(s.attendant, s.id)
	}
	for _, out := range s.outputs {
		out.stop()
	}
}
