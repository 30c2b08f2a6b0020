package agent

import (
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// No total falls, whatever a page tells after it was damaged.
func TestTotalsNeverFall(t *testing.T) {
	var h highest
	h.keep(&control.Share{
		Time:     &control.Time{Launches: 7, Waited: 5, HeldBackTotal: 4, Charged: 9},
		Refusals: &control.Refusals{Count: 3, ByGPU: 1, Largest: 10, Last: 6},
	})
	damaged := control.Share{Time: &control.Time{Launches: 2, Waited: 8}}
	h.keep(&damaged)
	if now := damaged.Time; now.Launches != 7 || now.Waited != 8 || now.HeldBackTotal != 4 || now.Charged != 9 {
		t.Errorf("times %+v", now)
	}
	if r := damaged.Refusals; r == nil || r.Count != 3 || r.Largest != 10 {
		t.Errorf("refusals %+v", r)
	}
	less := control.Share{Refusals: &control.Refusals{Count: 1, Largest: 12, Last: 12}}
	h.keep(&less)
	if r := less.Refusals; r.Count != 3 || r.ByGPU != 1 || r.Largest != 12 || r.Last != 12 {
		t.Errorf("refusals %+v", r)
	}
}
