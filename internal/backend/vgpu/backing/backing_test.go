package backing_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend/vgpu"
	"github.com/divvy-gpu/divvy/internal/backend/vgpu/backing"
	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/pci"
)

const uuid = "GPU-a"

var gpu = pci.Address{Bus: 1}

func places(size int, starts ...int) (all []nvml.MIGPlacement) {
	for _, start := range starts {
		all = append(all, nvml.MIGPlacement{Start: start, Size: size})
	}
	return all
}

// driver has one GPU with three profiles of an A100.
type driver struct {
	instances []nvml.MIGInstance
	next      int
	broken    bool // compute instances cannot be made
}

func (d *driver) MIGMode(context.Context, string) (nvml.MIGMode, error) {
	return nvml.MIGMode{Current: true, Pending: true}, nil
}

func (d *driver) MIGProfiles(context.Context, string) ([]nvml.MIGProfile, error) {
	return []nvml.MIGProfile{
		{ID: 19, Name: "1g.5gb", Placements: places(1, 0, 1, 2, 3, 4, 5, 6)},
		{ID: 9, Name: "3g.20gb", Placements: places(4, 0, 4)},
		{ID: 0, Name: "7g.40gb", Placements: places(8, 0)},
	}, nil
}

func (d *driver) MIGInstances(context.Context, string) ([]nvml.MIGInstance, error) {
	return slices.Clone(d.instances), nil
}

func (d *driver) CreateMIGInstance(_ context.Context, _ string, profile int, at nvml.MIGPlacement) (int, error) {
	d.next++
	d.instances = append(d.instances, nvml.MIGInstance{ID: d.next, Profile: profile, Placement: at})
	return d.next, nil
}

func (d *driver) DestroyMIGInstance(_ context.Context, _ string, id int) error {
	d.instances = slices.DeleteFunc(d.instances, func(i nvml.MIGInstance) bool { return i.ID == id })
	return nil
}

func (d *driver) CreateMIGCompute(_ context.Context, _ string, instance int) (nvml.MIGCompute, error) {
	if d.broken {
		return nvml.MIGCompute{}, nvml.ErrSilent
	}
	at := slices.IndexFunc(d.instances, func(i nvml.MIGInstance) bool { return i.ID == instance })
	c := nvml.MIGCompute{UUID: fmt.Sprint("MIG-", instance)}
	d.instances[at].Compute = []nvml.MIGCompute{c}
	return c, nil
}

func (d *driver) DestroyMIGCompute(_ context.Context, _ string, instance, _ int) error {
	at := slices.IndexFunc(d.instances, func(i nvml.MIGInstance) bool { return i.ID == instance })
	d.instances[at].Compute = nil
	return nil
}

func open(t *testing.T, path string, d *driver) backing.MIG {
	t.Helper()
	book, err := mig.Open(path, d)
	if err != nil {
		t.Fatal(err)
	}
	return backing.MIG{Book: book, Driver: d, UUID: func(at pci.Address) string { return map[pci.Address]string{gpu: uuid}[at] }}
}

func TestInstances(t *testing.T) {
	ctx, d, path := t.Context(), &driver{}, filepath.Join(t.TempDir(), "mig.json")
	m := open(t, path, d)
	if _, err := m.Book.Create(ctx, uuid, nvml.MIGProfile{ID: 19, Name: "1g.5gb", Placements: places(1, 0)}, nvml.MIGPlacement{Size: 1}, "share"); err != nil {
		t.Fatal(err)
	}
	first, err := m.Make(ctx, gpu, "3g.20gb", "one")
	if err != nil || d.instances[1].Placement.Start != 4 {
		t.Fatalf("%d, %v, %+v; want it beside the share's", first, err, d.instances)
	}
	if again, err := open(t, path, d).Make(ctx, gpu, "3g.20gb", "one"); err != nil || again != first {
		t.Errorf("asked again: %d, %v; want %d", again, err, first)
	}
	for name, c := range map[string]struct {
		at             pci.Address
		profile, owner string
		want           error
	}{
		"another one of an owner": {gpu, "1g.5gb", "one", vgpu.ErrOwner},
		"no profile":              {gpu, "2g.10gb", "two", mig.ErrOccupied},
		"no room":                 {gpu, "3g.20gb", "two", mig.ErrOccupied},
		"no GPU":                  {pci.Address{Bus: 2}, "1g.5gb", "two", nvml.ErrVanished},
	} {
		if _, err := m.Make(ctx, c.at, c.profile, c.owner); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if owners := m.Owners(); !slices.Equal(owners, []string{"one"}) {
		t.Errorf("the owners are %v, want no share", owners)
	}
	for range 2 {
		if err := m.Take(ctx, "one"); err != nil || len(d.instances) != 1 {
			t.Errorf("taken away: %v, %+v; want the share's alone", err, d.instances)
		}
	}
}

// A driver that does not answer leaves a half made instance, whose owner is known and which is taken away.
func TestHalfInstance(t *testing.T) {
	d := &driver{broken: true}
	m := open(t, filepath.Join(t.TempDir(), "mig.json"), d)
	if _, err := m.Make(t.Context(), gpu, "1g.5gb", "one"); !errors.Is(err, nvml.ErrSilent) {
		t.Fatal(err)
	}
	if owners := m.Owners(); !slices.Equal(owners, []string{"one"}) || len(d.instances) != 1 {
		t.Fatalf("the owners are %v, the instances %+v", owners, d.instances)
	}
	if err := m.Take(t.Context(), "one"); err != nil || len(d.instances) != 0 || len(m.Owners()) != 0 {
		t.Errorf("%v, %+v", err, d.instances)
	}
}
