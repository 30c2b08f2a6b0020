package wire

import (
	"errors"
	"fmt"
	"io"
)

// Rooms for what is carried on: the first, up to which one grows that was filled, and how much of a frame is passed on before
// the rest has come.
const (
	firstRoom = 16 << 10
	pieceRoom = 64 << 10
)

// Carry sends what comes from a reader on a stream until its end. A frame has what is there at once: nothing waits for more.
func (c *Conn) Carry(stream uint8, from io.Reader) error {
	frame := make([]byte, headBytes+firstRoom)
	for {
		n, err := from.Read(frame[headBytes:])
		if n > 0 {
			if failed := c.carry(stream, frame[:headBytes+n]); failed != nil {
				return failed
			}
		}
		if errors.Is(err, io.EOF) {
			return c.End(stream)
		}
		if err != nil {
			return fmt.Errorf("carry a stream: %w", err)
		}
		if room := len(frame) - headBytes; n == room && room < MaxData {
			frame = make([]byte, headBytes+min(4*room, MaxData))
		}
	}
}

func (c *Conn) carry(stream uint8, frame []byte) error {
	setHead(frame, KindData, stream, len(frame)-headBytes)
	c.write.Lock()
	defer c.write.Unlock()
	return c.send(frame)
}

// Pour writes what comes on a stream to a writer until the stream's end. Any other frame is an error. Of a long frame the
// beginning is written while the rest is on its way.
func (c *Conn) Pour(stream uint8, to io.Writer) error {
	for {
		c.reading.Store(true)
		f, left, err := c.head()
		switch {
		case err != nil:
			return err
		case f.Stream != stream || f.Kind != KindData && f.Kind != KindEnd:
			c.end(fmt.Errorf("%w: kind %d of stream %d among the data of stream %d", ErrFrame, f.Kind, f.Stream, stream))
			return c.Err()
		case f.Kind == KindEnd:
			c.reading.Store(false)
			return nil
		}
		for left > 0 {
			if room := min(left, pieceRoom); room > cap(c.in) {
				c.in = make([]byte, max(room, firstRoom))
			}
			piece := c.in[:min(left, cap(c.in))]
			c.reading.Store(true)
			if err := c.fill(piece); err != nil {
				return err
			}
			c.reading.Store(false)
			if _, err := to.Write(piece); err != nil {
				return fmt.Errorf("pour a stream: %w", err)
			}
			left -= len(piece)
		}
	}
}
