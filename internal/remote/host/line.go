package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// Spec is what a holder is to take.
type Spec struct {
	Take wire.Take `json:"take"`
	// Simgpu is the directory of the simulated machine, empty for the real one.
	Simgpu string `json:"simgpu,omitempty"`
	// Client and Address are who uses the share.
	Client  string `json:"client"`
	Address string `json:"address"`
}

// order is what a server says to a holder: first the spec, then what to dial.
type order struct {
	Spec *Spec `json:"spec,omitempty"`
	// Dial numbers a connection with a new worker, for the answer.
	Dial uint64 `json:"dial,omitempty"`
}

// answer is what a holder says. One field is set; a connection comes with Dialled, or Failed says why none does.
type answer struct {
	Queued  *wire.Queued  `json:"queued,omitempty"`
	Granted *wire.Granted `json:"granted,omitempty"`
	Refused *wire.Refused `json:"refused,omitempty"`
	Ended   *wire.Ended   `json:"ended,omitempty"`
	Dialled uint64        `json:"dialled,omitempty"`
	Failed  string        `json:"failed,omitempty"`
}

// maxOrder bounds a message, in bytes: less than a socket has room for.
const maxOrder = 128 << 10

// line carries messages and connections between two processes.
type line struct {
	conn  *net.UnixConn
	write sync.Mutex
	in    []byte
}

// lineOf makes a line of a socket of the kind that keeps messages apart. The file is closed.
func lineOf(file *os.File) (*line, error) {
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("open a socket: it is none of this host"), conn.Close())
	}
	return &line{conn: socket, in: make([]byte, maxOrder)}, nil
}

func (l *line) close() error { return l.conn.Close() }

// say sends a message, with a connection if there is one.
func (l *line) say(message any, with *os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("write to a holder: %w", err)
	}
	if len(text) > maxOrder {
		return &wire.Refused{Code: wire.CodeMessage, Text: fmt.Sprintf("a request has %d bytes and may have %d: shorten the command", len(text), maxOrder)}
	}
	var rights []byte
	if with != nil {
		rights = unix.UnixRights(int(with.Fd()))
	}
	l.write.Lock()
	defer l.write.Unlock()
	if _, _, err := l.conn.WriteMsgUnix(text, rights, nil); err != nil {
		return fmt.Errorf("write to a holder: %w", err)
	}
	return nil
}

// hear reads a message, and the connection that came with it if there is one. One goroutine calls it.
func (l *line) hear(message any) (net.Conn, error) {
	var control [64]byte
	n, rights, flags, _, err := l.conn.ReadMsgUnix(l.in, control[:])
	if err == nil && n == 0 {
		err = errGone
	}
	if err != nil {
		return nil, fmt.Errorf("read from a holder: %w", err)
	}
	conn, err := connIn(control[:rights])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("it is too long")
	}
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(l.in[:n]))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(message)
	}
	if err != nil {
		if conn != nil {
			_ = conn.Close() // it is of a message that nobody understands
		}
		return nil, fmt.Errorf("read from a holder: %w", err)
	}
	return conn, nil
}

// errGone is the end of the other process.
var errGone = errors.New("it has ended")

// connIn is the connection that came beside a message, nil for none.
func connIn(rights []byte) (net.Conn, error) {
	if len(rights) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return conn, err
		}
		for _, fd := range fds {
			file := os.NewFile(uintptr(fd), "worker")
			if conn != nil {
				_ = file.Close()
				continue
			}
			conn, err = net.FileConn(file)
			if err = errors.Join(err, file.Close()); err != nil {
				return conn, err
			}
		}
	}
	return conn, nil
}
