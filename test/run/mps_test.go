package run

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// client compiles testdata/client.c.
func (h *host) client(flags ...string) string {
	h.t.Helper()
	program := filepath.Join(h.t.TempDir(), "client")
	args := append([]string{"-o", program, "testdata/client.c"}, flags...)
	if out, err := exec.Command("cc", append(args, "-ldl", "-lpthread")...).CombinedOutput(); err != nil {
		h.t.Fatalf("cc: %v: %s", err, out)
	}
	return program
}

// said is what a client says of itself.
type said struct{ init, devices, mib, pid int }

func (h *host) said(s *holder) (c said) {
	h.t.Helper()
	if _, err := fmt.Sscanf(s.first, "%d %d %d %d", &c.init, &c.devices, &c.mib, &c.pid); err != nil {
		h.t.Fatalf("%q: %v, %s", s.first, err, s.said)
	}
	return c
}

// seen is what the simulated driver says of a process's first GPU; ok is false if it has no context.
func (h *host) seen(pid int) (p simgpu.ProcessReport, gpu simgpu.ProcessGPU, ok bool) {
	h.t.Helper()
	for _, p = range h.report().Processes {
		if p.PID == pid && len(p.GPUs) > 0 && p.GPUs[0].Contexts > 0 {
			return p, p.GPUs[0], true
		}
	}
	return p, gpu, false
}

// percent of the SMs are the tried share's.
const percent = 30

// limited fails the test unless the client has its share and no more, by the simulated driver's figures, or nothing.
// multiprocessors are the GPU's.
func (h *host) limited(t *testing.T, s *holder, multiprocessors int) (c said) {
	t.Helper()
	c = h.said(s)
	p, gpu, uses := h.seen(c.pid)
	if !uses && c.mib == 0 && c.init != 0 {
		return c // it was refused
	}
	most := (multiprocessors*percent + 99) / 100
	if !uses || p.MPSServer == 0 || gpu.Multiprocessors != most || gpu.MemoryLimit != 2*gib || gpu.Used > 2*gib || c.devices != 1 {
		t.Errorf("it said %+v, and has %+v of server %d, want %d multiprocessors", c, gpu, p.MPSServer, most)
	}
	return c
}

// mpsHost has two GPUs whose daemons serve shares with no ceilings, so that the daemons limit nobody else to less.
func mpsHost(t *testing.T) (h *host, pipes []string, multiprocessors int) {
	t.Helper()
	h = newHostOf(t, "h100x8").namespaces()
	for gpu := range 2 {
		loose := h.hold([]string{"--backend", "mps", "--gpu", strconv.Itoa(gpu), "--memory", "20Gi"}, h.client(), "plain")
		p, used, ok := h.seen(h.said(loose).pid)
		if !ok || p.MPSServer == 0 {
			t.Fatalf("a share without cores: %s", loose.first)
		}
		multiprocessors = used.Multiprocessors
	}
	pipes, err := filepath.Glob(filepath.Join(h.instance, "mps", "*", "pipe"))
	if err != nil || len(pipes) != 2 {
		t.Fatalf("pipe directories %q, %v", pipes, err)
	}
	return h, pipes, multiprocessors
}

// tight are the flags of the share that is tried.
var tight = []string{"--backend", "mps", "--gpu", "0", "--cores", strconv.Itoa(percent), "--memory", "2Gi"}

// Whatever a program makes of its variables, and whenever, its share under MPS stays as it is.
func TestVariablesDoNotLoosenMPS(t *testing.T) {
	h, pipes, whole := mpsHost(t)
	client := h.client()
	const percentage, memory, pipe = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_PIPE_DIRECTORY"
	ways := map[string][]string{
		"as it is":          {client, "plain"},
		"no environment":    {"env", "-i", client, "plain"},
		"cleared":           {"env", "-u", percentage, "-u", memory, "-u", pipe, client, "plain"},
		"emptied":           {"env", percentage + "=", memory + "=", pipe + "=", client, "plain"},
		"raised":            {"env", percentage + "=100", memory + "=0=60G", client, "plain"},
		"nonsense":          {"env", percentage + "=-1", memory + "=7=1G,x", client, "plain"},
		"raised inside":     {client, "raise"},
		"left inside":       {client, "leave"},
		"set after start":   {client, "after"},
		"set meanwhile":     {client, "thread"},
		"another daemon":    {"env", pipe + "=" + pipes[1], client, "plain"},
		"nobody's daemon":   {"env", pipe + "=/nowhere", client, "plain"},
		"both GPUs":         {"env", "CUDA_VISIBLE_DEVICES=0,1", memory + "=0=60G,1=60G", client, "plain"},
		"the other GPU":     {"env", "CUDA_VISIBLE_DEVICES=1", client, "plain"},
		"fork":              {client, "fork"},
		"exec":              {client, "exec", "libcuda.so.1"},
		"a static program":  {h.client("-static"), "raise"},
		"through its shell": {"sh", "-c", "export " + percentage + "=100; exec env -i " + client + " raise"},
	}
	for name, command := range ways {
		t.Run(name, func(t *testing.T) {
			s := h.hold(tight, command...)
			defer s.end()
			c := h.limited(t, s, whole)
			if refusable := name == "set meanwhile" || name == "the other GPU"; c.init != 0 && !refusable {
				t.Errorf("an honest start was refused: %+v, %s", c, s.said)
			}
		})
	}
}

// daemonOf is the control daemon's process of a pipe directory.
func (h *host) daemonOf(pipe string) int {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(pipe, "nvidia-cuda-mps-control.pid"))
	pid, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || parseErr != nil {
		h.t.Fatalf("the daemon's process: %v, %v", err, parseErr)
	}
	return pid
}

// A program in a share whose daemon is gone, replaced or silent gets nothing, or its share once it is served again.
func TestWithoutItsDaemonNothingIsHad(t *testing.T) {
	aside := func(own string) error { return os.Rename(own, own+".kept") }
	for name, spoil := range map[string]func(pid int, own, other string) error{
		"stopped":        func(pid int, _, _ string) error { return syscall.Kill(pid, syscall.SIGSTOP) },
		"killed":         func(pid int, _, _ string) error { return syscall.Kill(pid, syscall.SIGKILL) },
		"directory away": func(_ int, own, _ string) error { return aside(own) },
		"a link to the other GPU's": func(_ int, own, other string) error {
			return errors.Join(aside(own), os.Symlink(other, own))
		},
		"an empty directory": func(_ int, own, _ string) error { return errors.Join(aside(own), os.Mkdir(own, 0o755)) },
	} {
		t.Run(name, func(t *testing.T) {
			h, pipes, whole := mpsHost(t)
			own, other := pipes[0], pipes[1]
			if !strings.HasPrefix(h.list().GPUs[0].UUID, filepath.Base(filepath.Dir(own))) {
				own, other = other, own
			}
			pid := h.daemonOf(own)
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // it may be gone
			file := filepath.Join(t.TempDir(), "go")
			s := h.hold(tight, h.client(), "later", file)
			defer s.end()
			if err := errors.Join(spoil(pid, own, other), os.WriteFile(file, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			h.eventually("the program is answered", func() bool {
				text, err := os.ReadFile(file + ".said")
				s.first = string(text)
				return err == nil && strings.HasSuffix(s.first, "\n")
			})
			t.Logf("cuInit answered %d", h.limited(t, s, whole).init)
		})
	}
}

// A program that brings a driver library of its own is reported: without the right to set modes, an agent cannot refuse it.
func TestAnOwnDriverBesideMPSIsNoticed(t *testing.T) {
	h, _, _ := mpsHost(t)
	own := filepath.Join(t.TempDir(), "libown.so")
	library, err := os.ReadFile(filepath.Join(h.instance, "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, library, 0o700); err != nil {
		t.Fatal(err)
	}
	s := h.hold(tight, "env", "DIVVY_SIMGPU="+h.instance, h.client(), "leave", own)
	began, c := time.Now(), h.said(s)
	if p, _, ok := h.seen(c.pid); !ok || p.MPSServer != 0 {
		t.Fatalf("it did not get past MPS: %+v, %+v", c, p)
	}
	h.eventually("the process is reported", func() bool {
		for _, o := range h.list().Outside {
			if o.PID == c.pid {
				return true
			}
		}
		return false
	})
	t.Logf("reported after %s", time.Since(began))
}
