package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

// The addresses of the host that has the GPU: itself, and the relay of the way that is longer.
const (
	near = "127.0.0.1"
	far  = "127.0.0.2"
)

// tls is a share on the other host, by its address.
func tls(host string) []string { return []string{"--remote", host} }

// host is the machine as another host: a server, with the bundle of a client.
type host struct {
	*bench
	dir     string
	port    int
	command *exec.Cmd
	said    bytes.Buffer
	ended   chan struct{}
}

// serve makes the machine a host for others. The environment names the bundle.
func (b *bench) serve() (h *host, err error) {
	dir, err := os.MkdirTemp("", "divvy-bench-host-")
	if err != nil {
		return nil, fmt.Errorf("make the server's directory: %w", err)
	}
	h = &host{bench: b, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if h.port, err = freePort(); err != nil {
		return h, err
	}
	served, bundles := filepath.Join(dir, "serve"), filepath.Join(dir, "remote")
	if err := simulated.Execute(b.Divvy, "serve", "init", "--dir", served, near, far); err != nil {
		return h, err
	}
	file := filepath.Join(served, "serve.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return h, fmt.Errorf("read the server's file: %w", err)
	}
	text = bytes.Replace(text, []byte(`listen: ":7117"`), []byte(`listen: "`+net.JoinHostPort(near, strconv.Itoa(h.port))+`"`), 1)
	if err := errors.Join(os.WriteFile(file, text, 0o600), os.Mkdir(bundles, 0o700)); err != nil {
		return h, fmt.Errorf("write the server's file: %w", err)
	}
	admit := []string{b.Divvy, "serve", "admit", "bench", "--commands", "--dir", served, "--out", filepath.Join(bundles, "bench.pem")}
	if os.Getuid() == 0 {
		us, err := user.Current()
		if err != nil {
			return h, fmt.Errorf("look up who this is: %w", err)
		}
		admit = append(admit, "--user", us.Username)
	}
	if err := simulated.Execute(admit...); err != nil {
		return h, err
	}
	if err := os.Setenv(identity.Variable, bundles); err != nil {
		return h, fmt.Errorf("name the bundle: %w", err)
	}
	return h, h.start()
}

// start starts the server and waits until it answers.
func (h *host) start() error {
	h.said.Reset()
	h.command = exec.Command(h.Divvy, "serve", "--dir", filepath.Join(h.dir, "serve"), "--simgpu", filepath.Base(h.Instance))
	h.command.Stdout, h.command.Stderr = &h.said, &h.said
	h.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := h.command.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	h.ended = make(chan struct{})
	go func(command *exec.Cmd, ended chan struct{}) {
		_ = command.Wait() // it is ended, or what it said tells why it has
		close(ended)
	}(h.command, h.ended)
	for deadline := time.Now().Add(longest); time.Now().Before(deadline); {
		if conn, err := net.Dial("tcp", net.JoinHostPort(near, strconv.Itoa(h.port))); err == nil {
			return conn.Close()
		}
		select {
		case <-h.ended:
			return fmt.Errorf("the server has ended: %s", h.said.String())
		case <-h.Context().Done():
			return h.Context().Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return errors.New("the server does not answer")
}

// stop ends the server by a signal.
func (h *host) stop(signal syscall.Signal) {
	if h.command == nil {
		return
	}
	_ = h.command.Process.Signal(signal) // it may have ended
	<-h.ended
	h.command = nil
}

func (h *host) close() error {
	h.stop(syscall.SIGTERM)
	return os.RemoveAll(h.dir)
}

// freePort is a port that both addresses have free.
func freePort() (int, error) {
	for range 100 {
		first, err := net.Listen("tcp", near+":0")
		if err != nil {
			return 0, fmt.Errorf("find a port: %w", err)
		}
		_, text, err := net.SplitHostPort(first.Addr().String())
		port, wrong := strconv.Atoi(text)
		second, taken := net.Listen("tcp", net.JoinHostPort(far, text))
		if taken == nil {
			taken = second.Close()
		}
		if err := errors.Join(err, wrong, first.Close()); err != nil {
			return 0, fmt.Errorf("find a port: %w", err)
		}
		if taken == nil {
			return port, nil
		}
	}
	return 0, errors.New("find a port: none is free")
}
