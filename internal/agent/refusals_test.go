package agent

import (
	"math"
	"os"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// Listings show what a page tells of refused allocations, and no time at which the tenant
// did not exist.
func TestRefusalsAreListed(t *testing.T) {
	n := newNode(t)
	b := newInstances(t)
	r := n.startWith(b)
	owner := n.asker(os.Getuid())
	id := n.grant(r, owner, ask(8*gib)).Tenant.ID
	b.use(id, owner.cmd.Process.Pid, 2*gib)
	created := n.list(r).Tenants[0].Created
	for _, c := range []struct { // in this order: no count that was shown falls
		name string
		told *backend.Refusals
		want *control.Refusals
	}{
		{name: "none"},
		{"by limit", &backend.Refusals{ByLimit: 2, Largest: 9, Last: 7, At: created.Add(time.Minute)}, &control.Refusals{Count: 2, Largest: 9, Last: 7, At: created.Add(time.Minute), By: control.RefuserLimit}},
		{
			"by the GPU, before it was",
			&backend.Refusals{ByLimit: math.MaxUint32, ByGPU: math.MaxUint32, LastByGPU: true},
			&control.Refusals{Count: 2 * math.MaxUint32, ByGPU: math.MaxUint32, At: created, By: control.RefuserGPU},
		},
	} {
		b.find(func(f *backend.Figures) { f.Usage[0].Refusals = c.told })
		got := n.list(r).Tenants[0].Shares[0].Refusals
		if (got == nil) != (c.want == nil) || got != nil && (*got != *c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// No page makes a share wait for longer than it exists, or have more than its GPU.
func TestFiguresOfPagesAreBounded(t *testing.T) {
	for _, c := range []struct {
		told, yielded uint64
		age           time.Duration
		want, part    uint64
	}{
		{3, 2, 5, 3, 2}, {7, 6, 5, 5, 5}, {3, 4, 5, 3, 3}, {math.MaxUint64, 1, -1, 0, 0},
	} {
		time := control.Time{HeldBackTotal: c.told, Yielded: c.yielded}
		time.Waited, time.Launches, time.Overdrawn = math.MaxUint64, math.MaxUint64, math.MaxUint64
		boundTime(&time, c.age)
		if most := uint64(max(c.age, 0)); time.Waited > most*mostWaiting || time.Launches > most || time.Overdrawn > most {
			t.Errorf("%+v: %+v", c, time)
		}
		if time.HeldBackTotal != c.want || time.Yielded != c.part {
			t.Errorf("%+v: %+v", c, time)
		}
	}
}

// A peak that no look saw is believed, as far as the GPU has memory.
func TestPeakBetweenLooks(t *testing.T) {
	n := newNode(t)
	b := newInstances(t)
	r := n.startWith(b)
	owner := n.asker(os.Getuid())
	id := n.grant(r, owner, ask(8*gib)).Tenant.ID
	b.use(id, owner.cmd.Process.Pid, gib)
	total := n.list(r).GPUs[0].Total
	for _, c := range []struct{ told, want uint64 }{{0, gib}, {3 * gib, 3 * gib}, {2 * gib, 3 * gib}, {math.MaxUint64, total}} {
		b.find(func(f *backend.Figures) { f.Usage[0].Peak = c.told })
		if got := n.list(r).Tenants[0].Shares[0].Peak; got != c.want {
			t.Errorf("told %d: %d, want %d", c.told, got, c.want)
		}
	}
	share := control.Share{Used: math.MaxUint64, Peak: math.MaxUint64, Overhead: 3}
	if boundMemory(&share, 8*gib); share.Used != 8*gib || share.Peak != 8*gib || share.Overhead != 3 {
		t.Errorf("%+v", share)
	}
}
