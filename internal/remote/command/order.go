package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// order is what a server tells an attendant. The first one has Begin; of the others one field is set.
type order struct {
	Begin  *Begin `json:"begin,omitempty"`
	Signal int    `json:"signal,omitempty"`
}

// Begin is what an attendant runs.
type Begin struct {
	Directory wire.Directory `json:"directory"`
	// Args are the path of the program that becomes the command, and its arguments.
	Args []string `json:"args"`
	Env  []string `json:"env"`
	// Terminals are the streams that are one terminal. The others are the attendant's own.
	Terminals []int       `json:"terminals,omitempty"`
	Window    wire.Window `json:"window"`
}

// report is what an attendant tells. One field is set.
type report struct {
	Refused *wire.Refused `json:"refused,omitempty"`
	// Started comes with the terminal, where there is one.
	Started bool          `json:"started,omitempty"`
	Stopped *wire.Stopped `json:"stopped,omitempty"`
	Exited  *wire.Exited  `json:"exited,omitempty"`
}

// maxPacket bounds a packet between server and attendant: a command line and an environment have a frame at most.
const maxPacket = wire.MaxMessage + 4096

// line is a connection between server and attendant: each packet is a message, and may bring a file.
type line struct{ conn *net.UnixConn }

// newLine makes a line. theirs is for the attendant.
func newLine() (ours line, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return line{}, nil, fmt.Errorf("make a line: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "attendant")
	ours, err = lineOf(os.NewFile(uintptr(fds[0]), "attendant"))
	if err != nil {
		theirs.Close()
		return line{}, nil, err
	}
	return ours, theirs, nil
}

// lineOf makes a line of one end, which it takes.
func lineOf(end *os.File) (line, error) {
	defer end.Close()
	conn, err := net.FileConn(end)
	if err != nil {
		return line{}, fmt.Errorf("use the line: %w", err)
	}
	packets, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return line{}, errors.New("use the line: it is no socket of this machine")
	}
	err = errors.Join(packets.SetWriteBuffer(2*maxPacket), packets.SetReadBuffer(2*maxPacket))
	return line{packets}, err
}

// send sends a message and a file, which may be nil.
func (l line) send(message any, file *os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("write a message: %w", err)
	}
	if len(text) > maxPacket {
		return fmt.Errorf("write a message: it has %d bytes, and %d are the most", len(text), maxPacket)
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	if _, _, err := l.conn.WriteMsgUnix(text, rights, nil); err != nil {
		return fmt.Errorf("write a message: %w", err)
	}
	return nil
}

// receive reads a message, and the file that it brings.
func (l line) receive(message any) (*os.File, error) {
	text, rights := make([]byte, maxPacket), make([]byte, unix.CmsgSpace(4))
	n, with, _, _, err := l.conn.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, fmt.Errorf("read a message: %w", err)
	}
	if n == 0 {
		return nil, fmt.Errorf("read a message: %w", net.ErrClosed)
	}
	var file *os.File
	if parts, err := unix.ParseSocketControlMessage(rights[:with]); err == nil && len(parts) == 1 {
		if fds, err := unix.ParseUnixRights(&parts[0]); err == nil && len(fds) == 1 {
			unix.CloseOnExec(fds[0])
			file = os.NewFile(uintptr(fds[0]), "terminal")
		}
	}
	if err := json.Unmarshal(text[:n], message); err != nil {
		return file, fmt.Errorf("read a message: %w", err)
	}
	return file, nil
}
