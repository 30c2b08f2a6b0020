package cli

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/modes"
)

func TestDoctorOfForms(t *testing.T) {
	for want, g := range map[string]control.Formed{
		"":                                    {Form: "timeslice", Modes: []control.GPUMode{{Mode: "compute-mode", Value: "default"}, {Mode: "time-slice", Value: "long", Made: "long", Before: "default"}}},
		"Divvy made it short, and it is long": {Form: "timeslice", Modes: []control.GPUMode{{Mode: "time-slice", Value: "long", Made: "short", Before: "default"}}},
		"its compute mode is exclusive-process, which Divvy did not set": {Modes: []control.GPUMode{{Mode: "compute-mode", Value: "exclusive-process"}}},
		"there is no nvidia-smi": {Form: "timeslice", Modes: []control.GPUMode{{Mode: "time-slice", Unknown: "there is no nvidia-smi"}}},
	} {
		checks := formChecks(&control.Forms{GPUs: []control.Formed{g}})
		switch {
		case want == "" && len(checks) > 0:
			t.Errorf("a sound GPU: %+v", checks)
		case want != "" && (len(checks) != 1 || checks[0].Status != doctor.Warn || checks[0].Next == "" || !strings.Contains(checks[0].Found, want)):
			t.Errorf("%+v, want %q", checks, want)
		}
	}
}

// What gives a GPU its form says how it gets it again: `divvy gpu set` is refused where a configuration does.
func TestDoctorOfAModeGivenByTheFile(t *testing.T) {
	changed := []control.GPUMode{{Mode: "time-slice", Value: "long", Made: "short", Before: "default"}}
	for given, want := range map[control.Given]bool{control.GivenByFile: false, control.GivenByHand: true, control.GivenNone: false} {
		checks := formChecks(&control.Forms{GPUs: []control.Formed{{Form: "timeslice", Given: given, Modes: changed}}})
		if len(checks) != 1 || strings.Contains(checks[0].Next, "divvy gpu set") != want {
			t.Errorf("form given by %q: %+v", given, checks)
		}
	}
}

// plainGPU has usual modes and takes every other.
type plainGPU struct{ value string }

func (g *plainGPU) Mode(context.Context, string, modes.Mode) (string, error) { return g.value, nil }
func (g *plainGPU) Users(context.Context, string) ([]modes.User, error)      { return nil, nil }
func (g *plainGPU) SetMode(_ context.Context, _ string, _ modes.Mode, value string) error {
	g.value = value
	return nil
}

func TestDoctorOfModesThatAreLeft(t *testing.T) {
	dir := t.TempDir()
	if checks := leftModes(dir, sight{}.nameOf); len(checks) != 0 {
		t.Errorf("without a book: %+v", checks)
	}
	book, err := modes.Open(filepath.Join(dir, modes.FileName), &plainGPU{"default"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := book.Set(t.Context(), "GPU-a", modes.TimeSlice, "long"); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]sight{
		"the time-slice of GPU-a is long, and was default": {},
		"the time-slice of GPU 3 is long, and was default": {indexes: map[string]int{"GPU-a": 3}},
	} {
		checks := leftModes(dir, s.nameOf)
		if len(checks) != 1 || strings.Count(checks[0].Found, want) != 1 {
			t.Errorf("%+v, want %q once", checks, want)
		}
	}
}
