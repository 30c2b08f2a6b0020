package mig

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// gpu is a GPU in MIG mode that keeps the driver's rules: instances do not overlap, and what is used or not empty does
// not go away. It is driver of one GPU, whatever its UUID.
type gpu struct {
	off       bool
	instances []nvml.MIGInstance
	busy      map[string]bool // compute instances that a process uses
	last      int             // ID that was given
	// fail is asked before every change, and its error returned.
	fail func(call string) error
}

// seven are the profiles of a GPU with eight memory slices, in part: enough for every rule.
var seven = []nvml.MIGProfile{
	{ID: 19, Name: "1g.10gb", Bytes: 10 << 30, Placements: starts(1, 0, 1, 2, 3, 4, 5, 6)},
	{ID: 14, Name: "2g.20gb", Bytes: 20 << 30, Placements: starts(2, 0, 2, 4)},
	{ID: 9, Name: "3g.40gb", Bytes: 40 << 30, Placements: starts(4, 0, 4)},
}

func slicesAt(start, size int) nvml.MIGPlacement {
	return nvml.MIGPlacement{Start: start, Size: size}
}

func starts(size int, starts ...int) (all []nvml.MIGPlacement) {
	for _, start := range starts {
		all = append(all, slicesAt(start, size))
	}
	return all
}

func newGPU() *gpu { return &gpu{busy: map[string]bool{}, fail: func(string) error { return nil }} }

func (g *gpu) MIGMode(context.Context, string) (nvml.MIGMode, error) {
	return nvml.MIGMode{Current: !g.off, Pending: !g.off}, nil
}
func (g *gpu) MIGProfiles(context.Context, string) ([]nvml.MIGProfile, error) { return seven, nil }

func (g *gpu) MIGInstances(context.Context, string) ([]nvml.MIGInstance, error) {
	all := slices.Clone(g.instances)
	for i := range all {
		all[i].Compute = slices.Clone(all[i].Compute)
	}
	return all, nil
}

func (g *gpu) CreateMIGInstance(_ context.Context, _ string, profile int, at nvml.MIGPlacement) (int, error) {
	if err := g.fail("create-instance"); err != nil {
		return 0, err
	}
	for _, i := range g.instances {
		if overlap(i.Placement, at) {
			return 0, nvml.ErrNoRoom
		}
	}
	g.last++
	g.instances = append(g.instances, nvml.MIGInstance{ID: g.last, Profile: profile, Placement: at})
	return g.last, nil
}

func (g *gpu) find(id int) (int, error) {
	at := slices.IndexFunc(g.instances, func(i nvml.MIGInstance) bool { return i.ID == id })
	if at < 0 {
		return 0, nvml.ErrNotFound
	}
	return at, nil
}

func (g *gpu) DestroyMIGInstance(_ context.Context, _ string, id int) error {
	if err := g.fail("destroy-instance"); err != nil {
		return err
	}
	at, err := g.find(id)
	if err != nil {
		return err
	}
	if len(g.instances[at].Compute) > 0 {
		return nvml.ErrInUse
	}
	g.instances = slices.Delete(g.instances, at, at+1)
	return nil
}

func (g *gpu) CreateMIGCompute(_ context.Context, _ string, instance int) (nvml.MIGCompute, error) {
	if err := g.fail("create-compute"); err != nil {
		return nvml.MIGCompute{}, err
	}
	at, err := g.find(instance)
	if err != nil {
		return nvml.MIGCompute{}, err
	}
	c := nvml.MIGCompute{UUID: fmt.Sprintf("MIG-%d-%d", g.instances[at].Profile, g.instances[at].Placement.Start)}
	g.instances[at].Compute = append(g.instances[at].Compute, c)
	return c, nil
}

func (g *gpu) DestroyMIGCompute(_ context.Context, _ string, instance, id int) error {
	if err := g.fail("destroy-compute"); err != nil {
		return err
	}
	at, err := g.find(instance)
	if err != nil {
		return err
	}
	i := &g.instances[at]
	c := slices.IndexFunc(i.Compute, func(c nvml.MIGCompute) bool { return c.ID == id })
	if c < 0 {
		return nvml.ErrNotFound
	}
	if g.busy[i.Compute[c].UUID] {
		return nvml.ErrInUse
	}
	i.Compute = slices.Delete(i.Compute, c, c+1)
	return nil
}

// foreign makes an instance as another tool does.
func (g *gpu) foreign(t *testing.T, profile nvml.MIGProfile, at nvml.MIGPlacement) nvml.MIGInstance {
	t.Helper()
	id, err := g.CreateMIGInstance(t.Context(), "a", profile.ID, at)
	if err == nil {
		_, err = g.CreateMIGCompute(t.Context(), "a", id)
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
