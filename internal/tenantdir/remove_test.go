package tenantdir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A directory is removed although its record is being replaced.
func TestRemoveWhileARecordIsKept(t *testing.T) {
	for range 300 {
		d := Dir(filepath.Join(t.TempDir(), "tenant"))
		if err := os.Mkdir(string(d), 0o700); err != nil {
			t.Fatal(err)
		}
		writes, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			close(writes)
			for range 4 { // each puts two files there
				if err := d.keep([]byte("{}")); errors.Is(err, os.ErrNotExist) {
					return // it was removed
				}
			}
		}()
		<-writes
		err := d.Remove()
		<-over
		if err != nil {
			t.Fatal(err)
		}
	}
}
