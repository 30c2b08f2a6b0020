package agent

import (
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// Physical is the first function of a device for those that the tests call virtual.
func (l *ledgerOf) Physical(function pci.Address) (pci.Address, bool) {
	at := function
	at.Function = 0
	return at, function.Function >= firstVirtual
}

// firstVirtual is the number of a device's first virtual function in tests.
const firstVirtual = 4

// A GPU with a virtual function that a virtual machine has takes no shares though its function was named by address, stays with its driver,
// and gives another function; one with shares gives none.
func TestFunctionOfAGPU(t *testing.T) {
	for _, form := range []v1alpha1.Backend{v1alpha1.BackendVF, v1alpha1.BackendVGPU} {
		n, l := newNode(t), &ledgerOf{}
		var letGo int
		var returned string
		r := n.machined(l, -1, &letGo, &returned)
		asked := func(name string, function uint8) control.TakeDeviceParams {
			at := addressOf(0)
			at.Function = function
			return control.TakeDeviceParams{Name: name, PCI: &at, Form: form, UID: 1000}
		}
		onFirst := ask(gib)
		onFirst.Request.Name, onFirst.Request.Among = "train", []string{"0"}
		holder := n.asker(0)
		n.grant(r, holder, onFirst)
		if _, err := r.takeDevice(t.Context(), root, asked("vm", firstVirtual)); control.CodeOf(err) != control.CodeRefused || !says(err, "GPU 0 has shares", "train") || len(l.all) != 0 {
			t.Errorf("%s of a GPU with a share: %v, there is %v", form, err, l.all)
		}
		n.end(r, holder)
		for i, name := range []string{"vm", "other"} {
			if _, err := r.takeDevice(t.Context(), root, asked(name, firstVirtual+uint8(i))); err != nil {
				t.Errorf("%s of a GPU without shares: %v", form, err)
			}
		}
		if _, err := r.create(t.Context(), n.asker(0).peer, onFirst); control.CodeOf(err) != control.CodeRefused || !says(err, "claim vm", string(form)) {
			t.Errorf("a share of a GPU whose function a machine has: %v", err)
		}
		if uuid := r.gpus[0].UUID; r.IsAway(uuid) || letGo != 0 {
			t.Errorf("the GPU is away: %t; the agent let go of the driver %d times", r.IsAway(uuid), letGo)
		}
	}
}
