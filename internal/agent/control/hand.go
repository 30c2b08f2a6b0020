package control

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Hander is a result with which a descriptor goes to who asked.
type Hander interface {
	// Hand is the descriptor, nil for none. It is closed here after the answer.
	Hand() *os.File
}

// handOf is the descriptor of a result, nil for none.
func handOf(result any) *os.File {
	if h, ok := result.(Hander); ok {
		return h.Hand()
	}
	return nil
}

// writeWith writes the beginning of a message, with a descriptor that arrives with its first byte; nil is none.
func writeWith(conn net.Conn, part []byte, hand *os.File) (int, error) {
	if hand == nil {
		return conn.Write(part)
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, errors.New("hand over a descriptor: the connection is not a socket")
	}
	n, _, err := socket.WriteMsgUnix(part, unix.UnixRights(int(hand.Fd())), nil)
	if err != nil {
		return n, fmt.Errorf("hand over a descriptor: %w", err)
	}
	return n, nil
}

// received reads from an agent and keeps the descriptors that came. An agent never reads any from others.
type received struct {
	conn *net.UnixConn

	mu    sync.Mutex // guards hands, alone
	hands []*os.File
}

// mostReceived bounds the descriptors of one message: an agent hands over one with an answer.
const mostReceived = 4

// Read implements [io.Reader].
func (r *received) Read(into []byte) (int, error) {
	beside := make([]byte, unix.CmsgSpace(mostReceived*4))
	n, size, _, _, err := r.conn.ReadMsgUnix(into, beside)
	if size > 0 {
		r.keep(beside[:size])
	}
	if err == nil && n == 0 && len(into) > 0 {
		err = io.EOF
	}
	return max(n, 0), err // which is -1 with an error
}

func (r *received) keep(beside []byte) {
	messages, err := unix.ParseSocketControlMessage(beside)
	if err != nil {
		return
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		r.mu.Lock()
		for _, fd := range fds {
			r.hands = append(r.hands, os.NewFile(uintptr(fd), "handed over"))
		}
		r.mu.Unlock()
	}
}

// take returns the descriptor that came first and was not taken, nil for none.
func (r *received) take() (hand *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.hands) > 0 {
		hand, r.hands = r.hands[0], r.hands[1:]
	}
	return hand
}

// drop closes those that nobody took.
func (r *received) drop() {
	for hand := r.take(); hand != nil; hand = r.take() {
		_ = hand.Close()
	}
}
