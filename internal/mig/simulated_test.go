package mig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// One library can be open in a process, so each machine is used in one of its own.
const (
	libraryVariable = "MIG_TEST_LIBRARY"
	directory       = "MIG_TEST_DIRECTORY"
)

func TestMain(m *testing.M) {
	path := os.Getenv(libraryVariable)
	if path == "" {
		os.Exit(m.Run())
	}
	if err := use(path, os.Getenv(directory)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// library is a machine's first GPU.
type library struct {
	Library
	opened *nvml.Library
}

func (library) Users(context.Context, string) ([]string, error) { return nil, nil }

func (l library) SetMIGMode(_ context.Context, _ string, on bool) error {
	return l.opened.SetMIGMode(0, on)
}

// use is what the process of a machine does: mode, instances of every profile in every placement, a refusal, the end.
func use(path, dir string) error {
	opened, err := nvml.Open(path)
	if err != nil {
		return err
	}
	l, ctx := library{Library{opened, map[string]int{"gpu": 0}}, opened}, context.Background()
	if _, err := l.MIGInstances(ctx, "gpu"); err == nil {
		return errors.New("a GPU that is not in MIG mode lists instances")
	}
	switch err := SetMode(ctx, l, "gpu", true, 0); {
	case errors.Is(err, ErrReset):
		fmt.Println("reset")
		mode, err := l.MIGMode(ctx, "gpu")
		if err != nil || mode != (nvml.MIGMode{}) {
			return fmt.Errorf("after a mode that needs a reset: %+v, %w", mode, err)
		}
		return nil
	case err != nil:
		return err
	}
	if _, err := l.MIGInstances(ctx, "another"); !errors.Is(err, nvml.ErrVanished) {
		return fmt.Errorf("a GPU that is not there: %w", err)
	}
	profiles, err := l.MIGProfiles(ctx, "gpu")
	if err != nil {
		return err
	}
	b, err := Open(filepath.Join(dir, "mig.json"), l)
	if err != nil {
		return err
	}
	for _, profile := range profiles {
		for _, at := range profile.Placements {
			if err := makeOne(ctx, l, b, profile, at); err != nil {
				return fmt.Errorf("%s at %d: %w", profile.Name, at.Start, err)
			}
		}
	}
	return SetMode(ctx, l, "gpu", false, 0)
}

// makeOne makes an instance, compares it with what the driver lists, sees a second one refused, and takes it away.
func makeOne(ctx context.Context, l library, b *Book, profile nvml.MIGProfile, at nvml.MIGPlacement) error {
	e, err := b.Create(ctx, "gpu", profile, at, "share")
	if err != nil {
		return err
	}
	fmt.Println(profile.Name, at.Start, at.Size)
	listed, err := l.MIGInstances(ctx, "gpu")
	if err != nil {
		return err
	}
	for i := range listed {
		for k := range listed[i].Compute {
			c := &listed[i].Compute[k]
			if c.Reserved == 0 {
				return fmt.Errorf("the driver keeps nothing of the memory of %s", profile.Name)
			}
			c.Reserved = 0 // how much it keeps is the simulated driver's to say
		}
	}
	want := []nvml.MIGInstance{{ID: e.ID, Profile: profile.ID, Placement: at, Compute: []nvml.MIGCompute{{ID: e.Compute, UUID: e.UUID, Slices: profile.Slices}}}}
	if !slices.EqualFunc(listed, want, func(a, b nvml.MIGInstance) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		return fmt.Errorf("the driver lists %v, want %v", listed, want)
	}
	if _, err := l.CreateMIGInstance(ctx, "gpu", profile.ID, at); !errors.Is(err, nvml.ErrNoRoom) {
		return fmt.Errorf("a second one there: %w, want %w", err, nvml.ErrNoRoom)
	}
	if err := l.DestroyMIGInstance(ctx, "gpu", e.ID); !errors.Is(err, nvml.ErrInUse) {
		return fmt.Errorf("away while it has a compute instance: %w, want %w", err, nvml.ErrInUse)
	}
	if err := b.Destroy(ctx, e.UUID); err != nil {
		return err
	}
	if err := l.DestroyMIGInstance(ctx, "gpu", e.ID); !errors.Is(err, nvml.ErrNotFound) {
		return fmt.Errorf("away twice: %w, want %w", err, nvml.ErrNotFound)
	}
	return nil
}

// The simulated machines list profiles as the driver does, so what is made of them is what their files say.
func TestSimulatedMachines(t *testing.T) {
	for machine, want := range map[string]string{
		"h200x8":   "1g.18gb 0 1\n",
		"h100x8":   "3g.40gb 4 4\n",
		"b200x8":   "7g.180gb 0 8\n",
		"a30":      "1g.6gb 3 1\n",
		"a100-80g": "7g.80gb 0 8\n",
		"a800x8":   "reset\n", // whose driver cannot reset it here
	} {
		loaded, err := simgpu.Load(machine)
		if err != nil {
			t.Fatal(err)
		}
		store := simgpu.NewStore(t.TempDir(), installtest.Tree(t))
		instance, err := store.Start(t.Context(), "m", loaded, "m")
		if err != nil {
			t.Fatal(err)
		}
		if want == "reset\n" {
			if err := store.Inject(t.Context(), instance, 0, simgpu.Injection{Call: simgpu.CallNoReset}); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), libraryVariable+"="+filepath.Join(instance.Dir, "libnvidia-ml.so.1"), directory+"="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", machine, err, out)
		}
		if !slices.Contains(slices.Collect(strings.Lines(string(out))), want) {
			t.Errorf("%s: it has no line %q:\n%s", machine, want, out)
		}
	}
}
