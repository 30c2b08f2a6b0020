// Package multiuser makes servers of several users for tests and measurements: in mount, pid and network namespaces, with
// a passwd file of their own. Only root can.
package multiuser

import (
	"bufio"
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

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// Users is how many users a server has beside root: u1 to u6. The first three are in group students.
const Users = 6

// Server is a machine on which nothing runs yet.
type Server struct {
	// PID is the first process of the server's namespaces, and Root the server's root directory, both as they are seen
	// from outside.
	PID  int
	Root string

	process *exec.Cmd
	input   io.Closer
}

// setup makes the server inside its namespaces. $1 is the tree that make build made.
// The server ends with its input; its first process waits for those that lost their parents.
const setup = `set -e
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
mount -t tmpfs -o mode=755 tmpfs /home
mount -t tmpfs -o mode=755 tmpfs /var/lib
mount -t tmpfs -o mode=755 tmpfs /opt
mkdir /opt/divvy /opt/etc /opt/work
mount --bind "$1" /opt/divvy
mount -t overlay -o lowerdir=/etc,upperdir=/opt/etc,workdir=/opt/work overlay /etc
rm -rf /etc/divvy
echo "students:x:3001:u1,u2,u3" >> /etc/group
for n in 1 2 3 4 5 6; do
	echo "u$n:x:200$n:200$n::/home/u$n:/bin/sh" >> /etc/passwd
	echo "u$n:x:200$n:" >> /etc/group
	install -d -o 200$n -g 200$n -m 700 /home/u$n
done
echo made
exec 3<&0
cat <&3 >/dev/null &
wait
`

// Open makes a server without a driver and without an agent, with the programs of a tree that make build made.
func Open(tree string) (*Server, error) {
	tree, err := filepath.Abs(tree)
	if err != nil {
		return nil, fmt.Errorf("find the build folder: %w", err)
	}
	cmd := exec.Command("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "--propagation", "private",
		"sh", "-c", setup, "server", tree)
	var said bytes.Buffer
	cmd.Stderr = &said
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
	s := &Server{process: cmd, input: input}
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "made\n" {
		s.Close()
		return nil, fmt.Errorf("make a server: %w: %s", err, said.String())
	}
	if s.PID, err = Child(cmd); err != nil {
		s.Close()
		return nil, err
	}
	s.Root = fmt.Sprintf("/proc/%d/root", s.PID)
	return s, nil
}

// Close ends the server with all that runs on it.
func (s *Server) Close() {
	_ = s.input.Close()
	_ = s.process.Wait() // how it ended says nothing
}

// instance is the simulated machine of a server: it is hardware, and none of the users' simulated ones.
const (
	hardware = "/opt/gpus"
	instance = hardware + "/simgpu/gpus"
)

// StartGPUs gives the server eight GPUs of 24 GiB; flags are more of `divvy simgpu start`. The machine's state is where
// every user may write to it, as to a device node.
func (s *Server) StartGPUs(ctx context.Context, flags ...string) error {
	const script = `set -e
divvy simgpu start a800x8 --name gpus --memory 24Gi "$@" >&2
chmod 755 /opt/gpus /opt/gpus/simgpu $DIVVY_SIMGPU
find $DIVVY_SIMGPU -maxdepth 1 -type f -exec chmod a+rw {} +
echo $DIVVY_SIMGPU > /etc/ld.so.conf.d/000-gpus.conf
ldconfig`
	args := append([]string{"env", "DIVVY_RUNDIR=" + hardware, "sh", "-c", script, "gpus"}, flags...)
	if text, err := s.Command(ctx, "root", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("start the server's GPUs: %w: %s", err, text)
	}
	return nil
}

// Report is the simulated driver's own record.
func (s *Server) Report(ctx context.Context) (*simgpu.Report, error) {
	text, err := s.Command(ctx, "root", "/opt/divvy/libexec/divvy/simgpuctl", "report", instance).Output()
	if err != nil {
		return nil, fmt.Errorf("ask the simulated driver: %w", err)
	}
	return simgpu.ParseReport(text)
}

// UID is the uid of u1, u2 and so on, and of root.
func UID(user string) int {
	if user == "root" {
		return 0
	}
	return 2000 + int(user[1]-'0')
}

// Command is a program that a user starts on the server, in their home directory. Its process is nsenter's child: see
// Child and Signal. The context ends nsenter alone.
func (s *Server) Command(ctx context.Context, user string, args ...string) *exec.Cmd {
	enter := []string{"--mount", "--pid", "--net", "--target", strconv.Itoa(s.PID), "--"}
	home := "/root"
	if user != "root" {
		home = "/home/" + user
		enter = append(enter, "setpriv", "--reuid", user, "--regid", user, "--init-groups", "--")
	}
	enter = append(enter, "env", "-i", "-C", home, "HOME="+home, "USER="+user, "DIVVY_SIMGPU="+instance,
		"PATH=/opt/divvy/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
}

// Child is the only child of a command that has started.
func Child(cmd *exec.Cmd) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("find the child of a command: %w", err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("the children of %d: %q: %w", cmd.Process.Pid, text, err)
	}
	return child, nil
}

// Signal sends a signal to a program of the server, which fails if it has ended. Nobody may have waited for its command: until then
// its number is not used again.
func Signal(cmd *exec.Cmd, signal syscall.Signal) error {
	child, err := Child(cmd)
	if err == nil {
		err = syscall.Kill(child, signal)
	}
	if err != nil {
		return fmt.Errorf("signal a program of the server: %w", err)
	}
	return nil
}

// Socket is that of the system's agent, as it is reached from outside.
func (s *Server) Socket() string { return filepath.Join(s.Root, "run/divvy/agent.sock") }

// List is what the system's agent tells root.
func (s *Server) List(ctx context.Context) (*control.Listing, error) {
	client, err := control.Dial(ctx, s.Socket())
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	return client.List(ctx)
}

// Write makes a file of the server that everybody may read.
func (s *Server) Write(path, text string) error {
	full := filepath.Join(s.Root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text), 0o644)); err != nil {
		return fmt.Errorf("write a file of the server: %w", err)
	}
	return nil
}

// Used is the GPU memory in use on the server, as the simulated driver knows.
func (s *Server) Used(ctx context.Context) (bytes uint64, err error) {
	report, err := s.Report(ctx)
	if err != nil {
		return 0, err
	}
	for _, g := range report.GPUs {
		bytes += g.Used
	}
	return bytes, nil
}

// Has reports whether a process, as it is seen from outside, is one of the server's.
func (s *Server) Has(pid int) bool {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	ours, ownErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", s.PID))
	return err == nil && ownErr == nil && theirs == ours
}
