package binding_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
)

// Functions of a GPU that makes vGPUs get its driver, others get none, and what was changed for that is undone.
func TestEnableFunctions(t *testing.T) {
	at := pci.Address{Bus: 1}
	for driver, c := range map[string]struct{ steps, taken, others string }{
		"nvidia": {"enable", `"nvidia"`, "probed=true"},
		"gim":    {"withhold enable", `""`, "probed=false"},
	} {
		d := facts.Device{Driver: driver, VFsTotal: 4}
		d.Address = at
		kernel := vmtest.NewKernel(&facts.Host{Devices: []facts.Device{d}})
		before := kernel.Snapshot()
		plan, err := binding.EnableFunctions(&vgpu.GPU{Address: at, Driver: driver, FunctionsTotal: 4, Probed: "1"}, pci.AllFunctions)
		if err != nil {
			t.Fatal(err)
		}
		var steps []string
		for _, s := range plan.Steps {
			steps = append(steps, string(s.Kind))
			if err := kernel.Do(s); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(steps, " "); got != c.steps || plan.Enabled() != 4 || plan.Form != binding.FormFunctions {
			t.Errorf("%s: steps %s, %d functions, form %s", driver, got, plan.Enabled(), plan.Form)
		}
		want := fmt.Sprintf("%s driver=%q override=\"\" virtual=4 %s\n", at, driver, c.others)
		for n := 1; n <= 4; n++ {
			want += fmt.Sprintf("%s driver=%s override=\"\"\n", vmtest.Virtual(at, n), c.taken)
		}
		if got := kernel.Snapshot(); got != want {
			t.Errorf("%s: there is\n%swant\n%s", driver, got, want)
		}
		for _, s := range slices.Backward(plan.Steps) {
			if err := kernel.Undo(s); err != nil {
				t.Fatal(err)
			}
		}
		if after := kernel.Snapshot(); after != before {
			t.Errorf("%s: afterwards there is\n%swant\n%s", driver, after, before)
		}
	}
}

// Whoever has functions keeps them: their number changes from none alone, and within what the device can have.
func TestFunctionsRefused(t *testing.T) {
	for _, c := range []struct {
		total, now, count int
		text              string
	}{
		{4, 0, 0, "1 to 4, not 0"},
		{4, 0, 5, "1 to 4, not 5"},
		{4, 0, -2, "1 to 4, not -2"},
		{4, 2, 3, "it has 2, and their number changes only from 0"},
		{4, 2, 2, "it has 2, and their number changes only from 0"},
		{4, 4, pci.AllFunctions, "it has 4"},
		{0, 0, 1, "it can have none"},
		{0, 0, pci.AllFunctions, "it can have none"},
	} {
		_, err := binding.EnableFunctions(&vgpu.GPU{Address: pci.Address{Bus: 1}, FunctionsTotal: c.total, FunctionsNow: c.now}, c.count)
		if !errors.Is(err, binding.ErrFunctions) || !strings.Contains(err.Error(), c.text) || !strings.HasPrefix(err.Error(), "enable virtual functions of 0000:01:00.0: ") {
			t.Errorf("%d functions of %d, of which there are %d: %v, want %s", c.count, c.total, c.now, err, c.text)
		}
	}
}
