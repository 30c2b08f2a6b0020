package claims

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// Where the makers do not know what they have given, claims stay as they are, and each says why.
func TestMakersThatDoNotKnow(t *testing.T) {
	k, path := newKernel(), filepath.Join(t.TempDir(), FileName)
	w := Want{Name: "train", Form: v1alpha1.BackendPassthrough, Device: pci.Address{Bus: 7}}
	if _, err := open(t, path, k, nil).Take(t.Context(), w, nil); err != nil {
		t.Fatal(err)
	}
	why := errors.New("vfio.json is damaged")
	l, err := Open(Config{
		Path: path, Nodes: k, Now: time.Now, Log: slog.New(slog.DiscardHandler), Broken: why,
		Makers: map[v1alpha1.Backend]Maker{v1alpha1.BackendPassthrough: newKernel()}, // it has nothing, as a lost book
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Recover(t.Context()); err != nil {
		t.Error(err)
	}
	var told []string
	l.Tell(func(c Claim, text string) { told = append(told, c.Name+": "+text) })
	l.Look(t.Context())
	if err := l.Release(t.Context(), "train"); !errors.Is(err, why) {
		t.Errorf("released: %v, want %v", err, why)
	}
	w.Name, w.Device.Bus = "other", 8
	if _, err := l.Take(t.Context(), w, nil); !errors.Is(err, why) {
		t.Errorf("taken: %v, want %v", err, why)
	}
	all, _ := l.List()
	if len(all) != 1 || all[0].Phase != Held || all[0].Fault != why.Error() || !slices.Equal(told, []string{"train: " + why.Error()}) {
		t.Errorf("there is %+v, and told is %q", all, told)
	}
}
