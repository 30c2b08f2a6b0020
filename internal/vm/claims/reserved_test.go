package claims

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// What containers have no virtual machine gets, by the device or by one that would go with it, until the last one has given it back.
func TestReserved(t *testing.T) {
	ctx, k, path := t.Context(), newKernel(), filepath.Join(t.TempDir(), FileName)
	l := open(t, path, k, nil)
	reserve := func(key string, bus uint8) error {
		return l.Reserve(Reserved{Key: key, Name: "team/" + key, Functions: []pci.Address{companion(pci.Address{Bus: bus})}})
	}
	for _, key := range []string{"x", "y", "x"} {
		if err := reserve(key, 3); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"x", "y"} {
		l = open(t, path, k, nil)
		direct := want("a", 3)
		direct.Device = companion(direct.Device)
		for _, w := range []Want{want("a", 3), direct} {
			if _, err := l.Take(ctx, w, nil); !errors.Is(err, ErrTaken) {
				t.Errorf("%s while %s is there: %v", w.Device, key, err)
			}
		}
		if err := l.Unreserve(key); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "devices", len(k.has), 0)
	if _, err := l.Take(ctx, want("a", 3), nil); err != nil {
		t.Errorf("given back: %v", err)
	}
	if err := reserve("x", 3); !errors.Is(err, ErrTaken) {
		t.Errorf("a virtual machine's: %v", err)
	}
	equal(t, "reserved", l.Reserved(), []Reserved{})
}

// A container that is faster than the list of the group's functions keeps its function.
func TestReservedMeanwhile(t *testing.T) {
	ctx, k := t.Context(), newKernel()
	var l *Ledger
	l = open(t, filepath.Join(t.TempDir(), FileName), k, func(step string) {
		if step == "claim-entered" {
			if err := l.Reserve(Reserved{Key: "x", Name: "team/x", Functions: []pci.Address{companion(pci.Address{Bus: 3})}}); err != nil {
				t.Error(err)
			}
			if err := l.Reserve(Reserved{Key: "y", Name: "team/y", Functions: []pci.Address{{Bus: 3}}}); !errors.Is(err, ErrTaken) {
				t.Errorf("the function that is being taken: %v", err)
			}
		}
	})
	if _, err := l.Take(ctx, want("a", 3), nil); !errors.Is(err, ErrTaken) {
		t.Errorf("%v", err)
	}
	equal(t, "claims", names(l), []string{})
	equal(t, "devices", len(k.has), 0)
}

// The file of a version without reserved functions is read.
func TestLedgerOfTheVersionBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	state, err := json.Marshal([]Claim{{Want: want("a", 3), Given: Given{Group: 3}, Times: Times{Phase: Held}}})
	if err == nil {
		text := fmt.Sprintf(`{"kind": "claims", "version": 1, "sha256": "%x", "state": %s}`, sha256.Sum256(state), state)
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "claims", names(open(t, path, newKernel(), nil)), []string{"a held"})
}
