package run

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// replace puts another file into the place of the machine's libcuda. The file that was there stays as it is:
// the installation has it too.
func (h *host) replace(image []byte) {
	h.t.Helper()
	path := filepath.Join(h.instance, "libcuda.so.1")
	if err := os.WriteFile(path+".new", image, 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		h.t.Fatal(err)
	}
}

// compiled is the image of testdata/foreign.c with an answer.
func (h *host) compiled(answer string) []byte {
	h.t.Helper()
	path := filepath.Join(h.t.TempDir(), "libcuda.so.1")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-o", path, "-Wl,-soname,libcuda.so.1", "-DANSWER="+answer, "testdata/foreign.c").CombinedOutput()
	if err != nil {
		h.t.Fatalf("cc: %v\n%s", err, out)
	}
	image, err := os.ReadFile(path)
	if err != nil {
		h.t.Fatal(err)
	}
	return image
}

// A driver that cannot work is refused before the command starts, with the file and what was expected of it.
// The whole one works, also afterwards.
func TestDriversThatCannotWork(t *testing.T) {
	h := newHost(t)
	whole, err := os.ReadFile(filepath.Join(h.instance, "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	started := filepath.Join(h.rundir, "started")
	foreign := append([]byte(nil), whole...)
	foreign[18] = map[string]byte{"amd64": 183, "arm64": 62}[runtime.GOARCH] // e_machine of the other
	for _, c := range []struct {
		name  string
		image []byte
		says  []string
	}{
		{"half", whole[:len(whole)/2], []string{"libcuda.so.1 is", "so part of it is missing", "expected a whole shared object"}},
		{"all but a byte", whole[:len(whole)-1], []string{"so part of it is missing"}},
		{"nothing", nil, []string{"an empty file"}},
		{"another processor", foreign, []string{"libcuda.so.1 is a library for", "expected a library for"}},
		{"a stub", h.compiled("34"), []string{"libcuda.so.1 says that it is a stub", "CUDA_ERROR_STUB_LIBRARY"}},
		{"another release", h.compiled("803"), []string{"of another release than the kernel module", "install it again"}},
		{"for other GPUs", h.compiled("804"), []string{"for other GPUs than this machine has"}},
	} {
		h.replace(c.image)
		o := h.run("--layer", "env", "--memory", "1Gi", "--", "touch", started)
		if _, err := os.Stat(started); o.status != 125 || err == nil || strings.Contains(o.err, "\n") {
			t.Errorf("%s: %+v, started %v; want one line and status 125", c.name, o, err == nil)
		}
		for _, part := range c.says {
			if !strings.Contains(o.err, part) {
				t.Errorf("%s: %q does not say %q", c.name, o.err, part)
			}
		}
	}
	h.replace(whole)
	if o := h.run("--layer", "env", "--memory", "1Gi", "--", "touch", started); o.status != 0 {
		t.Errorf("the whole driver: %+v", o)
	}
}
