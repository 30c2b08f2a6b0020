package claims

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// A function on which containers had limits leaves its driver for nobody, by itself or with its group, also after they gave it back and
// the agent started again. What was reserved without limits is free.
func TestFunctionThatHadLimits(t *testing.T) {
	k, path := newKernel(), filepath.Join(t.TempDir(), FileName)
	l := open(t, path, k, nil)
	reserve := func(key string, limited []pci.Address, functions ...pci.Address) {
		t.Helper()
		if err := l.Reserve(Reserved{Key: key, Name: "team/" + key, Functions: functions, Limited: limited}); err != nil {
			t.Fatal(err)
		}
	}
	card, other, free := companion(pci.Address{Bus: 3}), companion(pci.Address{Bus: 2}), companion(pci.Address{Bus: 4})
	reserve("x", nil, card, free) // as of an agent of an earlier version
	reserve("x", []pci.Address{card}, card, free)
	reserve("y", []pci.Address{other, card}, card, other)
	for _, key := range []string{"x", "y"} {
		if err := l.Unreserve(key); err != nil {
			t.Fatal(err)
		}
	}
	l = open(t, path, k, nil)
	equal(t, "limited", l.Limited(), []pci.Address{other, card})
	direct := want("a", 3)
	direct.Device = card
	for _, w := range []Want{want("a", 3), direct, want("a", 2)} {
		if _, err := l.Take(t.Context(), w, nil); !errors.Is(err, ErrLimited) || !strings.Contains(err.Error(), "restart the host") {
			t.Errorf("%s: %v, want %v", w.Device, err, ErrLimited)
		}
	}
	equal(t, "claims", names(l), []string{})
	equal(t, "devices", len(k.has), 0)
	if _, err := l.Take(t.Context(), want("a", 4), nil); err != nil {
		t.Errorf("without limits: %v", err)
	}
	if err := l.MayLeave([]pci.Address{free}); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

// What is taken for limited stays so, beside what is.
func TestLimit(t *testing.T) {
	k, path := newKernel(), filepath.Join(t.TempDir(), FileName)
	l := open(t, path, k, nil)
	one, other := companion(pci.Address{Bus: 3}), companion(pci.Address{Bus: 2})
	for _, functions := range [][]pci.Address{{one}, {other, one}, nil} {
		if err := l.Limit(functions); err != nil {
			t.Fatal(err)
		}
	}
	l = open(t, path, k, nil)
	equal(t, "limited", l.Limited(), []pci.Address{other, one})
	if err := l.MayLeave([]pci.Address{one}); !errors.Is(err, ErrLimited) {
		t.Error(err)
	}
}
