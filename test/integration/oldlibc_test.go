package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// oldLibc returns the C library of Debian 11 (GLIBC_2.31): its dynamic linker, and the folder of
// its libraries. It is unpacked once, below .cache of the repository.
func oldLibc(t *testing.T) (linker, libraries string) {
	t.Helper()
	dir, err := filepath.Abs("../../.cache/old-libc")
	must(t, err)
	must(t, os.MkdirAll(dir, 0o755))
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	must(t, err)
	defer lock.Close()
	must(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	if said, err := output(t.Context(), "../../hack/old-libc.sh", dir); err != nil {
		without(t, "unpack the C library of Debian 11: %v: %s", err, said)
	}
	found, err := filepath.Glob(filepath.Join(dir, "root/lib/*/ld-linux-*.so.*"))
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("dynamic linkers of the old C library: %v", found)
	}
	libraries, err = filepath.EvalSymlinks(filepath.Dir(found[0])) // as the kernel names it
	must(t, err)
	return filepath.Join(libraries, filepath.Base(found[0])), libraries
}

// withOldLibc makes programs of a place run with an old C library, whatever that place adds to the
// search for libraries.
func withOldLibc(t *testing.T, where place) place {
	linker, libraries := oldLibc(t)
	return func(t *testing.T, name string, args ...string) *exec.Cmd {
		t.Helper()
		script := `exec "$0" --library-path "$LD_LIBRARY_PATH:` + libraries + `" "$@"`
		return where(t, "sh", append([]string{"-c", script, linker, name}, args...)...)
	}
}

// A program with the C library of an older system holds, loses and computes in a share what a newer
// one does, and is refused where the share ends.
func TestOldLibcInAShare(t *testing.T) {
	oldLibc(t)
	bench := filepath.Join(prefix(t), "bin", "gpubench")
	eachLayer(t, func(t *testing.T, layer string) {
		s := startShell(t, "a100-80g")
		old := withOldLibc(t, s.run(layer, "--memory", "2Gi", "--cores", "50"))
		for _, c := range []struct {
			args   []string
			result string
		}{
			{[]string{"alloc", "--bytes", "512Mi", "--count", "2"}, "CUDA_SUCCESS"},
			{[]string{"alloc", "--bytes", "3Gi", "--count", "1"}, "CUDA_ERROR_OUT_OF_MEMORY"},
			{[]string{"spin", "--count", "10", "--ns", "1000000"}, "CUDA_SUCCESS"},
		} {
			text, err := old(t, bench, c.args...).Output()
			if !strings.Contains(string(text), c.result) {
				t.Errorf("%v: %s, %v, want %s", c.args, text, err, c.result)
			}
		}
		text, err := old(t, bench, "nvml").Output()
		must(t, err)
		if !strings.Contains(string(text), "2147483648") {
			t.Errorf("NVML shows %s, want 2 GiB", text)
		}
	})
}

// The program is truly run with the old C library, and our library is in it.
func TestOldLibcIsUsed(t *testing.T) {
	_, libraries := oldLibc(t)
	m := startMachine(t, "a100-80g")
	held := hold(t, withOldLibc(t, m.tenant(t, 2<<30, 0)), "0", "64Mi")
	maps, err := os.ReadFile("/proc/" + strconv.Itoa(held.PID) + "/maps")
	must(t, err)
	for _, file := range []string{libraries + "/libc-", "/libcuda.so.1"} {
		if !strings.Contains(string(maps), file) {
			t.Errorf("a file %s is not loaded:\n%s", file, maps)
		}
	}
}

// The programs that run in other people's containers and on their hosts start with it too.
func TestOldLibcRunsHelpers(t *testing.T) {
	linker, libraries := oldLibc(t)
	m := startMachine(t, "a100-80g")
	truth := m.report(t).GPUs[0]
	dir := filepath.Join(prefix(t), "libexec", "divvy")
	old := func(program string, args ...string) *exec.Cmd {
		return in(m.instance.Dir)(t, linker, append([]string{"--library-path", libraries, filepath.Join(dir, program)}, args...)...)
	}
	text, err := old("divvy-probe", filepath.Join(m.instance.Dir, "libcuda.so.1"), filepath.Join(m.instance.Dir, "libnvidia-ml.so.1"), truth.UUID).Output()
	must(t, err)
	var measured struct {
		ContextBytes uint64 `json:"context_bytes"`
	}
	must(t, json.Unmarshal(text, &measured))
	if measured.ContextBytes != m.contextBytes {
		t.Errorf("divvy-probe measures %d bytes, a context has %d", measured.ContextBytes, m.contextBytes)
	}
	for program, arg := range map[string]string{"divvy-enter": "--probe", "divvy-reap": "/nonexistent"} {
		said, err := old(program, arg).CombinedOutput()
		if strings.Contains(string(said), "GLIBC") || strings.Contains(string(said), "symbol") {
			t.Errorf("%s: %v: %s", program, err, said)
		}
	}
}
