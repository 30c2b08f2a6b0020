package agent

import (
	"context"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// racing is a ledger before whose claims something happens.
type racing struct {
	*ledgerOf
	before func(name string)
}

func (l *racing) Take(ctx context.Context, w claims.Want, admit func([]pci.Address) error) (claims.Claim, error) {
	l.before(w.Name)
	return l.ledgerOf.Take(ctx, w, admit)
}

// A first function's claim ends after a second one has seen it and before that is in the ledger, and a share begins meanwhile: the second
// one is refused.
func TestSecondPartOfAGPUThatIsSharedMeanwhile(t *testing.T) {
	n := newNode(t)
	l := &racing{ledgerOf: &ledgerOf{}, before: func(string) {}}
	c := n.settings(onBus{n.backend, -1})
	c.Machines = l
	c.LetGo = func(do func() error) error { return do() }
	c.Returned = func(string) {}
	r := n.startAs(c)
	asked := func(name string, function uint8) control.TakeDeviceParams {
		at := addressOf(0)
		at.Function = function
		return control.TakeDeviceParams{Name: name, PCI: &at, Form: v1alpha1.BackendVF, UID: 1000}
	}
	if _, err := r.takeDevice(t.Context(), root, asked("vm", firstVirtual)); err != nil {
		t.Fatal(err)
	}
	onFirst := ask(gib)
	onFirst.Request.Name, onFirst.Request.Among = "train", []string{"0"}
	holder := n.asker(0)
	l.before = func(string) {
		if _, err := r.releaseDevice(t.Context(), root, control.ReleaseDeviceParams{Name: "vm"}); err != nil {
			t.Error(err)
		}
		n.grant(r, holder, onFirst)
	}
	_, err := r.takeDevice(t.Context(), root, asked("other", firstVirtual+1))
	if err == nil || !strings.Contains(err.Error(), "train: end them first") || len(l.all) != 0 {
		t.Errorf("the second function's claim: %v; the ledger has %d", err, len(l.all))
	}
	n.end(r, holder)
}
