package control

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// usualLine is the buffer of a connection: nearly every request is shorter.
const usualLine = 4096

// errTooLong is a line that is longer than any message may be.
var errTooLong = errors.New("read message: it is too long")

// lines reads messages from one peer. A buffer for a long one is kept no longer than the
// message.
type lines struct {
	from    io.Reader
	longest int
	// hold is asked before the buffer grows by so many bytes, and told when it shrinks.
	hold func(size int) error

	buffer []byte // its length is what it has room for
	unread []byte // what of it was read and not yet returned
	ended  error  // what the last read ended with
}

func newLines(r io.Reader, longest int) *lines {
	return &lines{from: r, longest: longest, hold: func(int) error { return nil }, buffer: make([]byte, usualLine)}
}

// next decodes the next line into v and returns its length. It returns io.EOF at the end.
// Agents decode strictly; clients leave out answers' fields that they do not know.
func (l *lines) next(v any, decode func([]byte, any) error) (size int, err error) {
	searched := 0
	for {
		if at := bytes.IndexByte(l.unread[searched:], '\n'); at >= 0 {
			line := l.unread[:searched+at]
			l.unread = l.unread[searched+at+1:]
			return len(line), decode(line, v)
		}
		if searched = len(l.unread); searched > l.longest {
			return 0, errTooLong
		}
		if l.ended != nil {
			return l.last(v, decode)
		}
		if err := l.read(); err != nil {
			return 0, err
		}
	}
}

// last is the line that nothing follows, not even its end.
func (l *lines) last(v any, decode func([]byte, any) error) (int, error) {
	line := l.unread
	l.unread = nil
	switch {
	case !errors.Is(l.ended, io.EOF):
		return 0, fmt.Errorf("read message: %w", l.ended)
	case len(line) == 0:
		return 0, io.EOF
	}
	return len(line), decode(line, v)
}

// read reads more, in a buffer that is large enough for what is unread and no larger.
func (l *lines) read() error {
	wanted := usualLine
	for wanted <= len(l.unread) {
		wanted *= 2
	}
	if wanted != len(l.buffer) {
		if err := l.hold(wanted - len(l.buffer)); err != nil {
			return err
		}
		l.buffer = make([]byte, wanted)
	}
	n := copy(l.buffer, l.unread)
	more, err := l.from.Read(l.buffer[n:])
	l.unread, l.ended = l.buffer[:n+more], err
	return nil
}

// drop gives the buffer back.
func (l *lines) drop() { _ = l.hold(usualLine - len(l.buffer)) }
