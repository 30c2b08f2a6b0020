package mps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
)

// supervise starts a daemon with a supervisor, which the test ends, and returns what it tells.
func supervise(t *testing.T, program string) (*Supervisor, chan Event) {
	t.Helper()
	d, _ := start(t, program)
	events := make(chan Event, 256)
	s := &Supervisor{
		Daemon: d, Now: time.Now, Tell: func(e Event) { events <- e }, Users: func() []int { return nil },
		Admitted: func() ([]int, bool) { return nil, true },
		Limits:   func() Limits { return Limits{Percentage: 30, Memory: 3 << 30} },
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s, events
}

// others are what a program of somebody else's gets that gives the daemon commands.
func others(t *testing.T, d Daemon, commands string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.Program)
	cmd.Env = append(cmd.Environ(), "CUDA_MPS_PIPE_DIRECTORY="+d.Dirs.Pipe, "CUDA_MPS_LOG_DIRECTORY="+d.Dirs.Log)
	cmd.Stdin = strings.NewReader(commands)
	out, err := cmd.Output()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return string(out)
}

// While a daemon is supervised nobody else commands it, not even its own user.
func TestRealDaemonObeysOne(t *testing.T) {
	for _, program := range versions(t) {
		t.Run(filepath.Base(filepath.Dir(program)), func(t *testing.T) {
			s, _ := supervise(t, program)
			id := s.Process()
			for range 5 {
				if said := others(t, s.Daemon, "set_default_active_thread_percentage 100\nquit\n"); said != "" {
					t.Errorf("it answers %q", said)
				}
			}
			if p, err := s.Daemon.Percentage(t.Context()); err != nil || p != 30 || !id.Alive() {
				t.Errorf("it has %v percent, %v; alive: %v", p, err, id.Alive())
			}
		})
	}
}

// A connection that says nothing keeps a daemon from all others until it is cut, however many there are.
func TestRealDaemonIsUnblocked(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("Yama may keep other users than root from looking at a daemon that is no child")
	}
	for _, program := range versions(t) {
		t.Run(filepath.Base(filepath.Dir(program)), func(t *testing.T) {
			s, events := supervise(t, program)
			silent := exec.Command("/proc/self/exe")
			silent.Env = []string{silentVariable + "=" + filepath.Join(s.Daemon.Dirs.Pipe, controlSocket)}
			out, err := silent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := silent.Start(); err != nil {
				t.Fatal(err)
			}
			id, err := process.Find(silent.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = silent.Process.Kill()
				_ = silent.Wait()
			})
			if _, err := out.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			// Who connects is served, although others said nothing before.
			conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(s.Daemon.Dirs.Pipe, controlSocket), Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if n, err := conn.Read(make([]byte, 100)); n == 0 {
				t.Fatalf("not served: %v", err)
			}
			if e := <-events; e.Kind != EventHeld || e.By != id {
				t.Errorf("told %+v, want process %v", e, id)
			}
			_ = conn.Close()
			if p, err := s.Daemon.Percentage(t.Context()); err != nil || p != 30 {
				t.Errorf("it has %v percent, %v", p, err)
			}
		})
	}
}

// A program that gives commands before the supervisor can is cut off.
func TestRealDaemonIsTakenBack(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("Yama may keep other users than root from looking at a daemon that is no child")
	}
	for _, program := range versions(t) {
		t.Run(filepath.Base(filepath.Dir(program)), func(t *testing.T) {
			d, _ := start(t, program)
			squat := exec.Command("sh", "-c", fmt.Sprintf("exec 3<>%s/fifo; echo get_server_list >&3; %s <&3 >/dev/null 2>&1 &", filepath.Dir(d.Dirs.Pipe), d.Program))
			squat.Env = append(squat.Environ(), "CUDA_MPS_PIPE_DIRECTORY="+d.Dirs.Pipe, "CUDA_MPS_LOG_DIRECTORY="+d.Dirs.Log)
			if out, err := exec.Command("mkfifo", filepath.Join(filepath.Dir(d.Dirs.Pipe), "fifo")).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if err := squat.Run(); err != nil {
				t.Fatal(err)
			}
			log := filepath.Join(d.Dirs.Log, "control.log")
			for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
				text, err := os.ReadFile(log)
				if err == nil && strings.Contains(string(text), "Cmd:get_server_list") {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("nobody gives commands: %s, %v", text, err)
				}
			}
			events := make(chan Event, 16)
			s := &Supervisor{
				Daemon: d, Now: time.Now, Tell: func(e Event) { events <- e }, Users: func() []int { return nil },
				Admitted: func() ([]int, bool) { return nil, true },
				Limits:   func() Limits { return Limits{Percentage: 30, Memory: 3 << 30} },
			}
			if err := s.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			e := <-events
			if e.Kind != EventHeld || e.By == (process.ID{}) {
				t.Fatalf("told %+v", e)
			}
			ended, stop, err := e.By.Watch()
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			if err := e.By.Signal(syscall.SIGKILL); err != nil && e.By.Alive() {
				t.Fatal(err)
			}
			<-ended // NVIDIA's program ends by itself
		})
	}
}

// Of many who want the limits set at once the first does it for all, and none sets what is older.
func TestSettleOnce(t *testing.T) {
	dir := t.TempDir()
	d := scripted(t, `while read -r line; do echo "$line" >>`+dir+`/asked
case "$line" in
divvy-next) echo "Unknown command \"divvy-next\"";;
set_default_active*) echo "${line##* }" >`+dir+`/percentage;;
get_default_active*) cat `+dir+`/percentage;;
get_default_device*) echo 3G;;
esac; done`)
	var mu sync.Mutex
	wanted := 0.0
	s := &Supervisor{Daemon: d, Now: time.Now, Users: func() []int { return nil }, Limits: func() Limits {
		mu.Lock()
		defer mu.Unlock()
		return Limits{Percentage: wanted, Memory: 3 << 30}
	}}
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			mu.Lock()
			wanted++
			mu.Unlock()
			if err := s.Settle(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	text, err := os.ReadFile(filepath.Join(dir, "percentage"))
	if err != nil || strings.TrimSpace(string(text)) != "20" {
		t.Errorf("it has %s, %v, want what was wanted last", text, err)
	}
	before, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil || len(after) != len(before) {
		t.Errorf("asked for what it has: %s, %v", after[len(before):], err)
	}
}

func TestAnswersOfASession(t *testing.T) {
	const mark = `Unknown command "` + next + `"`
	commands := []string{"a", "b", "c"}
	replies, err := answers(commands, []string{"1", "2", mark, mark, "3"})
	if err != nil || len(replies) != 3 || strings.Join(replies[0].lines, ",") != "1,2" || len(replies[1].lines) != 0 || replies[2].lines[0] != "3" {
		t.Errorf("%+v, %v", replies, err)
	}
	for _, bad := range [][]string{{"1", mark}, {mark, mark, mark}, nil} {
		if replies, err := answers(commands, bad); !errors.Is(err, ErrAnswer) {
			t.Errorf("%q: %+v, %v", bad, replies, err)
		}
	}
}
