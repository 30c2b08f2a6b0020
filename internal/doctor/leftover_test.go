package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A process whose share's directory is gone is found by the page that it has mapped, and not before.
func TestLeftovers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tenants", "0123abcd")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, pageName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	own := func() int {
		return slices.IndexFunc(Leftovers(t.Context(), 1000), func(l Leftover) bool { return l.PID == os.Getpid() && l.Share == "0123abcd" })
	}
	if own() >= 0 {
		t.Error("the share is there")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if own() < 0 {
		t.Error("the share is gone, and its process is not found")
	}
	if n := len(Leftovers(t.Context(), 0)); n != 0 {
		t.Errorf("%d of at most none", n)
	}
	if err := unix.Munmap(page); err != nil {
		t.Fatal(err)
	}
	if own() >= 0 {
		t.Error("the process has the page no more")
	}
}

func TestGonePage(t *testing.T) {
	for line, want := range map[string]bool{
		"7f94ab4b7000-7f94ab579000 rw-s 00000000 00:28 839                        /dev/shm/divvy-0/tenants/676cf939/state (deleted)\n":        true,
		"7f94ab4b7000-7f94ab579000 rw-s 00000000 00:28 839                        /run/divvy/share/state (deleted)\n":                         true,
		"7f94ab4b7000-7f94ab579000 rw-s 00000000 00:28 839                        /dev/shm/divvy-0/tenants/676cf939/state\n":                  false,
		"7f94ab4b7000-7f94ab579000 r--p 00000000 00:28 839                        /dev/shm/divvy-0/tenants/676cf939/state (deleted)\n":        false,
		"7f94ab4b7000-7f94ab579000 rw-s 00000000 00:28 839                        /dev/shm/divvy-0/tenants/676cf939/libcuda.so.1 (deleted)\n": false,
		"7f94ab4b7000-7f94ab579000 rw-s 00000000 00:28 839                        /home/ada/state (deleted)\n":                                false,
		"7f94ab4b7000-7f94ab579000 rw-s 00000000 00:28 839\n":                                                                                 false,
		"": false,
	} {
		if _, got := gonePage(line); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

func FuzzGonePage(f *testing.F) {
	f.Add("7f94ab4b7000-7f94ab579000 rw-s 00000000 00:28 839                        /dev/shm/divvy-0/tenants/676cf939/state (deleted)\n")
	f.Fuzz(func(_ *testing.T, line string) { gonePage(line) })
}
