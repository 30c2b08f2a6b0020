package drivers

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// oldestServed is the first driver that tells where a kernel's parameters lie.
const oldestServed = 12040

// TestWorkersLoadTheDriver has a worker in its sandbox load each driver, and answer what the driver answers here. It refuses
// those that are too old, by name.
func TestWorkersLoadTheDriver(t *testing.T) {
	tree := installtest.Tree(t)
	for _, d := range unpacked(t) {
		t.Run(d.Version, func(t *testing.T) {
			folder := named(t, d)
			directly := info(t, tree, "LD_LIBRARY_PATH="+folder)
			socket, log := startWorker(t, tree, folder)
			remotely := info(t, tree, "LD_LIBRARY_PATH="+filepath.Dir(tree.Client(string(driver.CUDA))), "DIVVY_REMOTE_SOCKET="+socket)
			old := strings.Contains(log(), "the driver here is of CUDA ")
			want := directly
			if old {
				want = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
			}
			if remotely != want {
				t.Errorf("through a worker cuInit answers %s, want %s; the worker says %q", remotely, want, log())
			}
			p, err := Open(t.Context(), d, tree, t.TempDir())
			must(t, err)
			version, err := p.CUDA(t.Context())
			must(t, err)
			if old != (version < oldestServed) {
				t.Errorf("the driver is of CUDA %d, and the worker says %q", version, log())
			}
		})
	}
}

// named is a folder with the driver's libraries by the names that programs load.
func named(t *testing.T, d Driver) string {
	t.Helper()
	folder := t.TempDir()
	for _, library := range []driver.Library{driver.CUDA, driver.NVML} {
		file, err := d.file(library)
		must(t, err)
		must(t, os.Symlink(file, filepath.Join(folder, string(library))))
	}
	return folder
}

// startWorker starts a listener whose workers find the driver in a folder. It returns its socket, and what it has said.
func startWorker(t *testing.T, tree install.Tree, folder string) (string, func() string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "worker.sock")
	log := filepath.Join(t.TempDir(), "log")
	said, err := os.Create(log)
	must(t, err)
	defer said.Close()
	listening, ready, err := os.Pipe()
	must(t, err)
	life, living, err := os.Pipe()
	must(t, err)
	c := exec.Command(tree.Program("divvy-worker"), "--listen", socket, "--ready", "3", "--life", "4")
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+folder)
	c.Stderr = said
	c.ExtraFiles = []*os.File{ready, life}
	must(t, c.Start())
	ready.Close()
	life.Close()
	t.Cleanup(func() {
		living.Close()
		must(t, c.Wait())
	})
	text, err := io.ReadAll(listening)
	must(t, err)
	listening.Close()
	if string(text) != "listening\n" {
		t.Fatalf("the worker says %q", text)
	}
	return socket, func() string {
		text, err := os.ReadFile(log)
		must(t, err)
		return string(text)
	}
}

// info is what the first call of a program answers.
func info(t *testing.T, tree install.Tree, environment ...string) string {
	t.Helper()
	var answer struct{ Result string }
	c := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(string(tree), "bin/gpubench"), "info")
	c.Env = append(os.Environ(), environment...)
	var out bytes.Buffer
	c.Stdout = &out
	_ = c.Run() // it fails where there is no GPU, and says how
	if out.Len() == 0 {
		return "nothing"
	}
	must(t, json.Unmarshal(out.Bytes(), &answer))
	return answer.Result
}
