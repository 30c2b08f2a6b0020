package claims

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// unresettable gives devices that nothing resets.
type unresettable struct{ *kernel }

func (u unresettable) Take(ctx context.Context, w Want, admit func([]pci.Address) error) (Given, error) {
	g, err := u.kernel.Take(ctx, w, admit)
	g.Unreset = g.Members
	return g, err
}

// A device that nothing resets goes to nobody else than who had it, also after the agent started again; others are free.
func TestDeviceThatNothingResets(t *testing.T) {
	k, path := newKernel(), filepath.Join(t.TempDir(), FileName)
	next := func() *Ledger {
		l := open(t, path, k, nil)
		l.config.Makers[v1alpha1.BackendPassthrough] = unresettable{k}
		return l
	}
	l := next()
	take := func(name string, uid int, cluster string) error {
		t.Helper()
		_, err := l.Take(t.Context(), Want{Name: name, UID: uid, Cluster: cluster, Form: v1alpha1.BackendPassthrough, Device: pci.Address{Bus: 7}}, nil)
		if err == nil {
			err = l.Release(t.Context(), name)
		}
		return err
	}
	if err := take("first", 1000, ""); err != nil {
		t.Fatal(err)
	}
	l = next()
	for _, other := range []error{take("second", 1001, ""), take("second", 1000, "team/vm")} {
		if !errors.Is(other, ErrUnreset) {
			t.Errorf("another user: %v, want %v", other, ErrUnreset)
		}
	}
	if all, _ := l.List(); len(all) != 0 || len(k.has) != 0 {
		t.Errorf("the refused claims left %+v and %v", all, k.has)
	}
	if _, err := l.Take(t.Context(), Want{Name: "part", Form: v1alpha1.BackendVF, Device: pci.Address{Bus: 8}}, nil); err != nil {
		t.Errorf("another device: %v", err)
	}
	if err := take("third", 1000, ""); err != nil {
		t.Errorf("the same user again: %v", err)
	}

	k, path = newKernel(), filepath.Join(t.TempDir(), FileName)
	l = next()
	if err := errors.Join(take("a", 0, "team/first"), take("b", 0, "team/second")); err != nil {
		t.Errorf("two claims of one namespace: %v", err)
	}
	if err := take("c", 0, "other/first"); !errors.Is(err, ErrUnreset) {
		t.Errorf("another namespace: %v, want %v", err, ErrUnreset)
	}
}

// A device that nothing resets goes to containers of no other namespace than whose virtual machine had it.
func TestContainersAfterAMachine(t *testing.T) {
	k := newKernel()
	l := open(t, filepath.Join(t.TempDir(), FileName), k, nil)
	l.config.Makers[v1alpha1.BackendPassthrough] = unresettable{k}
	for bus, w := range map[uint8]Want{7: {Name: "pod", Cluster: "team/vm"}, 8: {Name: "desk", UID: 1000}, 9: {Name: "roots"}} {
		w.Form, w.Device = v1alpha1.BackendPassthrough, pci.Address{Bus: bus}
		_, err := l.Take(t.Context(), w, nil)
		if err = errors.Join(err, l.Release(t.Context(), w.Name)); err != nil {
			t.Fatal(err)
		}
	}
	reserve := func(name string, bus uint8) error {
		return l.Reserve(Reserved{Key: name, Name: name, Functions: []pci.Address{{Bus: bus}}})
	}
	for _, err := range []error{reserve("other/card", 7), reserve("team/card", 8), reserve("team/card", 9)} {
		if !errors.Is(err, ErrUnreset) {
			t.Errorf("somebody else's: %v, want %v", err, ErrUnreset)
		}
	}
	if err := errors.Join(reserve("team/card", 7), reserve("other/card", 10)); err != nil {
		t.Errorf("the same namespace, and another device: %v", err)
	}
	if all := l.Reserved(); len(all) != 2 {
		t.Errorf("reserved are %+v", all)
	}
}

// halfBack puts devices back, and tells that something is not as it was.
type halfBack struct{ *kernel }

func (h halfBack) Release(ctx context.Context, owner string) ([]string, error) {
	_, err := h.kernel.Release(ctx, owner)
	return []string{"reset of 0000:07:00.0 failed"}, err
}

// What could not be put back when a claim ends is told to who listens.
func TestLeftIsTold(t *testing.T) {
	k := newKernel()
	l := open(t, filepath.Join(t.TempDir(), FileName), k, nil)
	l.config.Makers[v1alpha1.BackendPassthrough] = halfBack{k}
	var told []string
	l.Tell(func(c Claim, text string) { told = append(told, c.Device.String()+" "+text) })
	if _, err := l.Take(t.Context(), Want{Name: "train", Form: v1alpha1.BackendPassthrough, Device: pci.Address{Bus: 7}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context(), "train"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"0000:07:00.0 reset of 0000:07:00.0 failed"}; !slices.Equal(told, want) {
		t.Errorf("told is %q, want %q", told, want)
	}
}
