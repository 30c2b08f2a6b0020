package claims

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// A claim of a ledger that was lost keeps its device when somebody asks for its name again, with the same words or others.
func TestLostLedger(t *testing.T) {
	ctx, k, path := t.Context(), newKernel(), filepath.Join(t.TempDir(), FileName)
	if _, err := open(t, path, k, nil).Take(ctx, want("desk", 3), nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l := open(t, path, k, nil)
	for _, w := range []Want{want("desk", 3), want("desk", 4)} {
		_, err := l.Take(ctx, w, func([]pci.Address) error {
			t.Error("it was asked whether the device may be taken")
			return nil
		})
		if !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "bus 3") || !strings.Contains(err.Error(), "`divvy vm release desk`") {
			t.Errorf("%s: %v", w.Device, err)
		}
	}
	equal(t, "claims", names(l), []string{})
	equal(t, "asked back", len(k.whose), 0)
	equal(t, "owner", k.nodes["/dev/vfio/3"], Ownership{UID: 1000, Mode: 0o600})
}

// A claim that is refused before anything was made for it takes nothing away that has its name.
func TestRefusedMakesNothing(t *testing.T) {
	k := newKernel()
	older := Given{Nodes: []string{"/dev/vfio/9"}}
	l := open(t, filepath.Join(t.TempDir(), FileName), k, func(step string) {
		if step == "claim-entered" {
			k.set(func() { k.has["desk"] = older })
		}
	})
	refusal := errors.New("not admitted")
	if _, err := l.Take(t.Context(), want("desk", 3), func([]pci.Address) error { return refusal }); !errors.Is(err, refusal) {
		t.Error(err)
	}
	equal(t, "claims", names(l), []string{})
	if !slices.Equal(k.has["desk"].Nodes, older.Nodes) {
		t.Error("what had the name was taken away")
	}
}

// The node of a device that root claims is root's alone, whoever had it, such as the user of a claim whose ledger was lost. It is theirs
// again afterwards.
func TestRootsClaimHasItsNode(t *testing.T) {
	ctx, k := t.Context(), newKernel()
	before := Ownership{UID: 1000, GID: 36, Mode: 0o660}
	l := open(t, filepath.Join(t.TempDir(), FileName), k, func(step string) {
		if step == "claim-taken" {
			k.set(func() { k.nodes["/dev/vfio/3"] = before })
		}
	})
	w := want("desk", 3)
	w.UID = 0
	if _, err := l.Take(ctx, w, nil); err != nil {
		t.Fatal(err)
	}
	equal(t, "claimed", k.nodes["/dev/vfio/3"], Ownership{Mode: 0o600})
	k.set(func() { k.nodes["/dev/vfio/3"] = before }) // as somebody gives it again
	l.Look(ctx)
	equal(t, "looked after", k.nodes["/dev/vfio/3"], Ownership{Mode: 0o600})
	if err := l.Release(ctx, "desk"); err != nil {
		t.Fatal(err)
	}
	equal(t, "while it was freed", k.whose, []Ownership{before})
}

// Nodes of which no claim tells are root's alone, and can be again what they were.
func TestDisown(t *testing.T) {
	k := newKernel()
	was := Ownership{UID: 1000, GID: 36, Mode: 0o666}
	k.nodes["/dev/vfio/3"] = was
	again := open(t, filepath.Join(t.TempDir(), FileName), k, nil).Disown(t.Context(), []string{"/dev/vfio/3", "/dev/vfio/4"})
	equal(t, "nodes", k.nodes, map[string]Ownership{"/dev/vfio/3": {Mode: 0o600}})
	again()
	equal(t, "nodes again", k.nodes, map[string]Ownership{"/dev/vfio/3": was})
}
