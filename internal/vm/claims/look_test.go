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

// slow is a kernel in which something happens while a claim is looked at.
type slow struct {
	*kernel
	meanwhile func()
}

func (s *slow) Standing(owner string) Standing {
	standing := s.kernel.Standing(owner)
	if act := s.meanwhile; act != nil {
		s.meanwhile = nil
		act()
	}
	return standing
}

// A node that outlives its claim, as that of a virtual function, is never given to who had the claim before.
func TestReleasedWhileLookedAt(t *testing.T) {
	s := &slow{kernel: newKernel()}
	l, err := Open(Config{
		Path: filepath.Join(t.TempDir(), FileName), Nodes: s, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Makers: map[v1alpha1.Backend]Maker{v1alpha1.BackendPassthrough: s},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Take(t.Context(), want("train", 7), nil)
	if err != nil || len(c.Nodes) == 0 {
		t.Fatalf("%+v: %v", c, err)
	}
	roots := Ownership{Mode: 0o600}
	for _, again := range []bool{false, true} {
		s.set(func() { s.nodes[c.Nodes[0]] = roots }) // as udev does
		s.meanwhile = func() {
			if err := l.Release(t.Context(), "train"); err != nil {
				t.Error(err)
			}
			s.set(func() { s.nodes[c.Nodes[0]] = roots })
			if again {
				next := want("train", 7)
				next.UID = 0
				if _, err := l.Take(t.Context(), next, nil); err != nil {
					t.Error(err)
				}
			}
		}
		l.Look(t.Context())
		if got, err := s.Owner(c.Nodes[0]); err != nil || got.UID != 0 {
			t.Errorf("claimed again %v: the node is %+v: %v", again, got, err)
		}
		if !again {
			if _, err := l.Take(t.Context(), want("train", 7), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}
