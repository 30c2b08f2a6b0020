package wire

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Beat is how often each side sends something, and Silence after how long without anything the other one is dead.
const (
	Beat    = time.Second
	Silence = 11 * time.Second
)

// Bounds of frames, in bytes of content.
const (
	MaxMessage = 1 << 20
	MaxData    = 256 << 10
)

// Errors of connections.
var (
	// ErrSilent is a side that was silent for too long.
	ErrSilent = fmt.Errorf("the other side has been silent for %v", Silence)
	// ErrFrame is a frame that makes no sense.
	ErrFrame = errors.New("a frame that makes no sense")
)

// Kind is what a frame has.
type Kind uint8

// The kinds.
const (
	// KindBeat has nothing.
	KindBeat Kind = iota
	// KindMessage has a message in JSON.
	KindMessage
	// KindData has bytes of a stream.
	KindData
	// KindEnd says that a stream has ended in this direction.
	KindEnd
	kinds
)

// headBytes are a frame's head: kind, stream, two zeros, and the number of bytes that follow in big endian.
const headBytes = 8

// Frame is a frame that was read. Content is valid until the next one is read.
type Frame struct {
	Kind    Kind
	Stream  uint8
	Content []byte
}

// Conn carries frames. One goroutine may read and any may write.
type Conn struct {
	tls *tls.Conn

	write sync.Mutex // orders frames; guards out
	out   []byte

	in []byte
	// reads counts what was read. reading is true while Read waits: a side that does not read cannot tell silence.
	reads   atomic.Uint64
	reading atomic.Bool
	// spoke is true if something was written since the last beat.
	spoke atomic.Bool

	once  sync.Once
	ended chan struct{}
	why   atomic.Pointer[error]
}

// New returns a connection over one whose handshake is done, and begins to send beats.
func New(conn *tls.Conn) *Conn {
	c := &Conn{tls: conn, out: make([]byte, 0, headBytes+MaxData), ended: make(chan struct{})}
	go c.beat()
	return c
}

// TLS is the connection below.
func (c *Conn) TLS() *tls.Conn { return c.tls }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.ended }

// Err says why the connection ended, nil while it has not.
func (c *Conn) Err() error {
	if why := c.why.Load(); why != nil {
		return *why
	}
	return nil
}

// Close ends the connection at once; whoever reads or writes returns.
func (c *Conn) Close() error {
	c.end(io.ErrClosedPipe)
	return nil
}

func (c *Conn) end(why error) {
	c.once.Do(func() {
		c.why.Store(&why)
		close(c.ended)
		_ = c.tls.NetConn().Close() // TLS' own farewell could wait for a side that is gone
	})
}

// beat sends beats, and ends a connection on which nothing comes. It counts its own ticks, so that a process which was
// stopped for long reads first what came meanwhile.
func (c *Conn) beat() {
	ticker := time.NewTicker(Beat)
	defer ticker.Stop()
	seen, silent := c.reads.Load(), 0
	for {
		select {
		case <-ticker.C:
		case <-c.ended:
			return
		}
		if now := c.reads.Load(); now != seen || !c.reading.Load() {
			seen, silent = now, 0
		} else if silent++; time.Duration(silent)*Beat >= Silence {
			c.end(ErrSilent)
			return
		}
		// A writer that waits says itself that this side lives, as soon as the other one reads.
		if !c.spoke.Swap(false) && c.write.TryLock() {
			err := c.put(KindBeat, 0, nil)
			c.write.Unlock()
			if err != nil {
				return
			}
			c.spoke.Store(false)
		}
	}
}

// put writes a frame. Conn.write is held.
func (c *Conn) put(kind Kind, stream uint8, content []byte) error {
	c.out = append(c.out[:0], byte(kind), stream, 0, 0)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(len(content)))
	c.out = append(c.out, content...)
	if _, err := c.tls.Write(c.out); err != nil {
		c.end(fmt.Errorf("write to the other side: %w", err))
		return c.Err()
	}
	c.spoke.Store(true)
	return nil
}

// Write sends bytes of a stream, at most MaxData. It waits until the other side has room.
func (c *Conn) Write(stream uint8, content []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	return c.put(KindData, stream, content)
}

// End says that nothing more comes on a stream.
func (c *Conn) End(stream uint8) error {
	c.write.Lock()
	defer c.write.Unlock()
	return c.put(KindEnd, stream, nil)
}

// Send sends a message.
func (c *Conn) Send(message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("write a message: %w", err)
	}
	c.write.Lock()
	defer c.write.Unlock()
	return c.put(KindMessage, 0, text)
}

// Read returns the next frame that is no beat.
func (c *Conn) Read() (Frame, error) {
	c.reading.Store(true)
	defer c.reading.Store(false)
	for {
		f, err := c.frame()
		if err != nil {
			c.end(err)
			return Frame{}, c.Err()
		}
		c.reads.Add(1)
		if f.Kind != KindBeat {
			return f, nil
		}
	}
}

func (c *Conn) frame() (Frame, error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(c.tls, head[:]); err != nil {
		return Frame{}, fmt.Errorf("read from the other side: %w", err)
	}
	f := Frame{Kind: Kind(head[0]), Stream: head[1]}
	size, most := binary.BigEndian.Uint32(head[4:]), uint32(0)
	switch f.Kind {
	case KindMessage:
		most = MaxMessage
	case KindData:
		most = MaxData
	}
	if f.Kind >= kinds || head[2]|head[3] != 0 || size > most {
		return Frame{}, fmt.Errorf("%w: kind %d with %d bytes", ErrFrame, f.Kind, size)
	}
	if int(size) > cap(c.in) {
		c.in = make([]byte, size)
	}
	f.Content = c.in[:size]
	if _, err := io.ReadFull(c.tls, f.Content); err != nil {
		return Frame{}, fmt.Errorf("read from the other side: %w", err)
	}
	return f, nil
}

// Receive reads a message into one of the types of this package. Another frame, or a field that is not known, is an error.
func (c *Conn) Receive(message any) error {
	f, err := c.Read()
	if err != nil {
		return err
	}
	if f.Kind != KindMessage {
		return fmt.Errorf("%w: kind %d in place of a message", ErrFrame, f.Kind)
	}
	return f.Decode(message)
}

// Decode decodes the message that a frame has.
func (f Frame) Decode(message any) error {
	decoder := json.NewDecoder(bytes.NewReader(f.Content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(message); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	if decoder.More() {
		return fmt.Errorf("%w: more than a message", ErrFrame)
	}
	return nil
}
