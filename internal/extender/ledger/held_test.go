package ledger

import (
	"errors"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Where somebody removes what an agent holds, nothing is known to be free until the agent says it again.
func TestHeldIsRemoved(t *testing.T) {
	l := newLedger(t, alloc.DefaultPolicy)
	all := gpus("n0", 1, 40*gib)
	held := &v1alpha1.NodeHeld{GPUs: []v1alpha1.GPUHeld{{UUID: all[0].UUID, Memory: 35 * gib, Tenants: 1, Form: v1alpha1.BackendSlice}}}
	n := nodeOf(t, "n0", all, held)
	l.SetNode("n0", n)
	asking := podOf(t, "a", ask("main", 1, 10*gib, 0))
	if v := verdicts(t, l, asking, "n0"); v[0].Kind != Full {
		t.Errorf("%+v", v)
	}
	removed := n.DeepCopy()
	delete(removed.Annotations, v1alpha1.HeldAnnotation)
	l.SetNode("n0", removed)
	if v := verdicts(t, l, asking, "n0"); v[0].Kind != Unreadable || !strings.Contains(v[0].Text, v1alpha1.HeldAnnotation) {
		t.Errorf("%+v", v)
	}
	if _, err := l.Reserve(asking, "n0"); !errors.Is(err, ErrTaken) {
		t.Errorf("a place on a node of which it is not known what is held: %v", err)
	}
	check(t, l)
	l.SetNode("n0", n)
	if v := verdicts(t, l, asking, "n0"); v[0].Kind != Full || len(l.Fences()) != 0 {
		t.Errorf("%+v, %+v", v, l.Fences())
	}
	if v := verdicts(t, l, podOf(t, "b", ask("main", 1, 5*gib, 0)), "n0"); v[0].Kind != Fits {
		t.Errorf("%+v", v)
	}
	check(t, l)
}
