package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

const (
	instance = "demo" // of the simulated machine
	address  = "10.7.11.7"
	// longest bounds every wait for something that takes milliseconds.
	longest = 2 * time.Minute
)

// makeHosts gives this namespace a network with the one of another process, and a name.
const makeHosts = `set -e
mount --make-rprivate /
hostname gpuhost 2>/dev/null || echo gpuhost > /proc/sys/kernel/hostname
ip link set lo up
ip link add toclient type veth peer name toserver netns "$1"
ip address add ` + address + `/24 dev toclient
ip link set toclient up`

// makeClient gives the other one its end, and takes from it every file of a driver, the simulated one too, and all that the host
// with the GPU keeps.
const makeClient = `set -e
mount --make-rprivate /
hostname laptop 2>/dev/null || echo laptop > /proc/sys/kernel/hostname
ip link set lo up
ip address add 10.7.11.8/24 dev toserver
ip link set toserver up
mount -t tmpfs none "$1/lib/simgpu"
mount --bind /dev/null "$1/libexec/divvy/simgpuctl"
mount -t tmpfs none "$2"
for file in /usr/lib/*/libcuda.so.* /usr/lib/*/libnvidia-ml.so.* /usr/lib64/libcuda.so.* /usr/lib64/libnvidia-ml.so.* /usr/lib/libcuda.so.* /usr/lib/wsl/lib/libcuda.so.* /dev/nvidia*; do
	[ -f "$file" ] || [ -c "$file" ] || continue
	mount --bind /dev/null "$file"
done`

// hosts are the one with the GPU, which is this namespace, and its client.
type hosts struct {
	prefix, dir string
	client      *exec.Cmd // which has the client's namespaces
	server      *exec.Cmd
	said        bytes.Buffer
	ended       chan struct{} // when the server has
}

func open(ctx context.Context, prefix string) (h *hosts, err error) {
	h = &hosts{prefix: prefix}
	if h.dir, err = os.MkdirTemp("/dev/shm", "divvy-demo-remote-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close(context.WithoutCancel(ctx)))
		}
	}()
	for _, dir := range []string{h.serverDir(), h.clientDir(), filepath.Join(h.clientDir(), "bundles")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return h, err
		}
	}
	// It lives until its standard input ends, with this program at the latest.
	h.client = exec.Command("unshare", "--net", "--mount", "--uts", "sh", "-c", "echo there; exec cat")
	if _, err = h.client.StdinPipe(); err != nil {
		return h, err
	}
	out, err := h.client.StdoutPipe()
	if err != nil {
		return h, err
	}
	if err := h.client.Start(); err != nil {
		h.client = nil
		return h, fmt.Errorf("make the client's namespaces: %w", err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("there\n"))); err != nil {
		return h, fmt.Errorf("make the client's namespaces: %w", err)
	}
	pid := strconv.Itoa(h.client.Process.Pid)
	if _, err := h.output(exec.CommandContext(ctx, "sh", "-c", makeHosts, "sh", pid)); err != nil {
		return h, fmt.Errorf("make the network: %w", err)
	}
	if _, err := h.output(h.onClient(ctx, "sh", "-c", makeClient, "sh", h.prefix, h.serverDir())); err != nil {
		return h, fmt.Errorf("make the client's host: %w", err)
	}
	_, err = h.output(h.onServer(ctx, h.divvy(), "simgpu", "start", "a100-80g", "--name", instance))
	return h, err
}

func (h *hosts) divvy() string     { return filepath.Join(h.prefix, "bin", "divvy") }
func (h *hosts) gpubench() string  { return filepath.Join(h.prefix, "bin", "gpubench") }
func (h *hosts) serverDir() string { return filepath.Join(h.dir, "gpuhost") }
func (h *hosts) clientDir() string { return filepath.Join(h.dir, "laptop") }

// onServer is a command on the host with the GPU.
func (h *hosts) onServer(ctx context.Context, argv ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Env = append(os.Environ(), "DIVVY_RUNDIR="+filepath.Join(h.serverDir(), "run"))
	return command
}

// onClient is a command on its client.
func (h *hosts) onClient(ctx context.Context, argv ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(h.client.Process.Pid), "--net", "--mount", "--uts", "--"}
	command := exec.CommandContext(ctx, "nsenter", append(enter, argv...)...)
	command.Env = append(os.Environ(), "DIVVY_RUNDIR="+filepath.Join(h.clientDir(), "run"), identity.Variable+"="+filepath.Join(h.clientDir(), "bundles"))
	return command
}

// output runs a command to its end; a failure carries what it said.
func (h *hosts) output(command *exec.Cmd) (string, error) {
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, strings.TrimSpace(said.String()))
	}
	return string(out), err
}

// serve starts the server and waits until it serves.
func (h *hosts) serve(ctx context.Context) error {
	h.server = h.onServer(context.WithoutCancel(ctx), h.divvy(), "serve", "--dir", filepath.Join(h.serverDir(), "serve"), "--simgpu", instance)
	h.server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := h.server.StderrPipe()
	if err != nil {
		return err
	}
	if err := h.server.Start(); err != nil {
		h.server = nil
		return err
	}
	serves := make(chan struct{})
	h.ended = make(chan struct{})
	go func() {
		text := make([]byte, 4096)
		for served := false; ; {
			n, err := out.Read(text)
			h.said.Write(text[:n])
			if !served && strings.Contains(h.said.String(), "serving other hosts") {
				served = true
				close(serves)
			}
			if err != nil {
				break
			}
		}
		_ = h.server.Wait() // it is killed in a scene
		close(h.ended)
	}()
	select {
	case <-serves:
		return nil
	case <-h.ended:
		return fmt.Errorf("the server has ended: %s", h.said.String())
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(longest):
		return errors.New("the server does not begin to serve")
	}
}

// stop ends the server by a signal.
func (h *hosts) stop(signal syscall.Signal) {
	if h.server != nil {
		_ = h.server.Process.Signal(signal)
		<-h.ended
		h.server = nil
	}
}

// report is the simulated driver's own record.
func (h *hosts) report(ctx context.Context) (*simgpu.Report, error) {
	text, err := h.output(h.onServer(ctx, h.divvy(), "simgpu", "report", instance, "-o", "json"))
	if err != nil {
		return nil, err
	}
	return simgpu.ParseReport([]byte(text))
}

// close stops what was started.
func (h *hosts) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	h.stop(syscall.SIGTERM)
	var faults []error
	// The agent ends by itself with its last share; its socket goes with it.
	for socket := filepath.Join(h.serverDir(), "run", "simgpu", instance, "agent.sock"); ; {
		if _, err := os.Stat(socket); errors.Is(err, os.ErrNotExist) {
			break
		}
		select {
		case <-time.After(5 * time.Millisecond):
			continue
		case <-ctx.Done():
			faults = append(faults, fmt.Errorf("wait until the agent has ended: %w", ctx.Err()))
		}
		break
	}
	if _, err := os.Stat(filepath.Join(h.serverDir(), "run", "simgpu", instance)); err == nil {
		_, err := h.output(h.onServer(ctx, h.divvy(), "simgpu", "stop", instance, "--force"))
		faults = append(faults, err)
	}
	if h.client != nil {
		_ = errors.Join(h.client.Process.Kill(), h.client.Wait()) // that it was killed
	}
	return errors.Join(append(faults, os.RemoveAll(h.dir))...)
}
