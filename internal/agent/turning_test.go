package agent

import (
	"context"
	"math"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// The gate of a swap share is open while its processes are asked to end, and not for good where they do not.
func TestStopOpensTheGate(t *testing.T) {
	n := newNode(t)
	r := n.swapping(64 * gib)
	asker := n.askerOf(os.Getuid(), exec.Command("sh", "-c", `trap "" TERM; echo; while :; do sleep 1; done`))
	one := n.grant(r, asker, swap("1", 10*gib, 2*gib)).Tenant
	n.grant(r, n.asker(0), swap("1", 10*gib, 2*gib))
	d := tenantdir.Dir(one.Dir)
	turns, err := page.OpenTurns(d.Config(), d.State(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = turns.Close() })
	state := func() uint64 {
		order, err := turns.Order(0)
		if err != nil {
			t.Error(err)
		}
		return order.Order & (1<<page.TurnBits - 1)
	}
	eventually(t, "it takes turns", func() bool { return state() == page.TurnResident })
	r.mu.Lock()
	held := r.tenants[one.ID]
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- r.stopTenant(ctx, held, time.Minute, "a test stops it") }()
	eventually(t, "its gate is open", func() bool { return state() == page.TurnOpen })
	cancel()
	if err := <-ended; err == nil {
		t.Error("it ended")
	}
	eventually(t, "it takes turns again", func() bool { return state() == page.TurnResident })
	r.part(held)
	if held.parting {
		t.Error("its gate opens a second time")
	}
}

// Swap shares have together what is left beside other shares and what never leaves the GPU; a suspended share leaves them its
// memory.
func TestRooms(t *testing.T) {
	n := newNode(t)
	r := n.swapping(64 * gib)
	room := func() uint64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.rooms()[r.gpus[1].UUID]
	}
	n.grant(r, n.asker(0), swap("1", 10*gib, 2*gib))
	n.grant(r, n.asker(0), swap("1", 8*gib, 3*gib))
	idle := n.grant(r, n.asker(0), suspending("1", 8*gib)).Tenant
	all := r.gpus[1].Capacity()
	if got := room(); got != all-13*gib {
		t.Errorf("%d of %d bytes", got, all)
	}
	if err := r.ReserveHost(t.Context(), idle.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.LeaveGPUs(t.Context(), idle.ID); err != nil {
		t.Fatal(err)
	}
	if got := room(); got != all-5*gib {
		t.Errorf("%d of %d bytes beside a suspended one", got, all)
	}
}

// A page full of nonsense spoils no sum, and no total falls.
func TestTurnsAreBounded(t *testing.T) {
	told := control.Turns{MovedIn: math.MaxUint64, MovedOut: 5, Moving: math.MaxUint64, Held: math.MaxUint64, Turns: 3}
	boundTurns(&told, 2*time.Second)
	if told.MovedIn != 200_000_000_000 || told.MovedOut != 5 || told.Moving != 2_000_000_000 || told.Held != 2_000_000_000 {
		t.Errorf("%+v", told)
	}
	resident := control.Turns{OnGPU: 54 * gib}
	if boundResident(&resident, []backend.Usage{{Used: 2 * gib, Kept: gib}}, 0); resident.OnGPU != gib {
		t.Errorf("%d bytes are resident of 1 GiB", resident.OnGPU)
	}
	var kept highest
	kept.keep(&control.Share{Turns: &told})
	again := control.Turns{MovedIn: 7, MovedOut: 9}
	kept.keep(&control.Share{Turns: &again})
	if again.MovedIn != told.MovedIn || again.MovedOut != 9 || again.Held != told.Held || again.Turns != 3 {
		t.Errorf("%+v", again)
	}
}
