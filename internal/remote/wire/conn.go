package wire

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of frames, in bytes of content.
const (
	MaxMessage = 1 << 20
	MaxData    = 256 << 10
)

// Errors of connections.
var (
	// ErrSilent is a side that was silent for too long.
	ErrSilent = errors.New("the other side has been silent for too long")
	// ErrFrame is a frame that makes no sense.
	ErrFrame = errors.New("a frame that makes no sense")
	// errFinished is what a side wants to send after its last.
	errFinished = errors.New("the last of this side was sent")
)

// TooLongError is a message with more than MaxMessage bytes, which was not sent.
type TooLongError struct{ Bytes int }

// Error implements error.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("write a message: it has %d bytes and may have %d", e.Bytes, MaxMessage)
}

// Kind is what a frame has.
type Kind uint8

// The kinds.
const (
	// KindBeat has nothing. Its stream is 1 if this side's kernel cannot be told to try again each second, see [Silence].
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

// secured is what a [tls.Conn] does for a [Conn].
type secured interface {
	io.ReadWriter
	CloseWrite() error
	SetWriteDeadline(t time.Time) error
	NetConn() net.Conn
}

// Conn carries frames. One goroutine may read and any may write.
type Conn struct {
	tls secured

	write    sync.Mutex // orders frames; guards out, told and finished
	out      []byte
	told     bool // whether the other side was told that this one's kernel tries again late, if so
	finished bool // whether the last of this side was sent

	in []byte
	// reads counts what was read. reading is true while this side waits for the other: one that does not read cannot tell
	// silence.
	reads   atomic.Uint64
	reading atomic.Bool
	// silent is how many looks in turn found that nothing was read.
	silent atomic.Int64
	// forgiven is true while the other side may be silent.
	forgiven atomic.Bool
	// spoke is true if something was written since the last beat.
	spoke atomic.Bool
	// late is true where this side's kernel, and theirs where the other side's, tries again late.
	late   bool
	theirs atomic.Bool

	once  sync.Once
	ended chan struct{}
	why   atomic.Pointer[error]
}

// New returns a connection over one whose handshake is done, and begins to send beats.
func New(conn *tls.Conn) *Conn { return begin(conn, !hasten(conn.NetConn())) }

func begin(conn secured, late bool) *Conn {
	c := &Conn{tls: conn, ended: make(chan struct{}), late: late}
	go c.beat()
	go c.watch()
	return c
}

// setHead writes the head of a frame.
func setHead(head []byte, kind Kind, stream uint8, size int) {
	head[0], head[1], head[2], head[3] = byte(kind), stream, 0, 0
	binary.BigEndian.PutUint32(head[4:], uint32(size))
}

// put writes a frame. Conn.write is held.
func (c *Conn) put(kind Kind, stream uint8, content []byte) error {
	var head [headBytes]byte
	setHead(head[:], kind, stream, len(content))
	if len(content) == 0 {
		return c.send(head[:])
	}
	c.out = append(append(c.out[:0], head[:]...), content...)
	return c.send(c.out)
}

// send writes a frame that has its head. Conn.write is held.
func (c *Conn) send(frame []byte) error {
	if c.finished { // the other side may still be reading the last
		return errFinished
	}
	if c.late && !c.told {
		var head [headBytes]byte
		setHead(head[:], KindBeat, lateBeat, 0)
		frame, c.told = append(head[:], frame...), true
	}
	if _, err := c.tls.Write(frame); err != nil {
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
	if len(text) > MaxMessage {
		return &TooLongError{len(text)}
	}
	c.write.Lock()
	defer c.write.Unlock()
	return c.put(KindMessage, 0, text)
}

// Read returns the next frame that is no beat.
func (c *Conn) Read() (Frame, error) {
	c.reading.Store(true)
	defer c.reading.Store(false)
	f, size, err := c.head()
	if err != nil {
		return Frame{}, err
	}
	if size > cap(c.in) {
		c.in = make([]byte, size)
	}
	f.Content = c.in[:size]
	return f, c.fill(f.Content)
}

// head reads the head of the next frame that is no beat.
func (c *Conn) head() (Frame, int, error) {
	var head [headBytes]byte
	for {
		if err := c.fill(head[:]); err != nil {
			return Frame{}, 0, err
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
			c.end(fmt.Errorf("%w: kind %d with %d bytes", ErrFrame, f.Kind, size))
			return Frame{}, 0, c.Err()
		}
		if f.Kind != KindBeat {
			return f, int(size), nil
		}
		c.theirs.Store(f.Stream == lateBeat)
	}
}

// fill reads so many bytes. Each part of them tells that the other side lives.
func (c *Conn) fill(content []byte) error {
	for len(content) > 0 {
		n, err := c.tls.Read(content)
		if n > 0 {
			c.reads.Add(1)
		}
		if content = content[n:]; err != nil && len(content) > 0 {
			c.end(fmt.Errorf("read from the other side: %w", err))
			return c.Err()
		}
	}
	return nil
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
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: more than a message", ErrFrame)
	}
	return nil
}
