package claims

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// Who asks for a claim otherwise than it is is told each thing that differs; the order of what goes with it does not count.
func TestAskedForOtherwise(t *testing.T) {
	ctx, k := t.Context(), newKernel()
	l := open(t, filepath.Join(t.TempDir(), FileName), k, nil)
	whole := want("a", 3)
	whole.Also = []pci.Address{{Bus: 9}, {Bus: 8}}
	if _, err := l.Take(ctx, whole, nil); err != nil {
		t.Fatal(err)
	}
	again := whole
	again.Also = []pci.Address{{Bus: 8}, {Bus: 9}}
	if _, err := l.Take(ctx, again, nil); err != nil {
		t.Errorf("the same in another order: %v", err)
	}
	for says, change := range map[string]func(*Want){
		"with device 0000:03:00.0, not 0000:04:00.0; choose another name, or release it first": func(w *Want) { w.Device.Bus = 4 },
		"with user 1000, not 0; choose": func(w *Want) { w.UID = 0 },
		"with form passthrough, not vf; others of the group 0000:08:00.0, 0000:09:00.0, not none; choose": func(w *Want) { w.Form, w.Also = v1alpha1.BackendVF, nil },
	} {
		w := whole
		change(&w)
		if _, err := l.Take(ctx, w, nil); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
	k.left = []string{"its driver_override is theirs"}
	if left, err := l.PutBack(ctx, "a"); err != nil || !slices.Equal(left, k.left) {
		t.Errorf("left %q, %v", left, err)
	}
}
