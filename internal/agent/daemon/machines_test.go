package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// A book of devices that cannot be read is no empty one: it stays where it is, and nothing is given, put back or forgotten.
func TestDamagedBookOfDevices(t *testing.T) {
	for text, want := range map[string]error{
		"": checkpoint.ErrDamaged, "nonsense": checkpoint.ErrDamaged, `{"kind":"vfio","version":99,"state":[]}`: checkpoint.ErrVersion,
	} {
		path := filepath.Join(t.TempDir(), vfio.FileName)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		book, broken, err := openBook(vfio.Config{Path: path})
		if err != nil || !errors.Is(broken, want) || !strings.Contains(broken.Error(), path) || !strings.Contains(broken.Error(), "left as they are") {
			t.Fatalf("%q: %v, %v", text, broken, err)
		}
		_, recovered := book.Recover(t.Context())
		_, released := book.Release(t.Context(), "train")
		bound := book.Bind(t.Context(), "train", binding.Plan{})
		for what, err := range map[string]error{"recovered": recovered, "released": released, "bound": bound} {
			if !errors.Is(err, want) {
				t.Errorf("%q: %s: %v", text, what, err)
			}
		}
		book.Close()
		if kept, err := os.ReadFile(path); err != nil || string(kept) != text {
			t.Errorf("%q: the file has %q, %v", text, kept, err)
		}
	}
	book, broken, err := openBook(vfio.Config{Path: filepath.Join(t.TempDir(), vfio.FileName)})
	if err != nil || broken != nil || len(book.Entries()) != 0 {
		t.Errorf("without a file: %v, %v", broken, err)
	}
	book.Close()
}
