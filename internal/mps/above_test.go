package mps

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Whoever ends another GPU's daemon removes the directory of all daemons while it is empty. Who makes a directory in it at
// that moment gets it all the same.
func TestMakeBesideRemove(t *testing.T) {
	all := filepath.Join(t.TempDir(), "mps")
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = os.Remove(all)
			}
		}
	})
	defer group.Wait()
	defer close(done)
	for range 2000 {
		dirs := DirsOf(all, "GPU-1")
		if err := dirs.Make(); err != nil {
			t.Fatal(err)
		}
		if err := dirs.Remove(); err != nil {
			t.Fatal(err)
		}
	}
}
