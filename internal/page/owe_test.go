package page

import (
	"os"
	"path/filepath"
	"testing"
)

// A new bucket begins with what it owes; one that was used is left alone, and so is a page
// that is none.
func TestOwe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := CreateState(path, 2, -1); err != nil {
		t.Fatal(err)
	}
	r, err := OpenTimes(path, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	level := func(device int) (balance int64, refilled uint64) {
		times, err := r.Read(device)
		if err != nil {
			t.Fatal(err)
		}
		return times.Bucket.Balance, times.Bucket.Refilled
	}
	for range 2 { // the second time it was used
		if err := Owe(path, 2, 1, 77, 5*Start); err != nil {
			t.Fatal(err)
		}
		if balance, refilled := level(1); balance != -4*Start || refilled != 77 {
			t.Errorf("%d at %d", balance, refilled)
		}
		if balance, refilled := level(0); balance != 0 || refilled != 0 {
			t.Errorf("the other GPU: %d at %d", balance, refilled)
		}
	}
	if err := Owe(path, 2, 0, 78, 1<<63); err != nil {
		t.Fatal(err)
	}
	if balance, _ := level(0); balance != Start-MostOwed {
		t.Errorf("absurd: %d", balance)
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if err := Owe(path, 2, 0, 79, 1); err == nil {
		t.Error("a page that was cut short was written")
	}
}
