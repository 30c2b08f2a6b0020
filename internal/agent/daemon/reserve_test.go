package daemon

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend/vgpu"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/sysfs/sysfstest"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// Of a container's use of a virtual function and its being taken away, one gives way, whichever comes first.
func TestFunctionsAndContainers(t *testing.T) {
	card, one := pci.Address{Bus: 0x41}, pci.Address{Bus: 0x41, Function: 1}
	files := fstest.MapFS{}
	link := func(at, to string) { sysfstest.Set(files, at, "->"+to) }
	for _, a := range []pci.Address{card, one} {
		link("sys/bus/pci/devices/"+a.String(), "../../../devices/pci0000:40/"+a.String())
		files["sys/devices/pci0000:40/"+a.String()+"/class"] = &fstest.MapFile{Data: []byte("0x020000\n")}
	}
	link("sys/devices/pci0000:40/"+card.String()+"/virtfn0", "../"+one.String())
	m := &machines{vgpus: vgpu.New(vgpu.Options{Root: files})}
	var err error
	if m.Ledger, err = claims.Open(claims.Config{Path: filepath.Join(t.TempDir(), claims.FileName), Now: time.Now, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	used := claims.Reserved{Key: "x", Name: "team/x", Functions: []pci.Address{card, one}}
	end := m.going.begin([]pci.Address{card, one})
	if err := m.Reserve(used); !errors.Is(err, claims.ErrBusy) || len(m.Reserved()) != 0 {
		t.Errorf("a function that is being taken away is reserved: %v, %v", err, m.Reserved())
	}
	end()
	if err := m.Reserve(used); err != nil {
		t.Fatal(err)
	}
	if _, err := m.SetFunctions(t.Context(), card, 0); !errors.Is(err, vgpu.ErrUsed) || !strings.Contains(err.Error(), "team/x") {
		t.Errorf("functions are taken away that a container has: %v", err)
	}
	limits := claims.Reserved{Key: "y", Name: "team/y", Functions: []pci.Address{card}, Limited: []pci.Address{card}}
	if err := errors.Join(m.Unreserve("x"), m.Reserve(limits), m.Unreserve("y")); err != nil {
		t.Fatal(err)
	}
	if _, err := m.SetFunctions(t.Context(), card, 0); !errors.Is(err, claims.ErrLimited) {
		t.Errorf("functions of a card on which containers had limits are taken away: %v", err)
	}
	if err := m.Reserve(used); err != nil {
		t.Fatal(err)
	}
	defer m.going.begin([]pci.Address{one})() // as where somebody asks for that just now
	if err := m.Reserve(used); err != nil || len(m.Reserved()) != 1 {
		t.Errorf("what is reserved already: %v, %v", err, m.Reserved())
	}
}
