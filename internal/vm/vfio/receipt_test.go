package vfio_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// killWriter has the process that writes a file of sysfs next sleep in that, puts content in the file's place as if it was made
// meanwhile, and kills it. The file keeps the time of its last change if it is marked, as the kernel's own do.
func killWriter(t *testing.T, root, file, content string, marked bool, b func() *vfio.Book) {
	t.Helper()
	beside := filepath.Join(root, "beside")
	must(t, unix.Mkfifo(beside, 0o600))
	must(t, os.Rename(beside, file))
	go func() {
		for limit := time.Now().Add(30 * time.Second); ; {
			receipts, _ := filepath.Glob(filepath.Join(root, "vfio-receipts/*.new"))
			if len(receipts) == 1 {
				if text, _ := os.ReadFile(receipts[0]); len(text) > 0 {
					break
				}
			}
			if time.Now().After(limit) {
				t.Error("the process that writes leaves no unfinished receipt")
				break
			}
			time.Sleep(time.Millisecond) // until the condition holds
		}
		info, err := os.Stat(file)
		if err == nil {
			err = os.WriteFile(beside, []byte(content+"\n"), 0o600)
		}
		if err == nil && marked {
			err = os.Chtimes(beside, info.ModTime(), info.ModTime())
		}
		if err == nil {
			err = os.Rename(beside, file)
		}
		if err != nil {
			t.Error(err)
		}
		_ = syscall.Kill(b().Entries()[0].Writer.PID, syscall.SIGKILL)
	}()
}

// Where the process that writes is killed between its write and its receipt, what there is by the write is taken away, and what
// somebody else has written since is left.
func TestWriterIsKilled(t *testing.T) {
	for name, c := range map[string]struct {
		release, marked bool
		want            string
		left            int
	}{
		"made":                 {false, true, "0", 0},
		"made by somebody":     {false, false, "7", 1},
		"not undone":           {true, true, "0", 0},
		"undone and made anew": {true, false, "7", 1},
	} {
		t.Run(name, func(t *testing.T) {
			root, file, plan := typed(t)
			var b *vfio.Book
			var armed atomic.Bool
			armed.Store(!c.release)
			b = openTyped(t, root, func(step string) {
				if step == "vfio-begun" && armed.Swap(false) {
					killWriter(t, root, file, "7", c.marked, func() *vfio.Book { return b })
				}
			})
			left := 0
			if err := b.Bind(t.Context(), "one", plan); (err != nil) == c.release {
				t.Fatalf("bound: %v", err)
			}
			if c.release {
				armed.Store(true)
				if _, err := b.Release(t.Context(), "one"); err == nil {
					t.Error("a release whose writer was killed has no fault")
				}
				foreign, err := b.Release(t.Context(), "one")
				if left = len(foreign); err != nil || left != c.left {
					t.Errorf("left %v, %v", foreign, err)
				}
			}
			has(t, file, c.want)
			if e := b.Entries(); len(e) != 0 {
				t.Errorf("the book has %+v", e)
			}
			if receipts, _ := filepath.Glob(filepath.Join(root, "vfio-receipts/*")); c.want == "0" && len(receipts) > 0 {
				t.Errorf("there are the receipts %v", receipts)
			}
		})
	}
}

// A receipt tells of its owner's step alone, and an unfinished one without a mark of none.
func TestReceiptsOfOthers(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "0", // a finished one alone may be empty
		`{"owner":"one"}`:                    "0",
		`{"owner":"two"}`:                    "7",
		`{"owner"`:                           "7",
		`.new {"owner":"one","mark":"1000"}`: "0",
		`.new {"owner":"two","mark":"1000"}`: "7",
		`.new {"owner":"one","mark":"1001"}`: "7",
		`.new {"owner":"one"}`:               "7",
		`.new `:                              "7",
	} {
		t.Run(text, func(t *testing.T) {
			root, file, plan := typed(t)
			b := openTyped(t, root, nil)
			must(t, b.Bind(t.Context(), "one", plan))
			receipts, _ := filepath.Glob(filepath.Join(root, "vfio-receipts/*"))
			if len(receipts) != 1 {
				t.Fatalf("there are the receipts %v", receipts)
			}
			name := receipts[0]
			must(t, os.Remove(name))
			if len(text) >= 5 && text[:5] == ".new " {
				name, text = name+".new", text[5:]
			}
			must(t, os.WriteFile(name, []byte(text), 0o600))
			must(t, os.Chtimes(file, time.Unix(0, 1000), time.Unix(0, 1000)))
			if _, err := b.Release(t.Context(), "one"); err != nil {
				t.Error(err)
			}
			has(t, file, want)
		})
	}
}
