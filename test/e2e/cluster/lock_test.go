package cluster

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

// A cluster is taken for abandoned once nobody locks its directory: not while it begins, while it runs, or while it goes.
func TestOnlyUnlockedClustersAreAbandoned(t *testing.T) {
	dir := t.TempDir()
	if _, err := abandoned(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a directory without a lock: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("whoever looks at a directory leaves %v there, %v", entries, err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := abandoned(dir); err == nil {
		t.Error("a cluster that runs is taken for abandoned")
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	held, err := abandoned(dir)
	if err != nil {
		t.Fatalf("a cluster that nobody locks: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
}
