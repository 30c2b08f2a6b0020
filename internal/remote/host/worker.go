package host

import (
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// exitTime is how long a worker may take to exit after its connection has ended.
const exitTime = 5 * time.Second

// worker is a connection with a worker. Its end is read when the worker has exited, and so has nothing of the GPU any more: a
// kernel closes the connection of a process first, and gives its memory back later.
type worker struct {
	*net.UnixConn
	// process is a descriptor of the worker's process, -1 until it has said something. One goroutine reads.
	process int
}

// newWorker has the kernel tell which process says something: the one at the other end of the socket was the listener.
func newWorker(conn *net.UnixConn) (*worker, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var refused error
	err = raw.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	if err = errors.Join(err, refused); err != nil {
		return nil, err
	}
	return &worker{UnixConn: conn, process: -1}, nil
}

// Read implements [io.Reader].
func (w *worker) Read(p []byte) (n int, err error) {
	if w.process >= 0 {
		n, err = w.UnixConn.Read(p)
	} else {
		n, err = w.first(p)
	}
	if err != nil {
		w.await()
	}
	return n, err //nolint:wrapcheck // the connection's own
}

// first reads what the worker says first, with who it is.
func (w *worker) first(p []byte) (int, error) {
	told := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	n, rights, _, _, err := w.ReadMsgUnix(p, told)
	if err != nil {
		return n, err //nolint:wrapcheck // the connection's own
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(told[:rights])
	if err != nil {
		return n, nil //nolint:nilerr // it is only not waited for
	}
	for i := range messages {
		if who, err := unix.ParseUnixCredentials(&messages[i]); err == nil && who.Pid > 0 {
			if fd, err := unix.PidfdOpen(int(who.Pid), 0); err == nil {
				w.process = fd
			}
		}
	}
	return n, nil
}

// await waits until the worker has exited.
func (w *worker) await() {
	if w.process < 0 {
		return
	}
	until := time.Now().Add(exitTime)
	one := []unix.PollFd{{Fd: int32(w.process), Events: unix.POLLIN}}
	for left := exitTime; left > 0; left = time.Until(until) {
		if _, err := unix.Poll(one, int(left.Milliseconds())+1); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = unix.Close(w.process)
	w.process = -1
}
