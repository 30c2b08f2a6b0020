package main

import (
	cryptotls "crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
)

// The sides of the bare relay. The flag -bare names the far one so, and the near one by where the far one listens. Each is a process of its own, as the relay and the server of a share
// are: programs pass through a socket to the near side, an encrypted connection, the far side, and a socket.
const (
	bareNear = "near"
	bareFar  = "far"
)

// bareSide runs one side in a directory, which has the files of the server: it passes connections on until it is killed.
func bareSide(side, dir string) error {
	var listener net.Listener
	var onward func() (net.Conn, error)
	switch side {
	case bareFar:
		config, err := identity.Server(filepath.Join(dir, "serve"))
		if err != nil {
			return err
		}
		if listener, err = cryptotls.Listen("tcp", near+":0", config); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		onward = func() (net.Conn, error) { return net.Dial("unix", filepath.Join(dir, "sink")) }
	default:
		bundle, err := identity.ReadBundle(filepath.Join(dir, "remote", "bench.pem"))
		if err != nil {
			return err
		}
		if listener, err = net.Listen("unix", filepath.Join(dir, bareNear)); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		onward = func() (net.Conn, error) { return cryptotls.Dial("tcp", side, bundle.Config(near)) }
	}
	fmt.Println(listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		other, err := onward()
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		for _, way := range [][2]net.Conn{{conn, other}, {other, conn}} {
			go func() {
				_, _ = io.CopyBuffer(struct{ io.Writer }{way[1]}, struct{ io.Reader }{way[0]}, make([]byte, 256<<10))
				_ = errors.Join(way[0].Close(), way[1].Close())
			}()
		}
	}
}

// bare is an encrypted relay that does nothing else.
type bare struct {
	sides      []*exec.Cmd
	here, sink net.Conn
	buffer     []byte
}

// relay starts a bare relay, and connects through it.
func (h *host) relay() (b *bare, err error) {
	b = &bare{buffer: make([]byte, 1<<20)}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	address, err := b.side(bareFar, h.dir)
	if err != nil {
		return b, err
	}
	if address, err = b.side(address, h.dir); err != nil {
		return b, err
	}
	listener, err := net.Listen("unix", filepath.Join(h.dir, "sink"))
	if err != nil {
		return b, fmt.Errorf("listen behind the bare relay: %w", err)
	}
	defer listener.Close()
	if b.here, err = net.Dial("unix", address); err != nil {
		return b, fmt.Errorf("connect to the bare relay: %w", err)
	}
	if b.sink, err = listener.Accept(); err != nil {
		return b, fmt.Errorf("accept behind the bare relay: %w", err)
	}
	return b, nil
}

// side starts a side and returns where it listens.
func (b *bare) side(name, dir string) (address string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	side := exec.Command(self, "-bare", name, "-dir", dir)
	side.Stderr = os.Stderr
	side.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := side.StdoutPipe()
	if err == nil {
		err = side.Start()
	}
	if err != nil {
		return "", fmt.Errorf("start a side of the bare relay: %w", err)
	}
	b.sides = append(b.sides, side)
	text := make([]byte, 256)
	n, err := out.Read(text)
	if err != nil {
		return "", fmt.Errorf("start a side of the bare relay: %w", err)
	}
	return strings.TrimSpace(string(text[:n])), nil
}

func (b *bare) close() {
	for _, conn := range []net.Conn{b.here, b.sink} {
		if conn != nil {
			_ = conn.Close()
		}
	}
	for _, side := range b.sides {
		_ = errors.Join(side.Process.Kill(), side.Wait()) // that it was killed
	}
}

// copies is how long as much as copySize takes each way, the median of 3, in ns.
func (b *bare) copies() ([]float64, error) {
	var took []float64
	for _, way := range [][2]net.Conn{{b.here, b.sink}, {b.sink, b.here}} {
		var times []time.Duration
		for range 3 {
			begin := time.Now()
			if err := b.copy(way[0], way[1]); err != nil {
				return nil, fmt.Errorf("copy through the bare relay: %w", err)
			}
			times = append(times, time.Since(begin))
		}
		slices.Sort(times)
		took = append(took, float64(times[1].Nanoseconds()))
	}
	return took, nil
}

// copy sends and receives, and waits for a byte that says that all has come.
func (b *bare) copy(from, to net.Conn) error {
	received := make(chan error, 1)
	go func() {
		buffer := make([]byte, 1<<20)
		for left := copySize; left > 0; {
			n, err := to.Read(buffer[:min(left, len(buffer))])
			if left -= n; err != nil {
				received <- err
				return
			}
		}
		_, err := to.Write(buffer[:1])
		received <- err
	}()
	for left := copySize; left > 0; left -= len(b.buffer) {
		if _, err := from.Write(b.buffer); err != nil {
			return errors.Join(err, <-received)
		}
	}
	_, err := io.ReadFull(from, b.buffer[:1])
	return errors.Join(err, <-received)
}
