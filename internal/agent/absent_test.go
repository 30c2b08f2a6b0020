package agent

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// fewer is a backend that has lost its first GPU.
type fewer struct{ *pages }

func (b fewer) Discover(ctx context.Context) ([]backend.GPU, error) {
	gpus, err := b.pages.Discover(ctx)
	return gpus[1:], err
}

// What the scheduler counts of GPUs that are taken as a whole is told, also by the next
// agent. Who has asked waits on a channel for the next change.
func TestWholes(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.prepared(r, claimed("share", gib, 0))
	counted, changed := r.Wholes()
	if len(counted) > 0 {
		t.Errorf("told %v", counted)
	}
	exclusive := claimed("exclusive", 20*gib, 5)
	exclusive.Shares[0].UUID, exclusive.Shares[0].Exclusive = otherID, true
	exclusive.Shares[0].Config.Policy = v1alpha1.PolicyWeighted
	n.prepared(r, exclusive)
	<-changed
	r.stopAgent()
	r = n.start()
	if counted, changed = r.Wholes(); !maps.Equal(counted, map[string]uint64{otherID: 20 * gib}) {
		t.Errorf("told %v", counted)
	}
	n.prepared(r, exclusive)
	if got := n.list(r).Tenants[1].Shares[0]; !got.Whole || got.Limit != 24*gib || got.Cores != 5 {
		t.Errorf("granted is %+v", got)
	}
	if err := r.Release(t.Context(), "exclusive"); err != nil {
		t.Fatal(err)
	}
	<-changed
	n.prepared(r, wholeGPU("whole", otherID))
	if counted, _ = r.Wholes(); !maps.Equal(counted, map[string]uint64{otherID: 0}) {
		t.Errorf("told %v", counted)
	}
}

// An agent that lost its checkpoint takes up a whole GPU that the scheduler counts as a
// share, by what is kept beside its pages or by the pages alone.
func TestExclusiveSharesWithoutACheckpoint(t *testing.T) {
	n := newNode(t)
	r := n.start()
	exclusive := claimed("exclusive", 20*gib, 0)
	exclusive.Shares[0].UUID, exclusive.Shares[0].Exclusive = otherID, true
	dir := n.prepared(r, exclusive)
	r.stopAgent()
	if err := os.Remove(filepath.Join(n.dir, "tenants.json")); err != nil {
		t.Fatal(err)
	}
	r = n.start()
	if got := n.prepared(r, exclusive); got != dir {
		t.Errorf("%s became %s", dir, got)
	}
	if counted, _ := r.Wholes(); counted[otherID] != 20*gib {
		t.Errorf("told %v", counted)
	}
	if _, err := r.Prepare(t.Context(), wholeGPU("second", otherID)); err == nil {
		t.Error("the GPU was given away twice")
	}
}

// What an agent holds of GPUs that were lost before it started is told until it is
// released.
func TestAbsentGPUs(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.prepared(r, claimed("a", 4*gib, 0))
	n.prepared(r, claimed("b", 2*gib, 0))
	n.prepared(r, wholeGPU("c", otherID))
	if held, _ := r.Absent(); len(held) > 0 {
		t.Errorf("all are there, and %v are told", held)
	}
	r.stopAgent()
	a := n.idleWith(fewer{n.backend})
	held, changed := a.Absent()
	if want := map[string]uint64{firstID: 6 * gib}; !maps.Equal(held, want) {
		t.Errorf("told %v, want %v", held, want)
	}
	for _, key := range []string{"a", "b"} {
		if err := a.Release(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	<-changed
	if held, _ := a.Absent(); len(held) > 0 {
		t.Errorf("%v are told after their release", held)
	}
}
