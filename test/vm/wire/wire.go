// Package wire is the line between the guest and who started it: frames on a serial port, from the guest alone.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Kind tells what a frame holds.
type Kind byte

// The kinds of frames.
const (
	// Ready holds nothing: the guest is about to start the tests.
	Ready Kind = iota + 1
	// Output and Faults hold bytes of the tests' standard output and standard error.
	Output
	Faults
	// Problem holds a sentence of the guest about itself.
	Problem
	// Result holds the exit status of the tests, one byte, and is the last.
	Result
)

// Max is the most bytes that a frame holds.
const Max = 32 << 10

// ErrFrame tells that bytes are not a frame.
var ErrFrame = errors.New("not a frame")

// mark begins each frame, because firmware may have written to the port before. Its first byte is nowhere else in it.
var mark = []byte{0xd1, 0x56, 0x4d, 0x1d}

// Write writes one frame at once. It returns ErrFrame where the payload has more than Max bytes.
func Write(w io.Writer, kind Kind, payload []byte) error {
	if len(payload) > Max {
		return fmt.Errorf("write %d bytes: %w", len(payload), ErrFrame)
	}
	frame := append(append([]byte{}, mark...), byte(kind))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(payload))) //nolint:gosec // at most Max
	_, err := w.Write(append(frame, payload...))
	return err
}

// Read returns the next frame. Bytes before its mark are passed over. It returns io.EOF where none begins any more,
// and ErrFrame where one is cut short or longer than Max.
func Read(r *bufio.Reader) (Kind, []byte, error) {
	for seen := 0; seen < len(mark); {
		b, err := r.ReadByte()
		switch {
		case err != nil:
			return 0, nil, io.EOF
		case b == mark[seen]:
			seen++
		case b == mark[0]:
			seen = 1
		default:
			seen = 0
		}
	}
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, fmt.Errorf("read a frame's head: %w: %w", ErrFrame, err)
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > Max {
		return 0, nil, fmt.Errorf("read %d bytes: %w", size, ErrFrame)
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, fmt.Errorf("read a frame: %w: %w", ErrFrame, err)
	}
	return Kind(head[0]), payload, nil
}

// Stream is a writer that sends what it is given as frames of one kind.
type Stream struct {
	To   io.Writer
	Kind Kind
}

// Write sends p.
func (s Stream) Write(p []byte) (int, error) {
	for sent := 0; sent < len(p); {
		n := min(Max, len(p)-sent)
		if err := Write(s.To, s.Kind, p[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
	return len(p), nil
}
