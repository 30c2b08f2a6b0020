package kube

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestCleanMappings(t *testing.T) {
	const smaps = `00400000-00411000 r--p 00000000 fe:00 1  /usr/local/bin/divvy
Size:                 68 kB
Anonymous:             0 kB
00411000-021f8000 r-xp 00011000 fe:00 1  /usr/local/bin/divvy
Rss:               22876 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
045c7000-045c8000 r--p 041c6000 fe:00 1  /usr/local/bin/divvy
Anonymous:             4 kB
045c8000-0468d000 rw-p 041c7000 fe:00 1  /usr/local/bin/divvy
Anonymous:             0 kB
c000000000-c002000000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 2  /usr/lib/libc.so.6
Anonymous:             0 kB
7f0000002000-7f0000003000 r-xp 00000000 fe:00 2  /usr/local/bin/divvy (deleted)
Anonymous:             0 kB
`
	got, err := cleanMappings(strings.NewReader(smaps), "/usr/local/bin/divvy")
	if want := []mapping{{0x400000, 0x411000}, {0x411000, 0x21f8000}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("clean are %x, want %x (%v)", got, want, err)
	}
	for _, broken := range []string{"zz-11 r-xp 0 0 0 /x\n", "11-zz r-xp 0 0 0 /x\n", "11-10 r-xp 0 0 0 /x\n"} {
		if got, err := cleanMappings(strings.NewReader(broken), "/x"); err == nil {
			t.Errorf("%q is %x", broken, got)
		}
	}
}

// The program goes on with all that it knew, and has fewer pages.
func TestTrim(t *testing.T) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Repeat("x", 1<<20)
	if err := trimOnce(program); err != nil {
		t.Fatal(err)
	}
	if strings.Count(known, "x") != 1<<20 {
		t.Error("something is lost")
	}
}
