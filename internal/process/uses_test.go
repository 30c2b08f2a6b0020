package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake is a process's directory in /proc with so many mappings, open files that are locked,
// and mounts, each of another file.
func fake(t *testing.T, mapped, locked, mounted int) *Uses {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lines := func(n int, format string) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, format, i+1)
		}
		return text.String()
	}
	write("maps", lines(mapped, "7f00-7f01 rw-s 00000000 00:1b %d /p\n"))
	write("mountinfo", lines(mounted, "%d 1 0:1 / /a rw - tmpfs a rw\n"))
	if err := os.Mkdir(filepath.Join(dir, "fdinfo"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range locked {
		write(fmt.Sprintf("fdinfo/%d", i), fmt.Sprintf("pos:\t0\nlock:\t1: OFDLCK ADVISORY  WRITE -1 00:1b:%d 1 1\n", i+1))
	}
	return &Uses{dir: dir}
}

// Of a process no more is read than the bounds, whatever it has, and that there is more is
// told.
func TestUsesAreBounded(t *testing.T) {
	for _, c := range []struct {
		mapped, locked, mounted int
		unread                  bool
	}{
		{},
		{mapped: mostMappings, locked: mostOpen, mounted: 1000},
		{mapped: mostMappings + 1, unread: true},
		{locked: mostOpen + 1, unread: true},
		{mounted: mostMounts / 30, unread: true},
	} {
		u := fake(t, c.mapped, c.locked, c.mounted)
		if n := len(u.Mapped()); n != min(c.mapped, mostMappings) {
			t.Errorf("%+v: %d mappings are read", c, n)
		}
		if n := len(u.Locked()); n != min(c.locked, mostOpen) {
			t.Errorf("%+v: %d open files are read", c, n)
		}
		if table := string(u.Mounts()); len(table) > mostMounts || table != "" && !strings.HasSuffix(table, "rw\n") {
			t.Errorf("%+v: %d bytes of mounts are read", c, len(table))
		}
		if u.Unread() != c.unread {
			t.Errorf("%+v: unread %t", c, u.Unread())
		}
		// All is read once.
		if err := os.RemoveAll(u.dir); err != nil {
			t.Fatal(err)
		}
		if len(u.Mapped()) != min(c.mapped, mostMappings) || len(u.Locked()) != min(c.locked, mostOpen) || (len(u.Mounts()) > 0) != (c.mounted > 0) {
			t.Errorf("%+v: it was read again", c)
		}
	}
}
