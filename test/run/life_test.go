package run

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// `divvy run` ends as its command ends, with every layer.
func TestHowTheCommandEnds(t *testing.T) {
	h := newHost(t)
	for _, layer := range []string{"auto", "env"} {
		for _, test := range []struct {
			command []string
			status  int
			says    string
		}{
			{[]string{"true"}, 0, ""},
			{[]string{"sh", "-c", "exit 7"}, 7, ""},
			{[]string{"sh", "-c", "kill -TERM $$"}, 128 + int(syscall.SIGTERM), ""},
			{[]string{"sh", "-c", "kill -KILL $$"}, 128 + int(syscall.SIGKILL), ""},
			{[]string{"no-such-program"}, 127, "divvy run: no-such-program: not found"},
			{[]string{t.TempDir()}, 126, "ermission denied"},
		} {
			o := h.run(append([]string{"--layer", layer, "--memory", "1Gi", "--"}, test.command...)...)
			if o.status != test.status || !strings.Contains(o.err, test.says) || test.says == "" && o.err != "" {
				t.Errorf("%s, %q: exit status %d, %q", layer, test.command, o.status, o.err)
			}
		}
	}
}

func TestSignalsAndStopsReachTheCommand(t *testing.T) {
	h := newHost(t)
	s := h.hold([]string{"--memory", "1Gi"}, "sh", "-c", `trap 'echo told; exit 9' USR1; echo $$; while :; do read line || exit 0; done`)
	if got := strings.TrimSpace(s.first); got != strconv.Itoa(s.cmd.Process.Pid) {
		t.Fatalf("the command is process %s, divvy was %d", got, s.cmd.Process.Pid)
	}
	state := func() string {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid), "stat"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		return rest[:1]
	}
	signal := func(sig syscall.Signal) {
		if err := s.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	h.eventually("the command is stopped", func() bool { return state() == "T" })
	signal(syscall.SIGCONT)
	h.eventually("the command goes on", func() bool { return state() == "S" })
	signal(syscall.SIGUSR1)            // not SIGHUP, which whoever starts the tests may ignore, as nohup does: no trap undoes that
	_, _ = s.input.Write([]byte("\n")) // some shells run a trap only after a read
	s.end()
	if status := s.cmd.ProcessState.ExitCode(); status != 9 {
		t.Errorf("after SIGUSR1: exit status %d", status)
	}
}

// The agent keeps nothing open that was open for the command which started it, such as a lock of a script's.
func TestAgentKeepsNothingOfTheCommands(t *testing.T) {
	h := newHost(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	cmd := h.command(filepath.Join(string(h.tree), "bin", "divvy"), "run", "--simgpu", "m", "--memory", "1Gi", "--", "sh", "-c", "exec 7>&-; echo begun; read line")
	cmd.ExtraFiles = []*os.File{4: write} // 7 of the command, beyond those that Divvy uses
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = input.Close(); _ = cmd.Wait() }()
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatalf("the command said %q, %v", line, err)
	}
	write.Close()
	one := []unix.PollFd{{Fd: int32(read.Fd())}}
	// Whoever started the agent may be just about to end.
	n, err := unix.Poll(one, int(time.Minute/time.Millisecond))
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(one, int(time.Minute/time.Millisecond))
	}
	if err != nil || n != 1 || one[0].Revents&unix.POLLHUP == 0 {
		t.Errorf("while the agent lives, somebody has what was open for the command: %v", err)
	}
}

// The agent is no child of the command: a command may wait for all of its children.
func TestCommandHasNoChildrenOfDivvys(t *testing.T) {
	h := newHost(t)
	o := h.run("--memory", "1Gi", "--", "sh", "-c", "cat /proc/$$/task/$$/children")
	// The only child is cat.
	if children := strings.Fields(o.out); o.status != 0 || len(children) > 1 {
		t.Errorf("exit status %d, children %q, %s", o.status, o.out, o.err)
	}
}

// A share lives until the last descendant of its command has ended, also when the
// command itself ends earlier.
func TestShareEndsWithItsLastProcess(t *testing.T) {
	h := newHost(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	input, err := os.OpenFile(fifo, os.O_RDWR, 0) // both ends, so that it never ends
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	line := fmt.Sprintf("(read line; exec %s hold) < %s >/dev/null 2>&1 & echo $!", h.bench(), fifo)
	s := h.hold([]string{"--memory", "1Gi", "--name", "family"}, "sh", "-c", line)
	child, err := strconv.Atoi(strings.TrimSpace(s.first))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	s.end()
	if _, ok := h.tenant("family"); !ok {
		t.Fatal("the share ended with the command, though a child of it lives")
	}
	if _, err := input.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	h.eventually("the child uses the GPU", func() bool {
		tenant, ok := h.tenant("family")
		return ok && tenant.Shares[0].Used > 0
	})
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.eventually("the share has ended", func() bool { _, ok := h.tenant("family"); return !ok })
}

// Programs that start at the same time start only one agent.
func TestManyStartAtOnce(t *testing.T) {
	h := newHost(t)
	const many = 12
	outcomes := make([]outcome, many)
	var all sync.WaitGroup
	for i := range outcomes {
		all.Go(func() { outcomes[i] = h.run("--memory", "1Gi", "--", h.bench(), "alloc", "--bytes", "256Mi") })
	}
	all.Wait()
	for _, o := range outcomes {
		if o.status != 0 || o.err != "" || !strings.Contains(o.out, "CUDA_SUCCESS") {
			t.Errorf("exit status %d, %s%s", o.status, o.out, o.err)
		}
	}
}

func TestWaitingForRoom(t *testing.T) {
	h := newHost(t)
	first := h.hold([]string{"--memory", "60Gi", "--name", "first"}, "sh", "-c", "echo; read x")
	if o := h.run("--memory", "60Gi", "--", "true"); o.status != 125 || !strings.Contains(o.err, "--wait") {
		t.Errorf("without --wait: exit status %d, %s", o.status, o.err)
	}
	if o := h.run("--memory", "60Gi", "--overcommit", "--", "true"); o.status != 0 {
		t.Errorf("with --overcommit: exit status %d, %s", o.status, o.err)
	}
	done := make(chan outcome, 1)
	go func() { done <- h.run("--memory", "60Gi", "--wait", "--name", "second", "--", "echo", "started") }()
	h.eventually("the second waits", func() bool { return len(h.list().Waiting) == 1 })
	if table := h.ok("ls"); !strings.Contains(table, "waiting since") {
		t.Errorf("the table does not show who waits:\n%s", table)
	}
	first.end()
	select {
	case o := <-done:
		if o.status != 0 || o.out != "started" {
			t.Errorf("after waiting: exit status %d, %s%s", o.status, o.out, o.err)
		}
	case <-time.After(longest):
		t.Fatal("the second waits though there is room")
	}
}

// Who waits for any GPU of eight closes one of them to others.
func TestWaitingForAnyGPU(t *testing.T) {
	h := newHostOf(t, "a800x8")
	first := h.hold([]string{"--gpus", "all", "--memory", "1Gi", "--name", "first"}, "sh", "-c", "echo; read x")
	done := make(chan outcome, 1)
	go func() { done <- h.run("--memory", "100%", "--wait", "--", "echo", "started") }()
	h.eventually("one waits", func() bool { return len(h.list().Waiting) == 1 })
	keeps := h.list().Waiting[0].Keeps
	if table := h.ok("ls"); len(keeps) != 1 || !strings.Contains(table, fmt.Sprintf("; kept for it: GPU %d", keeps[0])) {
		t.Fatalf("GPUs %v are kept:\n%s", keeps, table)
	}
	for i := range 8 {
		o := h.run("--gpu", strconv.Itoa(i), "--memory", "2Gi", "--", "true")
		if i == keeps[0] && (o.status != 125 || !strings.Contains(o.err, "waited longer")) || i != keeps[0] && o.status != 0 {
			t.Errorf("on GPU %d, while GPU %d is kept: exit status %d, %s", i, keeps[0], o.status, o.err)
		}
	}
	first.end()
	if o := <-done; o.status != 0 || o.out != "started" {
		t.Errorf("after waiting: exit status %d, %s%s", o.status, o.out, o.err)
	}
}

func TestSetAndStop(t *testing.T) {
	h := newHost(t)
	s := h.hold([]string{"--memory", "2Gi", "--name", "it"}, h.bench(), "hold", "--bytes", "1Gi")
	if out := h.ok("set", "it", "--memory", "4Gi", "--cores", "40"); !strings.Contains(out, "4Gi") || !strings.Contains(out, "40%") {
		t.Errorf("set printed:\n%s", out)
	}
	if tenant, _ := h.tenant("it"); tenant.Shares[0].Limit != 4*gib || tenant.Shares[0].Cores != 40 {
		t.Errorf("after set: %+v", tenant.Shares[0])
	}
	for args, says := range map[string]string{
		"--memory 1Gi":                    "--below-used",
		"--memory 100Ti":                  "ask for at most",
		"--policy fixed --cores 101":      "1 to 100",
		"--class sometimes":               "online or offline",
		"--policy weighted --weight 9999": "1000",
	} {
		if o := h.divvy(append([]string{"set", "it"}, strings.Fields(args)...)...); o.status == 0 || !strings.Contains(o.err, says) {
			t.Errorf("set %s: exit status %d, %s", args, o.status, o.err)
		}
	}
	h.ok("stop", "it", "--grace", "5m")
	if _, ok := h.tenant("it"); ok {
		t.Error("the share is still there after stop")
	}
	s.end()
	if status := s.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Exited() {
		t.Errorf("gpubench leaves at SIGTERM by itself, yet: %v", s.cmd.ProcessState)
	}
}

// Shares outlive their agent, and the next agent continues to serve them.
func TestAgentDies(t *testing.T) {
	h := newHost(t)
	h.hold([]string{"--memory", "50Gi", "--name", "old"}, h.bench(), "hold", "--bytes", "256Mi")
	before := h.list()
	if err := syscall.Kill(before.Info.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.eventually("the agent is gone", func() bool { return syscall.Kill(before.Info.PID, 0) != nil })
	if o := h.run("--memory", "50Gi", "--", "true"); o.status != 125 || !strings.Contains(o.err, "--wait") {
		t.Errorf("the next agent grants what is taken: exit status %d, %s", o.status, o.err)
	}
	h.hold([]string{"--memory", "1Gi", "--name", "new"}, h.bench(), "hold", "--bytes", "256Mi")
	after := h.list()
	if after.Info.PID == before.Info.PID || len(after.Tenants) != 2 {
		t.Errorf("after the agent's death: %+v", after)
	}
	old, ok := find(after, "old")
	if !ok || old.Shares[0].Limit != 50*gib || old.Shares[0].Used < gib/4 {
		t.Errorf("the old share: %+v", old)
	}
}

func find(list control.Listing, name string) (control.Tenant, bool) {
	for _, t := range list.Tenants {
		if t.Name == name {
			return t, true
		}
	}
	return control.Tenant{}, false
}
