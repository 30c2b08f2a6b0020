package simgpu

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// measured is how much multiprocessor time the test looks at, in one of so many tries.
const (
	measured  = 300 * time.Millisecond
	mostTries = 10
)

// control is the daemon of MPS of an instance.
type control struct {
	instance *Instance
	env      []string
}

// startControl starts the daemon as its manual has it; the test ends it.
func startControl(t *testing.T, instance *Instance) control {
	t.Helper()
	// The path of a socket has 107 bytes at most.
	dir, err := os.MkdirTemp("", "mps")
	if err != nil {
		t.Fatal(err)
	}
	c := control{instance, append(os.Environ(), "LD_LIBRARY_PATH="+instance.Dir,
		"CUDA_MPS_PIPE_DIRECTORY="+filepath.Join(dir, "pipe"), "CUDA_MPS_LOG_DIRECTORY="+filepath.Join(dir, "log"))}
	c.say(t.Context(), t, "", "-d")
	t.Cleanup(func() {
		c.say(context.WithoutCancel(t.Context()), t, "quit -t 0\n")
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return c
}

// say gives the daemon commands and returns its answers.
func (c control) say(ctx context.Context, t *testing.T, commands string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.instance.Dir, "nvidia-cuda-mps-control"), args...)
	cmd.Env, cmd.Stdin = c.env, strings.NewReader(commands)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v", commands, err)
	}
	return string(out)
}

// compute starts a program that fills the GPU with kernels; the test ends it.
func (c control) compute(t *testing.T, percentage string) int {
	t.Helper()
	program := filepath.Join(string(installtest.Tree(t)), "bin", "gpubench")
	cmd := exec.CommandContext(t.Context(), program, "load", "--ns", "1000000", "--grid", "1000", "--seconds", "120")
	cmd.Env = append(c.env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="+percentage)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// smTimes are the multiprocessor times of the processes on GPU 0, in nanoseconds.
func smTimes(r *Report) map[int]uint64 {
	times := map[int]uint64{}
	for _, p := range r.Processes {
		for _, g := range p.GPUs {
			if g.Index == 0 {
				times[p.PID] = g.SMNs
			}
		}
	}
	return times
}

func TestMPSClientsHaveTheirPercentagesOfTheGPU(t *testing.T) {
	store := builtStore(t)
	instance := start(t, store, "lab", load(t, "t4", "driver.version=550.90.07"), "")
	c := startControl(t, instance)
	small, large := c.compute(t, "30"), c.compute(t, "70")
	// await looks until both have had so much more than at first.
	await := func(first map[int]uint64, more time.Duration) map[int]uint64 {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			now := smTimes(report(t, store, instance))
			if now[small] > first[small] && now[large] > first[large] &&
				now[small]+now[large]-first[small]-first[large] >= uint64(more) {
				return now
			}
			select {
			case <-ctx.Done():
				t.Fatalf("the clients do not compute: %v", now)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	begin := await(nil, 0)
	// A client that gets no processor gives the GPU nothing to do meanwhile, but not each time.
	for tries := 1; ; tries++ {
		end := await(begin, measured)
		a, b := end[small]-begin[small], end[large]-begin[large]
		part := 100 * float64(a) / float64(a+b)
		if part >= 28 && part <= 32 {
			break
		}
		if tries == mostTries {
			t.Fatalf("30 and 70 percent came to %.1f percent (%d and %d ns)", part, a, b)
		}
		begin = end
	}
	server := strings.TrimSpace(c.say(t.Context(), t, "get_server_list\n"))
	if status := c.say(t.Context(), t, "get_server_status "+server+"\n"); status != "ACTIVE\n" {
		t.Errorf("server %q is %q", server, status)
	}
	for _, p := range report(t, store, instance).Processes {
		if want := map[int]int{small: 12, large: 28}[p.PID]; want != 0 && p.GPUs[0].Multiprocessors != want {
			t.Errorf("process %d may occupy %d of 40 multiprocessors, want %d", p.PID, p.GPUs[0].Multiprocessors, want)
		}
		if p.MPSServer == 0 || (p.PID == p.MPSServer) != (p.Command == "nvidia-cuda-mps") {
			t.Errorf("process %d, %s, has server %d", p.PID, p.Command, p.MPSServer)
		}
	}
}
