package run

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// newSwapHost is a host with a GPU of 2 GiB that moves pages, whose swap shares have 6 GiB of host memory.
func newSwapHost(t *testing.T) *host {
	t.Helper()
	t.Parallel()
	model, err := os.ReadFile(filepath.Join(installtest.Root(t), "internal/simgpu/machines/p100-16g.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	small := filepath.Join(t.TempDir(), "p100-2g.yaml")
	text := strings.Replace(strings.Replace(string(model), "memory: 16Gi", "memory: 2Gi", 1), "name: p100-16g", "name: p100-2g", 1)
	if err := os.WriteFile(small, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h := startHost(t, small)
	h.serveSwap()
	return h
}

// serveSwap starts an agent, which ends with the test, or earlier.
func (h *host) serveSwap() *exec.Cmd {
	h.t.Helper()
	agent := h.command(filepath.Join(string(h.tree), "bin", "divvy"), "agent", "--simgpu-dir", h.instance, "--swap-memory", "6Gi")
	if err := agent.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = agent.Process.Signal(syscall.SIGTERM)
		_ = agent.Wait()
	})
	h.eventually("the agent serves", func() bool {
		return strings.Contains(h.divvy("ls", "-o", "json", "--simgpu", "m").out, fmt.Sprintf("\"pid\": %d,", agent.Process.Pid))
	})
	return agent
}

// sweeper is a program that goes through memory again and again in a swap share, and compares it in the end.
type sweeper struct {
	*holder
	steps chan struct{} // closed when it has gone through its memory once
	rest  chan string   // the last line that it printed, when it has ended
}

// sweep starts a program in a swap share of 1.25 GiB, whose 768 MiB do not fit beside those of another. It goes on until
// [sweeper.compared], or until the test ends.
func (h *host) sweep(name, script string) sweeper {
	h.t.Helper()
	if script == "" {
		script = `exec "$0" sweep "$@"`
	}
	args := []string{"sh", "-c", script, h.bench(), "--bytes", "768Mi", "--pieces", "6", "--count", "0", "--seconds", "3600", "--steps", "10", "--ns", "10000000"}
	cmd := h.command(filepath.Join(string(h.tree), "bin", "divvy"), append([]string{"run", "--simgpu", "m", "--layer", "env", "--swap", "--memory", "1280Mi", "--kept", "512Mi", "--name", name, "--"}, args...)...)
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	s := sweeper{&holder{cmd: cmd}, make(chan struct{}), make(chan string, 1)}
	go func() {
		_ = cmd.Wait()
		_ = write.Close()
	}()
	go s.follow(read)
	h.t.Cleanup(func() { // all of its processes
		_ = h.command(filepath.Join(string(h.tree), "bin", "divvy"), "stop", "--simgpu", "m", "--grace", "0s", name).Run()
	})
	return s
}

// follow reads what the program prints until it has ended.
func (s sweeper) follow(output io.Reader) {
	last, once := "", sync.OnceFunc(func() { close(s.steps) })
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if last = lines.Text(); strings.HasPrefix(last, `{"step"`) {
			once()
		}
	}
	s.rest <- last
	once()
}

// compared ends the program once it has gone through its memory, and fails unless it found that as it left it.
func (s sweeper) compared(t *testing.T) {
	t.Helper()
	<-s.steps
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	last := <-s.rest
	var said struct {
		Result string `json:"result"`
		Equal  bool   `json:"equal"`
		Steps  int    `json:"steps"`
	}
	if err := json.Unmarshal([]byte(last), &said); err != nil || said.Result != "CUDA_SUCCESS" || !said.Equal || said.Steps == 0 {
		t.Errorf("%v: %.300s", err, last)
	}
}

// turns is what the agent tells of the turns of a share, which has some.
func (h *host) turns(name string) *control.Turns {
	h.t.Helper()
	var found *control.Turns
	h.eventually("the agent knows of the turns of "+name, func() bool {
		if t, ok := h.tenant(name); ok {
			found = t.Shares[0].Turns
		}
		return found != nil
	})
	return found
}

// Two programs that together have more memory than the GPU take turns: each finds its memory as it left it, and what the
// agent tells of their moves the simulated driver saw, beside what page faults moved.
func TestTurns(t *testing.T) {
	h := newSwapHost(t)
	const tries = 3 // a program that has no processor for seconds does not end with its turn, and is told of
	for try := 1; h.takesTurns(t); try++ {
		if try == tries {
			t.Fatal("again and again a program does not end with its turn")
		}
	}
}

// takesTurns has two programs take turns, and reports whether one of them was told to be late.
func (h *host) takesTurns(t *testing.T) (late bool) {
	t.Helper()
	since := time.Now()
	a, b := h.sweep("a", ""), h.sweep("b", "")
	h.eventually("both came and left", func() bool {
		a, b := h.turns("a"), h.turns("b")
		return a.Turns >= 3 && b.Turns >= 3 && a.MovedIn > 0 && b.MovedIn > 0 && a.MovedOut > 0 && b.MovedOut > 0
	})
	before := h.list()
	if len(before.Tenants) != 2 {
		t.Fatalf("%d tenants", len(before.Tenants))
	}
	moves := map[string]simgpu.Moves{}
	for _, tenant := range h.report().Tenants {
		moves[tenant.Tenant] = tenant.GPUs[0].Moves
	}
	for _, one := range before.Tenants {
		told, seen := one.Shares[0].Turns, moves[one.ID]
		t.Logf("%s: %d bytes came and %d left, of which it tells %d and %d", one.Name, seen.BytesIn, seen.BytesOut, told.MovedIn, told.MovedOut)
		if told.MovedIn > seen.BytesIn || told.MovedOut > seen.BytesOut {
			t.Errorf("%s tells otherwise", one.Name)
		}
	}
	for _, e := range h.list().Events {
		if e.Time.Before(since) {
			continue
		}
		if late = late || e.Kind == control.EventTurn; late {
			t.Logf("%s of %s: %s", e.Kind, e.Tenant, e.Text)
		} else if e.Kind == control.EventMisuse || e.Kind == control.EventThrashing {
			t.Errorf("%s of %s: %s", e.Kind, e.Tenant, e.Text)
		}
	}
	a.compared(t)
	b.compared(t)
	h.eventually("both have ended", func() bool { return len(h.list().Tenants) == 0 })
	return late
}

// Without an agent both programs go on, by page faults, and the next agent has them take turns again.
func TestTurnsOutliveTheAgent(t *testing.T) {
	h := newSwapHost(t)
	a, b := h.sweep("a", ""), h.sweep("b", "")
	h.eventually("both had turns", func() bool { return h.turns("a").Turns >= 1 && h.turns("b").Turns >= 1 })
	before := h.list().Info.PID
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.eventually("both work", func() bool {
		first := h.truth()
		h.passed(200 * time.Millisecond) // less than a turn, which is 2 s at least
		last := h.truth()
		busy := 0
		for pid, own := range last.Own {
			if own > first.Own[pid] {
				busy++
			}
		}
		return busy == 2
	})
	h.serveSwap()
	h.eventually("both had turns again", func() bool { return h.turns("a").Turns >= 1 && h.turns("b").Turns >= 1 })
	a.compared(t)
	b.compared(t)
}

// Who uses the GPU past the library while it has no turn is told of.
func TestUseWithoutATurnIsToldOf(t *testing.T) {
	h := newSwapHost(t)
	h.sweep("honest", "")
	script := fmt.Sprintf(`LD_LIBRARY_PATH=%s "$0" load --seconds 3600 --ns 5000000 & exec "$0" sweep "$@"`, h.instance)
	h.sweep("liar", script)
	h.eventually("it is told of", func() bool {
		for _, e := range h.list().Events {
			if e.Kind != control.EventMisuse {
				continue
			}
			if e.Tenant != "liar" {
				t.Fatalf("%s is accused: %s", e.Tenant, e.Text)
			}
			if strings.Contains(e.Text, "no turn") {
				t.Log(e.Text)
				return true
			}
		}
		return false
	})
}
