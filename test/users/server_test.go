package users

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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// longest bounds every wait for something that takes milliseconds, on a busy machine.
const longest = 5 * time.Minute

const gib = 1 << 30

// The users of every server: u1 to u6. The first three are in group students.
const (
	firstUID = 2001
	lastUID  = 2006
	students = 3001
)

// server is a machine with eight GPUs of 24 GiB, in namespaces of its own.
type server struct {
	t *testing.T
	// pid is the first process of the server's namespaces; root is the server's root
	// directory as the test sees it.
	pid  int
	root string
}

// setup makes the server inside its namespaces. $1 is the tree that make build made.
// What follows "wait" ends when the test closes the input, and the server with it.
const setup = `set -e
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
mount -t tmpfs -o mode=755 tmpfs /home
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

// newServer makes a server without an agent, whose machine has fields of the machine
// file set as given. Servers of tests run in parallel.
func newServer(t *testing.T, set ...string) *server {
	t.Helper()
	s := newBareServer(t)
	// The machine's state is where every user may write to it, as to a device node.
	args := []string{"divvy", "simgpu", "start", "a800x8", "--name", "gpus", "--memory", "24Gi"}
	for _, field := range set {
		args = append(args, "--set", field)
	}
	s.asRoot(args...)
	s.asRoot("sh", "-c", `chmod 755 /opt/gpus /opt/gpus/simgpu $DIVVY_SIMGPU
find $DIVVY_SIMGPU -maxdepth 1 -type f -exec chmod a+rw {} +
echo $DIVVY_SIMGPU > /etc/ld.so.conf.d/000-gpus.conf && ldconfig`)
	return s
}

// newBareServer makes a server without a driver.
func newBareServer(t *testing.T) *server {
	t.Helper()
	t.Parallel()
	if os.Getuid() != 0 {
		installtest.Missing(t, "users", errors.New("only root makes users"))
	}
	tree := installtest.Tree(t)
	cmd := exec.Command("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "--propagation", "private",
		"sh", "-c", setup, "server", string(tree))
	var said bytes.Buffer
	cmd.Stderr = &said
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		installtest.Missing(t, "users", err)
	}
	t.Cleanup(func() { _ = input.Close(); _ = cmd.Wait() })
	if line, _ := readLine(output); line != "made" {
		_ = cmd.Wait()
		installtest.Missing(t, "users", errors.New(said.String()))
	}
	s := &server{t: t}
	s.pid = childOf(t, cmd.Process.Pid)
	s.root = fmt.Sprintf("/proc/%d/root", s.pid)
	return s
}

// childOf is the only child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatalf("the children of %d: %q", pid, text)
	}
	return child
}

func readLine(r io.Reader) (string, error) {
	line, one := "", make([]byte, 1)
	for {
		n, err := r.Read(one)
		switch {
		case n == 0 && err != nil:
			return line, err
		case n == 0:
		case one[0] == '\n':
			return line, nil
		default:
			line += string(one)
		}
	}
}

// write makes a file of the server that everybody may read.
func (s *server) write(path, text string) {
	s.t.Helper()
	full := filepath.Join(s.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text), 0o644)); err != nil {
		s.t.Fatal(err)
	}
}

// command is a program that a user starts on the server, in their home directory.
// Its process is nsenter's child: see program.pid.
func (s *server) command(user string, args ...string) *exec.Cmd {
	enter := []string{"--mount", "--pid", "--net", "--target", strconv.Itoa(s.pid), "--"}
	home, rundir := "/home/"+user, ""
	if user == "root" {
		home = "/root"
	} else {
		enter = append(enter, "setpriv", "--reuid", user, "--regid", user, "--init-groups", "--")
	}
	if len(args) > 2 && args[0] == "divvy" && args[1] == "simgpu" && args[2] == "start" {
		rundir = "/opt/gpus" // the machine is hardware: it is none of the users' simulated ones
	}
	enter = append(enter, "env", "-i", "-C", home, "HOME="+home, "USER="+user, "DIVVY_SIMGPU=/opt/gpus/simgpu/gpus",
		"PATH=/opt/divvy/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	if rundir != "" {
		enter = append(enter, "DIVVY_RUNDIR="+rundir)
	}
	return exec.Command("nsenter", append(enter, args...)...)
}

// transcript is what a program has said so far.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (t *transcript) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(text)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// outcome is how a program ended and what it said.
type outcome struct {
	status   int // the exit status, 128 and the signal's number as in a shell
	out, err string
}

// run runs a program as a user to its end.
func (s *server) run(user string, args ...string) outcome {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), longest)
	defer cancel()
	cmd := s.command(user, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = longest // an agent that it started keeps nothing of its output
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // the status says it
	if !stop() {
		s.t.Fatalf("%s of %s does not end: %s", strings.Join(args, " "), user, errOut.String())
	}
	return outcome{statusOf(cmd), strings.TrimSpace(out.String()), strings.TrimSpace(errOut.String())}
}

func statusOf(cmd *exec.Cmd) int {
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// ok runs a program as a user and fails the test unless it succeeds.
func (s *server) ok(user string, args ...string) string {
	s.t.Helper()
	o := s.run(user, args...)
	if o.status != 0 {
		s.t.Fatalf("%s, %s: exit status %d, %s", user, strings.Join(args, " "), o.status, o.err)
	}
	return o.out
}

func (s *server) asRoot(args ...string) { s.t.Helper(); s.ok("root", args...) }

// refused runs a program as a user that must fail with a message that has all of the
// given words, and returns the message.
func (s *server) refused(user string, says []string, args ...string) string {
	s.t.Helper()
	o := s.run(user, args...)
	for _, words := range says {
		if !strings.Contains(o.err, words) {
			s.t.Errorf("%s, %s: %q does not say %q", user, strings.Join(args, " "), o.err, words)
		}
	}
	if o.status == 0 {
		s.t.Errorf("%s, %s succeeds: %s", user, strings.Join(args, " "), o.out)
	}
	return o.err
}

// program is one that runs on the server until its input ends or it is killed.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	input io.WriteCloser
	said  *transcript // its standard error
	// first is the first line that it printed; output has what follows.
	first  string
	output io.Reader
}

// start starts a program as a user. With line it returns when the program has printed
// a line.
func (s *server) start(user string, line bool, args ...string) *program {
	s.t.Helper()
	p := &program{t: s.t, cmd: s.command(user, args...), said: &transcript{}}
	input, err := p.cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	p.input, p.output, p.cmd.Stderr, p.cmd.WaitDelay = input, output, p.said, longest
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { p.kill(syscall.SIGKILL) })
	if !line {
		return p
	}
	if p.first, err = readLine(output); err != nil {
		_ = p.cmd.Wait()
		s.t.Fatalf("%s, %s ended: %s", user, strings.Join(args, " "), p.said.String())
	}
	return p
}

// hold is a share of a user whose program holds memory until it is ended.
func (s *server) hold(user, bytes string, flags ...string) *program {
	s.t.Helper()
	args := append(append([]string{"divvy", "run"}, flags...), "--", "gpubench", "hold", "--bytes", bytes)
	return s.start(user, true, args...)
}

// pid is the program's process as the test sees it.
func (p *program) pid() int {
	p.t.Helper()
	return childOf(p.t, p.cmd.Process.Pid)
}

// end closes the program's input, waits for its end and returns its status.
func (p *program) end() int {
	_ = p.input.Close()
	_ = p.cmd.Wait()
	return statusOf(p.cmd)
}

// wait waits for the program's end and returns its status.
func (p *program) wait() int {
	_ = p.cmd.Wait()
	return statusOf(p.cmd)
}

// kill ends the program by a signal, unless it has ended, and waits for its end.
func (p *program) kill(signal syscall.Signal) {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.input.Close()
	// While nsenter has not been waited for, the number of its child is not used again.
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.cmd.Process.Pid, p.cmd.Process.Pid)); err == nil {
		if child, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			_ = syscall.Kill(child, signal)
		}
	}
	_ = p.cmd.Wait()
}

// agent starts the system's agent and returns when it serves.
func (s *server) agent(flags ...string) *program {
	s.t.Helper()
	p := s.start("root", false, append([]string{"divvy", "agent"}, flags...)...)
	s.eventually("the agent serves", func() bool {
		if p.cmd.Process.Signal(syscall.Signal(0)) != nil {
			s.t.Fatal("the agent ended")
		}
		client, err := control.Dial(s.t.Context(), s.socket())
		return err == nil && client.Close() == nil
	})
	return p
}

// socket is that of the system's agent, as the test reaches it.
func (s *server) socket() string { return filepath.Join(s.root, "run/divvy/agent.sock") }

// list is what the system's agent tells root.
func (s *server) list() control.Listing {
	s.t.Helper()
	client, err := control.Dial(s.t.Context(), s.socket())
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	list, err := client.List(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return *list
}

// find is a share of a user, by its name.
func find(list control.Listing, user, name string) (control.Tenant, bool) {
	for _, t := range list.Tenants {
		if t.User == user && t.Name == name {
			return t, true
		}
	}
	return control.Tenant{}, false
}

// eventually waits for a condition that other processes make true.
func (s *server) eventually(what string, condition func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(longest)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for looks := 0; !condition(); looks++ {
		// A virtual machine may stand still for longer than any limit.
		if looks >= 100 && time.Now().After(deadline) {
			s.t.Fatalf("%s: not so after %d looks in %s", what, looks, longest)
		}
		<-ticker.C
	}
}
