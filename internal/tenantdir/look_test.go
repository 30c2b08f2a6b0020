package tenantdir

import (
	"os"
	"path/filepath"
	"testing"
)

// A page is cut, and nothing to which a tenant made its name lead.
func TestOnlyPagesAreCut(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	length := func() int64 {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	if err := shorten(link, 10); err == nil || length() != 100 {
		t.Errorf("%v, and %d bytes are left of what the link leads to", err, length())
	}
	if err := shorten(file, 101, 10); err != nil || length() != 10 {
		t.Errorf("%v, and %d bytes are left, want 10", err, length())
	}
}
