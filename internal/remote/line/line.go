// Package line carries messages between a server and a process that it has started as a local user, each with a file beside it
// where there is one. Neither side believes the other: what nobody asked for is closed, and what makes no sense ends the line.
package line

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// TooLongError is a message with more bytes than a line carries.
type TooLongError struct{ Bytes, Most int }

// Error implements error.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("a message has %d bytes and may have %d", e.Bytes, e.Most)
}

// Line is one end. Any goroutine may say something, and one hears.
type Line struct {
	conn *net.UnixConn
	most int

	write sync.Mutex
	in    []byte // of who hears
}

// Pair makes a line whose messages have so many bytes at most. theirs is for the other process.
func Pair(most int) (ours *Line, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a line: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "line")
	if ours, err = Of(os.NewFile(uintptr(fds[0]), "line"), most); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// Of makes a line of an end of [Pair], which it takes.
func Of(end *os.File, most int) (*Line, error) {
	defer end.Close()
	conn, err := net.FileConn(end)
	if err != nil {
		return nil, fmt.Errorf("use a line: %w", err)
	}
	packets, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("use a line: it is no socket of this host"), conn.Close())
	}
	// A message is one packet, and the kernel takes none that is longer than half of this.
	if err := errors.Join(packets.SetWriteBuffer(2*most), packets.SetReadBuffer(2*most)); err != nil {
		return nil, errors.Join(fmt.Errorf("use a line: %w", err), packets.Close())
	}
	return &Line{conn: packets, most: most}, nil
}

// Close ends the line on both sides.
func (l *Line) Close() error { return l.conn.Close() }

// SetHearDeadline bounds how long [Line.Hear] and [Line.HearWith] wait; the zero time is no bound.
func (l *Line) SetHearDeadline(at time.Time) error { return l.conn.SetReadDeadline(at) }

// Say sends a message and a file, which may be nil. One that is too long is a [*TooLongError], and the line goes on.
func (l *Line) Say(message any, with *os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("write a message: %w", err)
	}
	if len(text) > l.most {
		return &TooLongError{len(text), l.most}
	}
	var rights []byte
	if with != nil {
		rights = unix.UnixRights(int(with.Fd()))
	}
	l.write.Lock()
	defer l.write.Unlock()
	if _, _, err := l.conn.WriteMsgUnix(text, rights, nil); err != nil {
		return fmt.Errorf("write a message: %w", err)
	}
	return nil
}

// roomForFiles is for more files than come, so that those too many are closed here and not dropped with the message.
const roomForFiles = 64

// Hear reads the next message. A file that comes with it is closed. At the end of the other process the error is [io.EOF].
func (l *Line) Hear(message any) error {
	file, err := l.HearWith(message)
	if file != nil {
		_ = file.Close() // nobody asked for it
	}
	return err
}

// HearWith is [Line.Hear] of a message with which a file may come, nil for none. After an error there is none.
func (l *Line) HearWith(message any) (*os.File, error) {
	if l.in == nil {
		l.in = make([]byte, l.most)
	}
	var control [roomForFiles]byte
	n, rights, flags, _, err := l.conn.ReadMsgUnix(l.in, control[:])
	files, fault := filesIn(control[:rights])
	switch {
	case err != nil:
	case fault != nil:
		err = fault
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("it is too long")
	case len(files) > 1:
		err = fmt.Errorf("%d files come with it", len(files))
	default:
		decoder := json.NewDecoder(bytes.NewReader(l.in[:n]))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(message)
	}
	if err != nil {
		for _, file := range files {
			_ = file.Close() // of a message that nobody understands
		}
		return nil, fmt.Errorf("read a message: %w", err)
	}
	if len(files) == 0 {
		return nil, nil
	}
	return files[0], nil
}

// filesIn are all files that came beside a message, whatever else did.
func filesIn(rights []byte) (files []*os.File, err error) {
	if len(rights) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var faults []error
	for i := range messages {
		fds, fault := unix.ParseUnixRights(&messages[i])
		faults = append(faults, fault)
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, errors.Join(faults...)
}
