package run

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/escape"
)

// client compiles a client.
func (h *host) client(flags ...string) string {
	h.t.Helper()
	program, err := escape.Client(h.t.TempDir(), flags...)
	if err != nil {
		h.t.Fatal(err)
	}
	return program
}

func (h *host) said(s *holder) escape.Said {
	h.t.Helper()
	c, err := escape.Read(s.first)
	if err != nil {
		h.t.Fatalf("%v, %s", err, s.said)
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
func (h *host) limited(t *testing.T, s *holder, multiprocessors int) (c escape.Said) {
	t.Helper()
	c = h.said(s)
	p, gpu, uses := h.seen(c.PID)
	if !uses && c.MiB == 0 && c.Init != 0 {
		return c // it was refused
	}
	most := (multiprocessors*percent + 99) / 100
	if !uses || p.MPSServer == 0 || gpu.Multiprocessors != most || gpu.MemoryLimit != 2*gib || gpu.Used > 2*gib || c.Devices != 1 {
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
		p, used, ok := h.seen(h.said(loose).PID)
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
	for name, command := range escape.Ways(h.client(), h.client("-static"), pipes[1]) {
		t.Run(name, func(t *testing.T) {
			s := h.hold(tight, command...)
			defer s.end()
			c := h.limited(t, s, whole)
			if c.Init != 0 && !slices.Contains(escape.Refusable, name) {
				t.Errorf("an honest start was refused: %+v, %s", c, s.said)
			}
		})
	}
}

// A program in a share whose daemon is gone, replaced or silent gets nothing, or its share once it is served again.
func TestWithoutItsDaemonNothingIsHad(t *testing.T) {
	for name, spoil := range escape.Spoils() {
		t.Run(name, func(t *testing.T) {
			h, pipes, whole := mpsHost(t)
			own, other := pipes[0], pipes[1]
			if !strings.HasPrefix(h.list().GPUs[0].UUID, filepath.Base(filepath.Dir(own))) {
				own, other = other, own
			}
			pid, err := escape.Daemon(own)
			if err != nil {
				t.Fatal(err)
			}
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
			t.Logf("cuInit answered %d", h.limited(t, s, whole).Init)
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
	if p, _, ok := h.seen(c.PID); !ok || p.MPSServer != 0 {
		t.Fatalf("it did not get past MPS: %+v, %+v", c, p)
	}
	h.eventually("the process is reported", func() bool {
		for _, o := range h.list().Outside {
			if o.PID == c.PID {
				return true
			}
		}
		return false
	})
	t.Logf("reported after %s", time.Since(began))
}
