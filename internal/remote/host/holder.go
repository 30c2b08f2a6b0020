package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/plaintext"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/line"
	"github.com/divvy-gpu/divvy/internal/remote/server"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// share is a share that a process holds.
type share struct {
	host    *Host
	granted wire.Granted
	line    *line.Line
	process *exec.Cmd
	ended   chan wire.Ended
	silent  chan struct{} // closed when the process and its workers have ended

	mu      sync.Mutex // guards the rest
	next    uint64
	dialled map[uint64]chan reply
	gone    bool   // whether the process answers no more
	why     string // why the share is ended, by this side
	said    string // what the process wrote last
	exited  chan struct{}
	closing sync.Once
}

// reply is what a process answers to a dial.
type reply struct {
	conn net.Conn
	err  error
}

// workerReply is the reply with a connection that came, which is to a worker. The file is closed.
func workerReply(file *os.File) reply {
	conn, err := net.FileConn(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return reply{err: fmt.Errorf("use what a holder answers with: %w", err)}
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return reply{err: errors.Join(errors.New("a holder answers with what is no socket"), conn.Close())}
	}
	w, err := newWorker(socket)
	if err != nil {
		return reply{err: errors.Join(err, conn.Close())}
	}
	return reply{conn: w}
}

// endTime is how long a process may take to end.
const endTime = 5 * time.Second

// hold starts a process that takes a share, and returns when it has one. A process that was started is returned also with an
// error; it has been ended then.
func (h *Host) hold(ctx context.Context, client servefile.Client, who server.Client, take wire.Take, told func(wire.Queued)) (*share, error) {
	ours, theirs, err := line.Pair(maxOrder)
	if err != nil {
		return nil, fmt.Errorf("start what holds a share: %w", err)
	}
	s := &share{host: h, line: ours, ended: make(chan wire.Ended, 1), dialled: map[uint64]chan reply{}, silent: make(chan struct{}), exited: make(chan struct{})}
	s.process = exec.Command(h.options.Holder[0], h.options.Holder[1:]...)
	s.process.Path = line.Program(h.options.Holder[0])
	s.process.Stdin = theirs
	s.process.Dir = "/"
	if s.process.Env, s.process.SysProcAttr, err = identityOf(client.User, h.options.Env); err != nil {
		return nil, errors.Join(err, ours.Close(), theirs.Close())
	}
	errs, written, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start what holds a share: %w", err), ours.Close(), theirs.Close())
	}
	s.process.Stdout, s.process.Stderr = written, written
	err = s.process.Start()
	if closed := errors.Join(theirs.Close(), written.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("start what holds a share: %w", err), closed, ours.Close(), errs.Close())
	}
	go s.listen(ctx, who.Name, errs)
	spec := Spec{Take: take, Simgpu: h.options.Simgpu, Client: who.Name, Address: who.Address}
	stop := context.AfterFunc(ctx, func() { _ = ours.Close() })
	defer stop()
	if err = ours.Say(order{Spec: &spec}, nil); err == nil {
		err = s.await(told)
	} else if long := (*line.TooLongError)(nil); errors.As(err, &long) {
		err = &wire.Refused{Code: wire.CodeMessage, Text: fmt.Sprintf("a request has %d bytes and may have %d: shorten the command", long.Bytes, long.Most)}
	}
	if err != nil {
		s.End()
		if ctx.Err() != nil {
			return s, ctx.Err()
		}
		return s, s.reason(err)
	}
	go s.read()
	return s, nil
}

// await reads until the process has a share.
func (s *share) await(told func(wire.Queued)) error {
	for {
		var a answer
		if err := s.line.Hear(&a); err != nil {
			return err
		}
		switch {
		case a.Queued != nil:
			told(*a.Queued)
		case a.Refused != nil:
			return a.Refused
		case a.Granted != nil:
			s.granted = *a.Granted
			return nil
		case a.Ended != nil:
			return &wire.Refused{Code: string(control.CodeInternal), Text: a.Ended.Text}
		}
	}
}

// reason is an error with what the process said last, if it ended without a word.
func (s *share) reason(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said == "" || errors.As(err, new(*wire.Refused)) {
		return err
	}
	return &wire.Refused{Code: string(control.CodeInternal), Text: "what holds the share ended: " + s.said}
}

// longest is how much of a line of a holder is logged.
const longest = 400

// listen logs what the process and its workers write for a client, and notices when all of them have ended.
func (s *share) listen(ctx context.Context, client string, from io.ReadCloser) {
	defer close(s.silent)
	defer from.Close()
	for lines := bufio.NewReaderSize(from, 2*longest); ; {
		said, more, err := lines.ReadLine()
		for rest := more; rest && err == nil; { // of a long line the beginning is told
			_, rest, err = lines.ReadLine()
		}
		if err != nil {
			return
		}
		text := plaintext.Line(string(said), longest)
		s.mu.Lock()
		s.said = text
		s.mu.Unlock()
		s.host.lines.Info(ctx, s.host.options.Log, client, "a share's holder says", "pid", s.process.Process.Pid, "text", text)
	}
}

// read takes the answers of a process that has a share, until it ends.
func (s *share) read() {
	ended := wire.Ended{}
	for {
		var a answer
		file, err := s.line.HearWith(&a)
		if err != nil {
			break
		}
		if a.Ended != nil {
			ended = *a.Ended
		}
		s.mu.Lock()
		waits := s.dialled[a.Dialled]
		delete(s.dialled, a.Dialled)
		s.mu.Unlock()
		switch {
		case waits != nil && file != nil:
			waits <- workerReply(file)
		case waits != nil:
			waits <- reply{err: errors.New(a.Failed)}
		case file != nil:
			_ = file.Close() // of who has given up
		}
	}
	s.mu.Lock()
	s.gone = true
	for _, waits := range s.dialled {
		waits <- reply{err: errEnded}
	}
	clear(s.dialled)
	switch {
	case s.why != "":
		ended.Text = s.why
	case ended.Text == "" && s.said != "":
		ended.Text = s.said
	case ended.Text == "":
		ended.Text = "the process that held it was killed"
	}
	s.mu.Unlock()
	s.ended <- ended
}

// errEnded is returned for a share that has ended.
var errEnded = errors.New("the share has ended")

// Granted implements [server.Share].
func (s *share) Granted() wire.Granted { return s.granted }

// Ended implements [server.Share].
func (s *share) Ended() <-chan wire.Ended { return s.ended }

// Ending implements [server.Share]. The agent says why it ends a share before it signals any process of it.
func (s *share) Ending(ctx context.Context) bool {
	s.mu.Lock()
	ends := s.gone || s.why != ""
	s.mu.Unlock()
	if id, err := process.Find(s.process.Process.Pid); ends || err != nil || !id.Alive() {
		return true
	}
	list, err := s.host.list(ctx)
	if err != nil {
		return false // the agent may be away, and the share goes on
	}
	at := slices.IndexFunc(list.Tenants, func(t control.Tenant) bool { return t.ID == s.granted.ID })
	return at < 0 || list.Tenants[at].Ending != ""
}

// Dial implements [server.Share]. The process connects, because a worker listens to its user alone.
func (s *share) Dial(ctx context.Context) (net.Conn, error) {
	waits := make(chan reply, 1)
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return nil, errEnded
	}
	s.next++
	id := s.next
	s.dialled[id] = waits
	s.mu.Unlock()
	if err := s.line.Say(order{Dial: id}, nil); err != nil {
		return nil, errEnded
	}
	select {
	case r := <-waits:
		return r.conn, r.err
	case <-ctx.Done():
		s.mu.Lock()
		delete(s.dialled, id)
		s.mu.Unlock()
		select {
		case r := <-waits: // it came just now
			if r.conn != nil {
				_ = r.conn.Close()
			}
		default:
		}
		return nil, ctx.Err()
	}
}

// stop ends the share for a reason that its client is told.
func (s *share) stop(why string) {
	s.mu.Lock()
	s.why = why
	s.mu.Unlock()
	_ = s.line.Close()
}

// End implements [server.Share].
func (s *share) End() {
	s.closing.Do(func() {
		_ = s.line.Close() // by which the process ends
		killer := time.AfterFunc(endTime, func() { _ = s.process.Process.Kill() })
		_ = s.process.Wait() // it is of no interest how
		killer.Stop()
		close(s.exited)
	})
	<-s.exited
}
