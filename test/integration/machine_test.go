package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// longest bounds every single program that a test runs.
const longest = 5 * time.Minute

// machine is a simulated machine that ends with its test.
type machine struct {
	store    simgpu.Store
	instance *simgpu.Instance
	// contextBytes is what the first context of a process takes of a GPU.
	contextBytes uint64
}

// prefix is where the build put its products.
func prefix(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../build")
	if err != nil {
		t.Fatal(err)
	}
	if moved := os.Getenv("DIVVY_PREFIX"); moved != "" {
		dir = moved
	}
	return dir
}

// startMachine starts a machine with changes to fields of its file.
func startMachine(t *testing.T, model string, changes ...string) *machine {
	t.Helper()
	description, err := simgpu.Load(model, changes...)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{contextBytes: uint64(description.GPU.Context), store: simgpu.Store{
		Root:    filepath.Join(t.TempDir(), "simgpu"),
		Control: simgpu.Control{Prefix: prefix(t)},
	}}
	m.instance, err = m.store.Start(t.Context(), "test", description, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), longest)
		defer cancel()
		if err := m.store.Stop(ctx, m.instance, true); err != nil {
			t.Error(err)
		}
	})
	return m
}

// report is what is true of the machine.
func (m *machine) report(t *testing.T) *simgpu.Report {
	t.Helper()
	report, err := m.store.Report(t.Context(), m.instance)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// place prepares programs to run where they find a certain GPU driver.
type place func(t *testing.T, name string, args ...string) *exec.Cmd

// in is the place where the driver is found in dir: the instance's directory for
// the whole machine, a tenant's for a share.
func in(dir string) place {
	return func(t *testing.T, name string, args ...string) *exec.Cmd {
		t.Helper()
		cmd := command(t, name, args...)
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+dir)
		return cmd
	}
}

// outside is the place where a program has the whole machine.
func (m *machine) outside() place {
	return in(m.instance.Dir)
}

// command prepares a program that is stopped if it takes too long.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	// Not the test's own context: that ends before what the test has started is
	// asked to end.
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = os.Environ()
	return cmd
}

// holder is a program that holds memory on a GPU until the test ends.
type holder struct {
	PID       int    `json:"pid"`
	Result    string `json:"result"`
	Allocated uint64 `json:"allocated_bytes"`
}

// hold starts a holder and waits until it has its memory.
func hold(t *testing.T, where place, device, bytes string) holder {
	t.Helper()
	cmd := where(t, filepath.Join(prefix(t), "bin", "gpubench"), "hold", "--device", device, "--bytes", bytes)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("holder of %s: %v", bytes, err)
		}
	})
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatalf("read what the holder of %s says: %v", bytes, err)
	}
	var h holder
	if err := json.Unmarshal([]byte(line), &h); err != nil {
		t.Fatalf("read %q: %v", line, err)
	}
	if h.Result != "CUDA_SUCCESS" {
		t.Fatalf("hold %s: %s", bytes, strings.TrimSpace(line))
	}
	return h
}
