package main

import (
	"bufio"
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

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// users is how many users a server has: u1, u2 and so on, with uids from 2001 on.
const users = 6

// server is a machine with eight GPUs, six users and root, in namespaces of its own, as
// test/users has it.
type server struct {
	process *exec.Cmd
	input   io.Closer
	pid     int
	// root is the server's root directory as the measurement sees it.
	root string
}

// makeServer runs inside the namespaces; $1 is the build folder, $2 flags of the machine. The server ends with
// its input.
const makeServer = `set -e
for dir in /run /dev/shm /home /opt; do mount -t tmpfs -o mode=755 tmpfs $dir; done
chmod 1777 /dev/shm
mkdir /opt/divvy /opt/etc /opt/work
mount --bind "$1" /opt/divvy
mount -t overlay -o lowerdir=/etc,upperdir=/opt/etc,workdir=/opt/work overlay /etc
rm -rf /etc/divvy
for n in 1 2 3 4 5 6; do
	echo "u$n:x:200$n:200$n::/home/u$n:/bin/sh" >> /etc/passwd
	install -d -o 200$n -g 200$n -m 700 /home/u$n
done
DIVVY_RUNDIR=/opt/gpus /opt/divvy/bin/divvy simgpu start a800x8 --name gpus --memory 24Gi $2 >&2
chmod 755 /opt/gpus /opt/gpus/simgpu /opt/gpus/simgpu/gpus
find /opt/gpus/simgpu/gpus -maxdepth 1 -type f -exec chmod a+rw {} +
echo /opt/gpus/simgpu/gpus > /etc/ld.so.conf.d/000-gpus.conf
ldconfig
echo made
exec cat >/dev/null
`

// openServer makes a server without an agent, whose machine is started with the flags
// given.
func openServer(ctx context.Context, build string, flags ...string) (*server, error) {
	build, err := filepath.Abs(build)
	if err != nil {
		return nil, fmt.Errorf("find the build folder: %w", err)
	}
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "--propagation", "private",
		"sh", "-c", makeServer, "server", build, strings.Join(flags, " "))
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("make a server: %w", err)
	}
	s := &server{process: cmd, input: input}
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "made\n" {
		return nil, errors.Join(fmt.Errorf("make a server: %q: only root can", line), err, s.close())
	}
	if s.pid, err = child(cmd.Process.Pid); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.root = fmt.Sprintf("/proc/%d/root", s.pid)
	return s, nil
}

// child is the only child of a process.
func child(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, fmt.Errorf("find the server's process: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// close ends the server with all that runs on it.
func (s *server) close() error {
	_ = s.input.Close()
	_ = s.process.Process.Signal(syscall.SIGTERM)
	_ = s.process.Wait() // how it ended says nothing
	return nil
}

// uidOf is the uid of u1, u2 and so on.
func uidOf(user string) int {
	return 2000 + int(user[1]-'0')
}

// command is a program that a user starts on the server.
func (s *server) command(ctx context.Context, user string, args ...string) *exec.Cmd {
	enter := []string{"--mount", "--pid", "--net", "--target", strconv.Itoa(s.pid), "--"}
	home := "/root"
	if user != "root" {
		home = "/home/" + user
		uid := strconv.Itoa(uidOf(user))
		enter = append(enter, "setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--")
	}
	enter = append(enter, "env", "-i", "-C", home, "HOME="+home, "DIVVY_SIMGPU=/opt/gpus/simgpu/gpus",
		"PATH=/opt/divvy/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// report is the simulated driver's own record.
func (s *server) report(ctx context.Context) (*simgpu.Report, error) {
	text, err := s.command(ctx, "root", "/opt/divvy/libexec/divvy/simgpuctl", "report", "/opt/gpus/simgpu/gpus").Output()
	if err != nil {
		return nil, fmt.Errorf("ask the simulated driver: %w", err)
	}
	return simgpu.ParseReport(text)
}
