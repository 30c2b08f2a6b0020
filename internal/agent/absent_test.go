package agent

import (
	"context"
	"maps"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend"
)

// fewer is a backend that has lost its first GPU.
type fewer struct{ *pages }

func (b fewer) Discover(ctx context.Context) ([]backend.GPU, error) {
	gpus, err := b.pages.Discover(ctx)
	return gpus[1:], err
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
