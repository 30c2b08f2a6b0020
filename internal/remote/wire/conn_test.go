package wire

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/remote/identity/identitytest"
)

// pair are two sides over TLS and loopback.
func pair(t testing.TB) (server, client *Conn) {
	t.Helper()
	authority := identitytest.NewAuthority(t, "localhost")
	listener, err := tls.Listen("tcp", "127.0.0.1:0", authority.Server)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan *tls.Conn, 1)
	go func() {
		conn, err := listener.Accept()
		secured, _ := conn.(*tls.Conn)
		if err == nil {
			err = secured.Handshake()
		}
		if err != nil {
			t.Error(err)
		}
		accepted <- secured
	}()
	dialled, err := tls.Dial("tcp", listener.Addr().String(), authority.Bundle(t, "ada").Config("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	server, client = New(<-accepted), New(dialled)
	t.Cleanup(func() { _, _ = server.Close(), client.Close() })
	return server, client
}

// Streams of any length in parts of any size arrive as they were, both ways at once, and their ends too.
func TestStreams(t *testing.T) {
	server, client := pair(t)
	draw := rand.New(rand.NewPCG(1, 2))
	want := make([]byte, 5<<20)
	for i := range want {
		want[i] = byte(draw.Uint32())
	}
	carried := make(chan error, 2)
	for _, c := range []*Conn{server, client} {
		go func() { carried <- c.Carry(3, &drawn{text: want, draw: rand.New(rand.NewPCG(3, 4))}) }()
	}
	poured := make(chan error, 1)
	var there bytes.Buffer
	go func() { poured <- server.Pour(3, &there) }()
	var here bytes.Buffer
	if err := client.Pour(3, &here); err != nil {
		t.Error(err)
	}
	if err := errors.Join(<-poured, <-carried, <-carried); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(here.Bytes(), want) || !bytes.Equal(there.Bytes(), want) {
		t.Errorf("%d and %d bytes of %d came, or others", here.Len(), there.Len(), len(want))
	}
}

// drawn gives a text in parts of drawn sizes.
type drawn struct {
	text []byte
	draw *rand.Rand
}

func (d *drawn) Read(p []byte) (int, error) {
	if len(d.text) == 0 {
		return 0, io.EOF
	}
	size := 1 + d.draw.IntN(1<<d.draw.IntN(20))
	n := copy(p[:min(size, len(p))], d.text)
	d.text = d.text[n:]
	return n, nil
}

// What is sent last comes, also to a side that goes on to send.
func TestFinish(t *testing.T) {
	server, client := pair(t)
	go func() {
		for client.Write(0, make([]byte, 100)) == nil {
		}
	}()
	if _, err := server.Read(); err != nil {
		t.Fatal(err)
	}
	server.Last(Answer{Ended: &Ended{Text: "why"}})
	for what, err := range map[string]error{"a message": server.Send(Answer{}), "an end": server.End(0), "data": server.Write(0, []byte("x"))} {
		if err == nil || server.Err() != nil {
			t.Errorf("%s after the last: %v, and the connection ended by %v", what, err, server.Err())
		}
	}
	go server.Drain()
	var a Answer
	if err := client.Receive(&a); err != nil || a.Ended == nil || a.Ended.Text != "why" {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := client.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	_ = client.Close()
	<-server.Done()
}

// A frame that makes no sense ends the connection, and a message has fields that are known, and is one.
func TestFaultyFrames(t *testing.T) {
	for name, frame := range map[string]string{
		"unknown kind":     "\x04\x00\x00\x00\x00\x00\x00\x00",
		"not zero":         "\x02\x00\x01\x00\x00\x00\x00\x00",
		"long data":        "\x02\x00\x00\x00\x00\x04\x00\x01",
		"long message":     "\x01\x00\x00\x00\x00\x10\x00\x01",
		"longest":          "\x02\x00\x00\x00\xff\xff\xff\xff",
		"beat with bytes":  "\x00\x00\x00\x00\x00\x00\x00\x01x",
		"end with bytes":   "\x03\x00\x00\x00\x00\x00\x00\x01x",
		"unknown field":    "\x01\x00\x00\x00\x00\x00\x00\x09{\"x\":1}  ",
		"two messages":     "\x01\x00\x00\x00\x00\x00\x00\x04{}{}",
		"no message":       "\x01\x00\x00\x00\x00\x00\x00\x00",
		"data for message": "\x02\x00\x00\x00\x00\x00\x00\x02{}",
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(&said{text: []byte(frame)}, false)
			defer c.Close()
			var open Open
			if err := c.Receive(&open); !errors.Is(err, ErrFrame) {
				t.Errorf("%v", err)
			}
		})
	}
}

// said is a side that says a text, and ends.
type said struct {
	text []byte
	net.Conn
}

func (s *said) Read(p []byte) (int, error) {
	if len(s.text) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.text)
	s.text = s.text[n:]
	return n, nil
}
func (s *said) Write(p []byte) (int, error)      { return len(p), nil }
func (s *said) CloseWrite() error                { return nil }
func (s *said) SetWriteDeadline(time.Time) error { return nil }
func (s *said) NetConn() net.Conn                { return s }
func (s *said) Close() error                     { return nil }

// A pour takes data of its stream alone.
func TestPourOfAnotherStream(t *testing.T) {
	for name, frame := range map[string]string{
		"another stream": "\x02\x01\x00\x00\x00\x00\x00\x01x",
		"a message":      "\x01\x00\x00\x00\x00\x00\x00\x02{}",
		"another's end":  "\x03\x01\x00\x00\x00\x00\x00\x00",
	} {
		c := begin(&said{text: []byte(frame)}, false)
		if err := c.Pour(0, io.Discard); !errors.Is(err, ErrFrame) || c.Err() == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The kernel is told to try again each second, where it can be.
func TestHasten(t *testing.T) {
	server, client := pair(t)
	for _, c := range []*Conn{server, client} {
		raw, err := c.tls.NetConn().(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var value int
		var refused error
		if err := raw.Control(func(fd uintptr) { value, refused = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, rtoMax) }); err != nil {
			t.Fatal(err)
		}
		if c.late != (refused != nil) || refused == nil && value != 1000 {
			t.Errorf("late %v, and the kernel tries again after %d ms, %v", c.late, value, refused)
		}
	}
}

// FuzzFrames reads any bytes as frames. What is read is within the bounds, and is what the bytes say.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x02{}\x00\x01\x00\x00\x00\x00\x00\x00\x02\x07\x00\x00\x00\x00\x00\x03abc\x03\x07\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x1b{\"purpose\":\"link\",\"take\":{}}"))
	f.Add([]byte("\x02\x00\x00\x00\x00\x04\x00\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := begin(&said{text: text}, false)
		defer c.Close()
		for left := text; ; {
			frame, err := c.Read()
			if err != nil {
				if c.Err() == nil {
					t.Fatalf("the connection lives after %v", err)
				}
				return
			}
			for len(left) >= headBytes && left[0] == byte(KindBeat) {
				left = left[headBytes:]
			}
			size := binary.BigEndian.Uint32(left[4:])
			if byte(frame.Kind) != left[0] || frame.Stream != left[1] || len(frame.Content) > MaxMessage || !bytes.Equal(frame.Content, left[headBytes:headBytes+size]) {
				t.Fatalf("read %v %d %q of %q", frame.Kind, frame.Stream, frame.Content, left)
			}
			left = left[headBytes+size:]
			var open Open
			if frame.Kind == KindMessage && frame.Decode(&open) == nil && strings.Contains(string(frame.Content), `"unknown":`) {
				t.Fatalf("%q is a message", frame.Content)
			}
		}
	})
}
