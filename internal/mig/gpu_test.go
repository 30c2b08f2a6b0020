package mig

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
)

// gpu is a GPU in MIG mode that keeps the driver's rules: instances do not overlap, and what is used or not empty does
// not go away. It is driver of one GPU, whatever its UUID.
type gpu struct {
	off       bool
	instances []Instance
	busy      map[string]bool // compute instances that a process uses
	last      int             // ID that was given
	// fail is asked before every change, and its error returned.
	fail func(call string) error
}

// seven are the profiles of a GPU with eight memory slices, in part: enough for every rule.
var seven = []Profile{
	{ID: 19, Name: "1g.10gb", Bytes: 10 << 30, Compute: 0, Placements: []Placement{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}}},
	{ID: 14, Name: "2g.20gb", Bytes: 20 << 30, Compute: 1, Placements: []Placement{{0, 2}, {2, 2}, {4, 2}}},
	{ID: 9, Name: "3g.40gb", Bytes: 40 << 30, Compute: 2, Placements: []Placement{{0, 4}, {4, 4}}},
}

func newGPU() *gpu { return &gpu{busy: map[string]bool{}, fail: func(string) error { return nil }} }

func (g *gpu) Mode(context.Context, string) (Mode, error) {
	return Mode{Current: !g.off, Pending: !g.off}, nil
}
func (g *gpu) Profiles(context.Context, string) ([]Profile, error) { return seven, nil }

func (g *gpu) Instances(context.Context, string) ([]Instance, error) {
	all := slices.Clone(g.instances)
	for i := range all {
		all[i].Compute = slices.Clone(all[i].Compute)
	}
	return all, nil
}

func (g *gpu) CreateInstance(_ context.Context, _ string, profile int, at Placement) (int, error) {
	if err := g.fail("create-instance"); err != nil {
		return 0, err
	}
	for _, i := range g.instances {
		if i.Placement.overlaps(at) {
			return 0, ErrOccupied
		}
	}
	g.last++
	g.instances = append(g.instances, Instance{ID: g.last, Profile: profile, Placement: at})
	return g.last, nil
}

func (g *gpu) find(id int) (int, error) {
	at := slices.IndexFunc(g.instances, func(i Instance) bool { return i.ID == id })
	if at < 0 {
		return 0, ErrVanished
	}
	return at, nil
}

func (g *gpu) DestroyInstance(_ context.Context, _ string, id int) error {
	if err := g.fail("destroy-instance"); err != nil {
		return err
	}
	at, err := g.find(id)
	if err != nil {
		return err
	}
	if len(g.instances[at].Compute) > 0 {
		return ErrBusy
	}
	g.instances = slices.Delete(g.instances, at, at+1)
	return nil
}

func (g *gpu) CreateCompute(_ context.Context, _ string, instance, _ int) (Compute, error) {
	if err := g.fail("create-compute"); err != nil {
		return Compute{}, err
	}
	at, err := g.find(instance)
	if err != nil {
		return Compute{}, err
	}
	c := Compute{UUID: fmt.Sprintf("MIG-%d-%d", g.instances[at].Profile, g.instances[at].Placement.Start)}
	g.instances[at].Compute = append(g.instances[at].Compute, c)
	return c, nil
}

func (g *gpu) DestroyCompute(_ context.Context, _ string, instance, id int) error {
	if err := g.fail("destroy-compute"); err != nil {
		return err
	}
	at, err := g.find(instance)
	if err != nil {
		return err
	}
	i := &g.instances[at]
	c := slices.IndexFunc(i.Compute, func(c Compute) bool { return c.ID == id })
	if c < 0 {
		return ErrVanished
	}
	if g.busy[i.Compute[c].UUID] {
		return ErrBusy
	}
	i.Compute = slices.Delete(i.Compute, c, c+1)
	return nil
}

// foreign makes an instance as another tool does.
func (g *gpu) foreign(t *testing.T, profile Profile, at Placement) Instance {
	t.Helper()
	id, err := g.CreateInstance(t.Context(), "a", profile.ID, at)
	if err == nil {
		_, err = g.CreateCompute(t.Context(), "a", id, profile.Compute)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g.instances[len(g.instances)-1]
}

func open(t *testing.T, path string, g Driver) *Book {
	t.Helper()
	b, err := Open(path, g)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func path(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "mig.json")
}

var errFault = errors.New("the driver failed")
