package run

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/install"
)

// Results of the driver that these tests expect.
const (
	outOfMemory       = "2"
	notInitialized    = "3"
	deviceUnavailable = "46"
	notSupported      = "801"
)

// steps is a share of backend remote whose program, testdata/steps.c, does one step after another.
type steps struct {
	h     *host
	cmd   *exec.Cmd
	input io.WriteCloser
	lines *bufio.Reader
	said  *bytes.Buffer
}

// steps starts such a share.
func (h *host) steps(name string) *steps {
	h.t.Helper()
	return h.stepsWith(name)
}

// stepsWith starts such a share with open files, which it closes in this process.
func (h *host) stepsWith(name string, files ...*os.File) *steps {
	h.t.Helper()
	return h.stepsOf([]string{"--simgpu", "m", "--backend", "remote", "--memory", "8Gi", "--name", name}, files...)
}

// stepsOf is stepsWith with the flags of `divvy run`.
func (h *host) stepsOf(flags []string, files ...*os.File) *steps {
	h.t.Helper()
	program := filepath.Join(h.t.TempDir(), "steps")
	if out, err := exec.Command("cc", "-o", program, "testdata/steps.c", "-ldl").CombinedOutput(); err != nil {
		h.t.Fatalf("cc: %v: %s", err, out)
	}
	args := append(append([]string{"run"}, flags...), "--", program)
	s := &steps{h: h, cmd: h.command(filepath.Join(string(h.tree), "bin", "divvy"), args...), said: &bytes.Buffer{}}
	input, err := s.cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	output, err := s.cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	s.cmd.ExtraFiles = files
	s.input, s.lines, s.cmd.Stderr, s.cmd.WaitDelay = input, bufio.NewReader(output), s.said, longest
	if err := s.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(s.end)
	for _, file := range files {
		if err := file.Close(); err != nil {
			h.t.Fatal(err)
		}
	}
	s.want("begin", s.line(), "0")
	return s
}

// end closes the program's input and waits until it has ended; a second call does nothing.
func (s *steps) end() {
	_ = s.input.Close()
	_ = s.cmd.Wait()
}

// line is the program's next line.
func (s *steps) line() string {
	s.h.t.Helper()
	line, err := s.lines.ReadString('\n')
	if err != nil {
		_ = s.cmd.Wait()
		s.h.t.Fatalf("the program ended: %v: %s", err, s.said.String())
	}
	return strings.TrimSpace(line)
}

// do has the program do a step, and returns the result.
func (s *steps) do(step string) string {
	s.h.t.Helper()
	if _, err := fmt.Fprintln(s.input, step); err != nil {
		s.h.t.Fatal(err)
	}
	return s.line()
}

func (s *steps) want(what, got, want string) {
	s.h.t.Helper()
	if got != want {
		s.h.t.Errorf("%s: result %s, want %s; it said: %s", what, got, want, s.said.String())
	}
}

// workers are the processes that listen for clients in shares of the host, or serve one.
func (h *host) workers() (listeners, serving []int) {
	h.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		h.t.Fatal(err)
	}
	parents := map[int]int{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		words := strings.Split(string(line), "\x00")
		switch {
		case !strings.HasSuffix(words[0], "divvy-worker") || len(words) < 3:
		case words[1] == "--listen" && strings.HasPrefix(words[2], h.rundir):
			listeners = append(listeners, pid)
		case words[1] == "--socket":
			stat, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
			if fields := strings.Fields(string(stat)); len(fields) > 3 {
				parents[pid], _ = strconv.Atoi(fields[3])
			}
		}
	}
	for pid, parent := range parents {
		if slices.Contains(listeners, parent) {
			serving = append(serving, pid)
		}
	}
	return listeners, serving
}

// used is what the oracle says of GPU 0.
func (h *host) bytesUsed() uint64 {
	h.t.Helper()
	var report struct {
		GPUs []struct {
			Used uint64 `json:"used"`
		} `json:"gpus"`
	}
	if err := json.Unmarshal([]byte(h.ok("simgpu", "report", "m", "-o", "json")), &report); err != nil || len(report.GPUs) == 0 {
		h.t.Fatalf("the oracle's report: %+v, %v", report, err)
	}
	return report.GPUs[0].Used
}

// gone waits until nothing is left of the shares: neither they, nor their workers, nor memory in use.
func (h *host) gone() {
	h.t.Helper()
	h.eventually("the shares and their workers are gone", func() bool {
		listeners, _ := h.workers()
		return len(listeners) == 0 && len(h.list().Tenants) == 0 && h.bytesUsed() == 0
	})
}

// withWorker is the tree with another program for the worker.
func (h *host) withWorker(script string) install.Tree {
	h.t.Helper()
	prefix := h.t.TempDir()
	folder := filepath.Join(prefix, "libexec", "divvy")
	err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "divvy-worker"), []byte(script), 0o755),
		os.Symlink(filepath.Join(string(h.tree), "lib"), filepath.Join(prefix, "lib")), os.Symlink(filepath.Join(string(h.tree), "bin"), filepath.Join(prefix, "bin")))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, name := range []string{"divvy-enter", "divvy-cover", "divvy-reap", "divvy-probe", "simgpuctl"} {
		if err := os.Symlink(h.tree.Program(name), filepath.Join(folder, name)); err != nil {
			h.t.Fatal(err)
		}
	}
	return install.Tree(prefix)
}
