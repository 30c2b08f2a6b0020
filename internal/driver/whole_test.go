package driver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// examples are shared objects of every kind: what a compiler makes, and NVIDIA's own where they are.
func examples(t *testing.T) []string {
	h := newHost(t)
	found, err := filepath.Glob("../../.cache/drivers/*/lib*.so.*")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Log("NVIDIA's own libraries are not here: make test-drivers downloads them")
	}
	return append(found, h.compile(library, "libcuda.so.1", "libcuda.so.1"))
}

// Every beginning of a library is refused, and said to be a beginning from the header's end on.
func TestEveryBeginningIsRefused(t *testing.T) {
	for _, path := range examples(t) {
		if o, err := inspect(path); err != nil || o.soname == "" || o.stub {
			t.Errorf("%s: %+v, %v", path, o, err)
			continue
		}
		image, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		partial := filepath.Join(t.TempDir(), "libcuda.so.1")
		if err := os.WriteFile(partial, image, 0o600); err != nil {
			t.Fatal(err)
		}
		step := max(1, len(image)/5000)
		for size := len(image) - 1; size >= 0; size -= step {
			if size < len(image)-200 && size > 200+step { // both ends are tried byte by byte
				step = max(1, len(image)/5000)
			} else {
				step = 1
			}
			if err := os.Truncate(partial, int64(size)); err != nil {
				t.Fatal(err)
			}
			var fault *Fault
			_, err := inspect(partial)
			if !errors.As(err, &fault) || !fault.Damaged() || size >= 64 && !strings.Contains(fault.Found, "missing") {
				t.Fatalf("%d bytes of %s: %v", size, path, err)
			}
		}
	}
}

// loader tries to load each file whose name it reads, in a process of its own, and says how that ended.
const loader = `
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    char path[4096];
    while (fgets(path, sizeof path, stdin)) {
        path[strcspn(path, "\n")] = 0;
        if (fork() == 0) {
            void *at = dlopen(path, RTLD_NOW);
            int (*answer)(void) = at ? dlsym(at, "answer") : 0;
            _exit(!answer ? 1 : answer() == 42 ? 0 : 2);
        }
        int status;
        wait(&status);
        printf("%d %s\n", status, path);
    }
    return 0;
}
`

// What is taken with a wrong byte in its headers, the loader takes too, and it works.
func TestWhatIsTakenLoads(t *testing.T) {
	h := newHost(t)
	whole := h.compile(library, "libcuda.so.1", "libcuda.so.1")
	image, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	taken, refused := []string{whole}, 0
	headers := 64 + 56*int(image[56]) // e_phnum
	for at := range headers {
		for _, flip := range []byte{0x01, 0x10, 0x80, 0xff} {
			image[at] ^= flip
			path := filepath.Join(h.root, fmt.Sprintf("byte-%d-%02x", at, flip))
			if err := os.WriteFile(path, image, 0o600); err != nil {
				t.Fatal(err)
			}
			image[at] ^= flip
			if o, err := inspect(path); err == nil && o.soname == "libcuda.so.1" {
				taken = append(taken, path)
				continue
			}
			refused++
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	program := filepath.Join(h.root, "loader")
	cc := exec.Command("cc", "-x", "c", "-", "-o", program, "-ldl")
	cc.Stdin = strings.NewReader(loader)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	cmd := exec.Command(program)
	cmd.Stdin = strings.NewReader(strings.Join(taken, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(taken) {
		t.Fatalf("%d answers for %d files", len(lines), len(taken))
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "0 ") {
			t.Errorf("taken, and the loader ends with status %s", line)
		}
	}
	t.Logf("%d taken, %d refused", len(taken), refused)
	if refused < headers {
		t.Errorf("only %d wrong headers of %d are noticed", refused, 4*headers)
	}
}

func FuzzInspect(f *testing.F) {
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Add([]byte(nil))
	whole := filepath.Join(f.TempDir(), "libcuda.so.1")
	if out, err := exec.Command("cc", "-shared", "-nostdlib", "-s", "-x", "c", "/dev/null", "-o", whole, "-Wl,-soname,libcuda.so.1").CombinedOutput(); err != nil {
		f.Fatalf("cc: %v\n%s", err, out)
	}
	image, err := os.ReadFile(whole)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(image)
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "object")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var fault *Fault
		if _, err := inspect(path); err != nil && !errors.As(err, &fault) {
			t.Errorf("not a fault of the file: %v", err)
		}
		_, _ = Names(path)
	})
}
