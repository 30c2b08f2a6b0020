package ldcache

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func entry(name, path string) Entry {
	flags := map[string]uint32{"amd64": FlagsAMD64, "arm64": FlagsARM64}[runtime.GOARCH]
	return Entry{Name: name, Path: path, Flags: flags}
}

func TestRoundTrip(t *testing.T) {
	c := &Cache{HWCaps: []string{"x86-64-v2", "x86-64-v3"}}
	c.Add(entry("libm.so.6", "/lib/libm.so.6"), entry("libcuda.so.1", "/a/libcuda.so.1"))
	c.Add(entry("libz.so.1", "/lib/libz.so.1"))
	c.Entries[2].HWCap = 1<<62 | 1
	got, err := Parse(c.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Entries, c.Entries) || !slices.Equal(got.HWCaps, c.HWCaps) {
		t.Errorf("got %+v, want %+v", got, c)
	}
	compat := append([]byte("ld.so-1.7.0\x00\x00\x00\x00\x00"), c.Encode()...)
	if again, err := Parse(compat); err != nil || !slices.Equal(again.Entries, c.Entries) {
		t.Errorf("behind the older format: %+v, %v", again, err)
	}
}

// The linker bisects by its own order of names; a wrong one hides libraries.
func TestNamesAreOrderedAsTheLinkerDoes(t *testing.T) {
	ascending := []string{"lib.so", "liba-2.so", "liba.so", "liba.so.2", "liba.so.10", "libab.so", "lib1.so", "lib02a.so"}
	for i, a := range ascending {
		for j, b := range ascending {
			if got := compareNames(a, b); got != sign(i-j) {
				t.Errorf("compareNames(%q, %q) = %d, want %d", a, b, got, sign(i-j))
			}
		}
	}
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

func TestAddedEntryComesBeforeItsNamesakes(t *testing.T) {
	c := &Cache{}
	c.Add(entry("libcuda.so.1", "/driver"))
	c.Add(entry("libcuda.so.1", "/ours"))
	got, err := Parse(c.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if first := got.Entries[0].Path; first != "/ours" {
		t.Errorf("the linker would find %s", first)
	}
}

// ldconfig is the independent reader of what is written here.
func TestLdconfigReadsAnExtendedCache(t *testing.T) {
	ldconfig, err := exec.LookPath("/sbin/ldconfig")
	if err != nil {
		t.Skip("no ldconfig on this machine")
	}
	system, err := os.ReadFile(Path)
	if err != nil {
		t.Skipf("no linker cache on this machine: %v", err)
	}
	c, err := Parse(system)
	if err != nil {
		t.Fatal(err)
	}
	before := len(c.Entries)
	c.Add(entry("libcuda.so.1", "/share/libcuda.so.1"), entry("libnvidia-ml.so.1", "/share/libnvidia-ml.so.1"))
	file := filepath.Join(t.TempDir(), "cache")
	if err := os.WriteFile(file, c.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(ldconfig, "-p", "-C", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if lines := bytes.Count(out, []byte("=>")); lines != before+2 {
		t.Errorf("ldconfig lists %d libraries, want %d", lines, before+2)
	}
	if !strings.Contains(string(out), "libcuda.so.1 (libc6") || !strings.Contains(string(out), "=> /share/libcuda.so.1") {
		t.Errorf("ldconfig does not list the added library:\n%.300s", out)
	}
}

func TestParseRefuses(t *testing.T) {
	whole := (&Cache{HWCaps: []string{"v2"}, Entries: []Entry{entry("a", "/a")}}).Encode()
	for length := range whole {
		if _, err := Parse(whole[:length]); !errors.Is(err, ErrFormat) {
			t.Errorf("the first %d bytes of %d: %v, want ErrFormat", length, len(whole), err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add((&Cache{HWCaps: []string{"v2"}, Entries: []Entry{entry("a", "/a"), entry("b", "/b")}}).Encode())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err != nil {
			return
		}
		written := c.Encode() // in the linker's order, which data need not have
		again, err := Parse(written)
		if err != nil || len(again.Entries) != len(c.Entries) || !bytes.Equal(again.Encode(), written) {
			t.Fatalf("what was read is not what is written: %+v, %+v, %v", c, again, err)
		}
		if !slices.Equal(inOneOrder(again.Entries), inOneOrder(c.Entries)) || !slices.Equal(again.HWCaps, c.HWCaps) {
			t.Fatalf("%+v came back as %+v", c, again)
		}
	})
}

func inOneOrder(entries []Entry) []Entry {
	return slices.SortedFunc(slices.Values(entries), func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Flags, b.Flags),
			cmp.Compare(a.OSVersion, b.OSVersion), cmp.Compare(a.HWCap, b.HWCap))
	})
}
