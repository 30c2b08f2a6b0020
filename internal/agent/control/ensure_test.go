package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// The test program plays the divvy that Ensure starts: told by variables, it
// serves, refuses, or dies.
const roleVariable = "CONTROL_TEST_ROLE"

// sharesFile is in the run directory while the agent has shares.
const sharesFile = "shares"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" && len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(play(role))
	}
	os.Exit(m.Run())
}

func play(role string) int {
	ready := os.NewFile(ReadyFD, "ready")
	switch role {
	case "refuse":
		_ = Report(ready, Errorf(CodeRefused, "the GPU is somebody else's"))
		return 1
	case "die":
		return 1
	case "brief":
		_ = Report(ready, nil)
		return 0
	}
	endpoint := Endpoint{Rundir: rundir.Path()}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: endpoint.Socket(), Net: "unix"})
	if err != nil {
		_ = Report(ready, err)
		return 1
	}
	// Ends when its last connection has, as an ephemeral agent does that has no shares.
	shares := filepath.Join(endpoint.Dir(), sharesFile)
	had := false
	server := Server{
		Handlers: map[Method]Handler{MethodHello: Handle(func(context.Context, *Peer, struct{}) (Info, error) {
			return Info{Protocol: ProtocolVersion, PID: os.Getpid(), Ephemeral: true}, nil
		})},
		Log: slog.New(slog.DiscardHandler),
		Connections: func(n int) {
			had = had || n > 0
			if _, err := os.Stat(shares); had && n == 0 && err != nil {
				l.Close()
			}
		},
	}
	_ = Report(ready, nil)
	_ = server.Serve(context.Background(), l)
	return 0
}

func endpoint(t *testing.T, role string) (Endpoint, Starter) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(rundir.Variable, dir)
	t.Setenv(roleVariable, role)
	// Stands in for the installed divvy-enter, which starts what it is given as
	// nobody's child.
	t.Setenv(install.Variable, dir)
	enter := install.Tree(dir).Program("divvy-enter")
	if err := os.MkdirAll(filepath.Dir(enter), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(enter, []byte("#!/bin/sh\nshift 2\n\"$@\" &\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Endpoint{Rundir: dir}, Starter{Executable: self}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Of many programs that need an agent at once, one starts it and all find it.
func TestEnsureStartsOneAgent(t *testing.T) {
	p, s := endpoint(t, "serve")
	ctx := deadline(t)
	// Callers come and go before all are there; the agent must not end between two of them.
	shares := filepath.Join(p.Dir(), sharesFile)
	if err := os.WriteFile(shares, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	pids := map[int]bool{}
	var clients []*Client
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			c, err := Ensure(ctx, p, s)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			clients = append(clients, c)
			pids[c.Info().PID] = true
		})
	}
	wg.Wait()
	if len(pids) != 1 {
		t.Errorf("%d agents: %v", len(pids), pids)
	}
	if err := os.Remove(shares); err != nil {
		t.Error(err)
	}
	for _, c := range clients {
		c.Close()
	}
}

// An agent that ends while somebody connects is replaced, whatever the moment.
func TestEnsureOutlivesAnEndingAgent(t *testing.T) {
	p, s := endpoint(t, "serve")
	ctx := deadline(t)
	for range 15 {
		c, err := Ensure(ctx, p, s)
		if err != nil {
			t.Fatal(err)
		}
		c.Close() // its last connection: the agent ends about now
	}
}

func TestEnsureSaysWhyNot(t *testing.T) {
	for role, want := range map[string]string{"refuse": "somebody else's", "die": "agent.log", "brief": "as soon as it served"} {
		t.Run(role, func(t *testing.T) {
			p, s := endpoint(t, role)
			_, err := Ensure(deadline(t), p, s)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want one with %q", err, want)
			}
			if role == "refuse" && CodeOf(err) != CodeRefused {
				t.Errorf("code %s", CodeOf(err))
			}
		})
	}
	p, _ := endpoint(t, "serve")
	if _, err := Ensure(deadline(t), p, Starter{Executable: "/nonexistent"}); err == nil {
		t.Error("a program that does not exist was started")
	}
}

func TestFindStartsNothing(t *testing.T) {
	p, _ := endpoint(t, "serve")
	if _, err := Find(deadline(t), p); !errors.Is(err, ErrNoAgent) {
		t.Errorf("%v, want ErrNoAgent", err)
	}
	// A socket that a killed agent left behind is no agent either.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.Socket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := Find(deadline(t), p); !errors.Is(err, ErrNoAgent) {
		t.Errorf("left socket: %v, want ErrNoAgent", err)
	}
}

// Shares that a killed agent left are looked after again by whoever asks next.
func TestReachReplacesAKilledAgent(t *testing.T) {
	p, s := endpoint(t, "serve")
	if _, err := Reach(deadline(t), p, s); !errors.Is(err, ErrNoAgent) {
		t.Fatalf("nothing is left: %v, want ErrNoAgent", err)
	}
	if err := os.WriteFile(p.Checkpoint(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Reach(deadline(t), p, s)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// marked is an endpoint at which a system agent is configured.
func marked(t *testing.T) (Endpoint, Starter) {
	t.Helper()
	p, s := endpoint(t, "serve")
	if err := os.WriteFile(p.Checkpoint(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rundir.WriteMark(p.Dir(), rundir.Mark{}); err != nil {
		t.Fatal(err)
	}
	return p, s
}

// While a system agent is configured nobody starts another, and who needs one waits.
func TestNobodyReplacesASystemAgent(t *testing.T) {
	p, s := marked(t)
	var away *AwayError
	if _, err := Reach(deadline(t), p, s); !errors.As(err, &away) {
		t.Errorf("reach: %v, want AwayError", err)
	}
	var said []string
	s.AwayTime, s.Say = time.Millisecond, func(text string) { said = append(said, text) }
	if _, err := Ensure(deadline(t), p, s); !errors.As(err, &away) || !strings.Contains(err.Error(), "system-agent") {
		t.Errorf("ensure: %v, want AwayError that names the mark", err)
	}
	if len(said) != 1 || !strings.Contains(said[0], "waiting") {
		t.Errorf("told %q", said)
	}
	if _, err := os.Stat(p.Socket()); err == nil {
		t.Error("an agent was started")
	}
}

func TestEnsureAwaitsTheSystemAgent(t *testing.T) {
	p, s := marked(t)
	s.AwayTime = -1
	told := make(chan struct{})
	s.Say = func(string) { close(told) }
	done := make(chan error, 1)
	go func() {
		c, err := Ensure(deadline(t), p, s)
		if err == nil {
			err = c.Close()
		}
		done <- err
	}()
	<-told
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.Socket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	server := Server{
		Handlers: map[Method]Handler{MethodHello: Handle(func(context.Context, *Peer, struct{}) (Info, error) {
			return Info{Protocol: ProtocolVersion}, nil
		})},
		Log: slog.New(slog.DiscardHandler), Connections: func(int) {},
	}
	go func() { _ = server.Serve(t.Context(), l) }()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// When the mark goes while somebody waits, they are told and may start an own agent.
func TestAwaitEndsWithTheMark(t *testing.T) {
	p, s := marked(t)
	s.AwayTime, s.Say = -1, func(string) {
		if err := rundir.RemoveMark(p.Dir()); err != nil {
			t.Error(err)
		}
	}
	if _, err := Ensure(deadline(t), p, s); !errors.Is(err, ErrNoAgent) {
		t.Errorf("%v, want ErrNoAgent", err)
	}
}

func TestAgentEnvironment(t *testing.T) {
	t.Setenv(rundir.Variable, "")
	env := []string{"A=1", "CUDA_VISIBLE_DEVICES=1", "LD_PRELOAD=/x", "LD_LIBRARY_PATH=/l", rundir.Variable + "=/old"}
	if got := fmt.Sprint(agentEnvironment(env, Endpoint{Rundir: "/r"})); got != "[A=1 LD_LIBRARY_PATH=/l]" {
		t.Error(got)
	}
	t.Setenv(rundir.Variable, "/r")
	if got := agentEnvironment(nil, Endpoint{Rundir: "/r"}); len(got) != 1 || got[0] != rundir.Variable+"=/r" {
		t.Error(got)
	}
}

func TestEndpoint(t *testing.T) {
	real, simulated := Endpoint{Rundir: "/r"}, Endpoint{Rundir: "/r", Simgpu: "/r/simgpu/lab"}
	if real.Socket() != "/r/agent.sock" || simulated.Socket() != filepath.Join("/r/simgpu/lab", "agent.sock") {
		t.Error(real.Socket(), simulated.Socket())
	}
}

// What is advised while the system agent is away fits its state and its reader.
func TestAdviceWhileAway(t *testing.T) {
	self, err := process.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	seen := time.Date(2025, 12, 31, 23, 59, 0, 0, time.UTC)
	gone := process.ID{PID: 1, Start: 1 << 60}
	for _, c := range []struct {
		mark  *rundir.Mark
		says  string
		never string
	}{
		{nil, "has not run since this machine started", "since about"},
		{&rundir.Mark{Agent: gone, Seen: seen}, "since about 23:59:00 on 31 December 2025", "wait for it"},
		{&rundir.Mark{Agent: gone, Seen: seen, Simgpu: "/run/divvy/simgpu/a800x8"}, "`divvy agent --simgpu a800x8`", "wait for it"},
		{&rundir.Mark{Agent: gone, Seen: seen, Simgpu: "/run/divvy/simgpu/small", SwapMemory: 8 << 30}, "`divvy agent --simgpu small --swap-memory 8Gi`", "wait for it"},
		{&rundir.Mark{Agent: gone, Seen: seen, MachinesOnly: true}, "(`divvy agent --vm-only`", "wait for it"},
		{&rundir.Mark{Agent: self, Seen: seen}, "runs and does not serve yet (/by says that there is one): wait for it", "start it"},
	} {
		if said := (&AwayError{rundir.Configured{By: "/by", Mark: c.mark}}).Error(); !strings.Contains(said, c.says) || strings.Contains(said, c.never) {
			t.Errorf("%+v: %q does not say %q, or says %q", c.mark, said, c.says, c.never)
		}
	}
	by := &AwayError{rundir.Configured{By: "/by", Mark: &rundir.Mark{Agent: gone, Simgpu: "/run/divvy/simgpu/a800x8"}, Unit: true}}
	if said := by.Remedy(); !strings.Contains(said, "start it (`systemctl start divvy-agent`)") {
		t.Errorf("of an agent that systemd starts is said %q", said)
	}
	by.System.Mark = &rundir.Mark{Agent: gone, MachinesOnly: true}
	if said := by.Remedy(); !strings.Contains(said, "(`systemctl start divvy-agent` with `DIVVY_AGENT_FLAGS=\"--vm-only\"` in /etc/default/divvy-agent)") {
		t.Errorf("of an agent for virtual machines that systemd starts is said %q", said)
	}
}

// A run directory that is a plain file is named, with what to do.
func TestRunDirectoryIsAFile(t *testing.T) {
	e, s := endpoint(t, "serve")
	e.Rundir = filepath.Join(e.Rundir, "file")
	if err := os.WriteFile(e.Rundir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, connect := range []func() (*Client, error){
		func() (*Client, error) { return Find(t.Context(), e) },
		func() (*Client, error) { return Ensure(t.Context(), e, s) },
	} {
		if _, err := connect(); err == nil || !strings.HasSuffix(err.Error(), e.Rundir+" is not a directory: remove it") {
			t.Errorf("%v", err)
		}
	}
}

// Of a lock on a read-only file system it is said what to do.
func TestLockOnAReadOnlyFileSystem(t *testing.T) {
	fault := &os.PathError{Op: "open", Path: "/run/divvy/start.lock", Err: syscall.EROFS}
	if err := lockFault(fault.Path, fault); !strings.HasSuffix(err.Error(), "read-only file system: mount /run/divvy writable") || !errors.Is(err, syscall.EROFS) {
		t.Error(err)
	}
	if err := lockFault(fault.Path, syscall.EACCES); strings.Contains(err.Error(), "mount") {
		t.Error(err)
	}
}

// Who is kept out of their run directory is told what is wrong with it, and nobody of the system agent's.
func TestBlockedRunDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]bool{dir: true, rundir.System: false} {
		if err := (Endpoint{Rundir: at}).blocked(syscall.EACCES); errors.Is(err, rundir.ErrOwner) != want {
			t.Errorf("of %s it says: %v", at, err)
		}
	}
}
