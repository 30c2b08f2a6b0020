package box

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programs lists what every image contains besides the programs under test.
var programs = []string{"sh", "cat", "env", "ldconfig", "ln", "mkdir", "mount", "rm"}

// parts are files that every image with this C library has beside it, also where its programs do not need them: our
// libraries are linked for C libraries that have functions in them.
var parts = []string{"libpthread.so.0", "libdl.so.2"}

// image makes a root file system from this host's glibc and a few programs. It
// contains no file of a GPU driver.
func image(t *testing.T, under ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "proc", "dev", "tmp", "run"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			path = filepath.Join("/sbin", name)
		}
		under = append(under, path)
	}
	for _, path := range under {
		copyFile(t, path, filepath.Join(root, "usr/bin", filepath.Base(path)))
		for _, library := range closure(t, path) {
			// Below /usr, whatever is a link to it on this host.
			place := "/usr" + strings.TrimPrefix(library, "/usr")
			copyFile(t, library, filepath.Join(root, place))
			if filepath.Base(library) != "libc.so.6" {
				continue
			}
			for _, part := range parts {
				copyFile(t, filepath.Join(filepath.Dir(library), part), filepath.Join(root, filepath.Dir(place), part))
			}
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc/ld.so.conf"), []byte("/usr/lib/x86_64-linux-gnu\n/usr/lib/aarch64-linux-gnu\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return root
}

// closure is a program's loader and the libraries that it loads; a static
// program has none.
func closure(t *testing.T, program string) []string {
	t.Helper()
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil
	}
	var paths []string
	for _, field := range strings.Fields(string(out)) {
		if strings.HasPrefix(field, "/") {
			paths = append(paths, field)
		}
	}
	return paths
}

// copyFile copies the file that a path leads to, unless it is there already.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	source, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(target, source)
	if err := errors.Join(err, target.Close()); err != nil {
		t.Fatal(err)
	}
}
