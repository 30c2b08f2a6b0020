package helper

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Process is a helper as its agent holds it. Closing the connection ends it, unless it is in a call that has not
// returned.
type Process interface {
	io.ReadWriteCloser
	// Kill ends the process wherever it is, unless it sleeps in the kernel.
	Kill()
	// Ended is closed when the process is gone.
	Ended() <-chan struct{}
}

// Start returns a function that starts helpers: the program with these arguments must call [Main].
func Start(program string, args ...string) func() (Process, error) {
	return func() (Process, error) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("connect a helper: %w", err)
		}
		ours, theirs := os.NewFile(uintptr(pair[0]), "helper"), os.NewFile(uintptr(pair[1]), "helper")
		defer theirs.Close()
		defer ours.Close() // the connection has a descriptor of its own
		conn, err := net.FileConn(ours)
		if err != nil {
			return nil, fmt.Errorf("connect a helper: %w", err)
		}
		cmd := exec.Command(program, args...)
		cmd.ExtraFiles = []*os.File{theirs} // descriptor 3, socketFD
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			conn.Close()
			return nil, fmt.Errorf("start a helper: %w", err)
		}
		p := &process{Conn: conn, cmd: cmd, ended: make(chan struct{})}
		go func() {
			_ = cmd.Wait() // however it ended, it is gone
			close(p.ended)
		}()
		return p, nil
	}
}

type process struct {
	net.Conn
	cmd   *exec.Cmd
	ended chan struct{}
}

func (p *process) Kill()                  { _ = p.cmd.Process.Kill() } // it may have ended by itself
func (p *process) Ended() <-chan struct{} { return p.ended }
