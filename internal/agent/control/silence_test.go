package control

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// An agent that does not greet keeps nobody waiting, and the user is told once that they wait.
func TestDialGivesUpOnASilentAgent(t *testing.T) {
	p, _ := endpoint(t, "serve")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.Socket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	greets, silent, pause := greetTime, silentTime, lookPause
	greetTime, silentTime, lookPause = 20*time.Millisecond, 5*time.Millisecond, time.Millisecond
	defer func() { greetTime, silentTime, lookPause = greets, silent, pause }()
	var said []string
	ctx := Warning(deadline(t), func(text string) { said = append(said, text) })
	want := fmt.Sprintf("kill -KILL %d", os.Getpid())
	if _, err := Dial(ctx, p.Socket()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want one with %q", err, want)
	}
	if text := fmt.Sprintf("the agent does not answer: process %d runs: waiting for it", os.Getpid()); len(said) != 1 || said[0] != text {
		t.Errorf("said %q, want %q", said, text)
	}
}

// An agent that is stopped while it owes an answer is told, and is not waited for longer than its greeting.
func TestStoppedAgents(t *testing.T) {
	agent := exec.Command("sleep", "1000")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = agent.Process.Kill(); _ = agent.Wait() }()
	pid := agent.Process.Pid
	asked := time.Now()
	at := func(seconds int) time.Time { return asked.Add(time.Duration(seconds) * time.Second) }
	var said []string
	watch := &silence{agent: &unix.Ucred{Pid: int32(pid), Uid: uint32(os.Getuid())}, say: func(text string) { said = append(said, text) }, asked: asked}
	if err := watch.look(at(100)); err != nil || said != nil {
		t.Errorf("an agent that works: %v, %q", err, said)
	}
	if err := agent.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for !process.Stopped(pid) { // the signal is on its way
		if _, err := process.Find(pid); err != nil {
			t.Fatal(err)
		}
	}
	for _, after := range []int{101, 105, 110} {
		if err := watch.look(at(after)); err != nil {
			t.Errorf("after %d s: %v", after, err)
		}
	}
	if want := fmt.Sprintf("the agent does not answer: process %d is stopped by a signal: waiting for it", pid); len(said) != 1 || said[0] != want {
		t.Errorf("said %q, want %q", said, want)
	}
	if err := watch.look(at(111)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("kill -CONT %d", pid)) {
		t.Errorf("after ten seconds: %v", err)
	}
}

// What is advised about an agent that does not answer is what its reader can do.
func TestAdviceAboutAStuckAgent(t *testing.T) {
	for want, c := range map[string]struct {
		agent   *unix.Ucred
		reader  int
		stopped bool
	}{
		"it does not answer: end it (`kill -KILL 32`), the next one finds its shares":                                    {&unix.Ucred{Pid: 32, Uid: 1000}, 1000, false},
		"it does not answer: end it (`kill -KILL 33`), the next one finds its shares":                                    {&unix.Ucred{Pid: 33}, 0, false},
		"it does not answer: end it, the next one finds its shares":                                                      {nil, 1000, false},
		"it does not answer, and runs in another pid namespace: end it there, the next one finds its shares":             {&unix.Ucred{}, 0, false},
		"it does not answer: ask an administrator to end it (process 35) and start the next one, which finds its shares": {&unix.Ucred{Pid: 35}, 1000, false},
		"it does not answer, because it is stopped by a signal: let it go on (`kill -CONT 36`)":                          {&unix.Ucred{Pid: 36}, 0, true},
		"it does not answer, because it is stopped by a signal: ask an administrator to let it go on (`kill -CONT 37`)":  {&unix.Ucred{Pid: 37}, 1000, true},
	} {
		if got := stuck(c.agent, c.reader, c.stopped).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
