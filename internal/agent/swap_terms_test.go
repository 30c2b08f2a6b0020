package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// Both parts of a swap share change with its memory, within the host's memory and the GPU's.
func TestSetOfASwapShare(t *testing.T) {
	n := newNode(t)
	r := n.swapping(24 * gib)
	created := n.grant(r, n.asker(0), swap("1", 10*gib, 0))
	set := func(memory uint64, more func(*control.SetParams)) (control.Share, string) {
		amount := v1alpha1.Bytes(memory)
		p := control.SetParams{Tenant: created.Tenant.ID, Memory: &amount}
		if more != nil {
			more(&p)
		}
		got, err := r.set(t.Context(), root, p)
		if err != nil {
			return control.Share{}, err.Error()
		}
		return got.Shares[0], ""
	}
	if s, text := set(20*gib, nil); text != "" || s.Limit != 20*gib || s.Swap.Kept != 2*gib || s.Swap.Room != 18*gib {
		t.Errorf("%+v, %+v, %s", s, s.Swap, text)
	}
	if _, text := set(25*gib, nil); !strings.Contains(text, "can hold in a turn") {
		t.Errorf("larger than the GPU: %s", text)
	}
	over := func(p *control.SetParams) { p.Overcommit = true }
	if _, text := set(25*gib, over); !strings.Contains(text, "24Gi of the 24Gi of host memory for swapped and suspended shares is left, and this needs 25Gi") {
		t.Errorf("more than the host has: %s", text)
	}
	if s, text := set(4*gib, nil); text != "" || s.Swap.Kept != gib || s.Swap.Room != 3*gib {
		t.Errorf("%+v, %+v, %s", s, s.Swap, text)
	}
	if l := n.list(r); l.SwapMemory.Granted != 4*gib || l.GPUs[1].Granted != 4*gib {
		t.Errorf("%+v of %+v", l.SwapMemory, l.GPUs[1])
	}
	told, err := page.ReadConfig(tenantdir.Dir(created.Tenant.Dir).Config())
	if err != nil || told.Device[0].Limit != 3*gib || told.Device[1].Limit != gib {
		t.Errorf("its processes read %d and %d, %v", told.Device[0].Limit, told.Device[1].Limit, err)
	}
}

// What is in use of either part is not taken away, and counts until it is given back.
func TestLoweredSwapShare(t *testing.T) {
	had := share{UUID: firstID, Limit: 20 * gib, Turn: 18 * gib, ShareConfig: v1alpha1.ShareConfig{Swap: true}}
	for name, c := range map[string]struct {
		used, kept         uint64
		memory             uint64
		text               string
		before, beforeKept uint64
		counted, onHost    uint64
	}{
		"little in use":      {4 * gib, gib, 10 * gib, "", 0, 0, gib, 10 * gib},
		"much that can swap": {14 * gib, gib, 10 * gib, "13312 MiB of what can leave GPU %d", 20 * gib, 0, gib, 20 * gib},
		"much that is kept":  {4 * gib, 3 * gib / 2, 10 * gib, "1536 MiB of what stays on GPU %d", 0, 2 * gib, 2 * gib, 10 * gib},
	} {
		tn := &tenant{record: record{Shares: []share{had}}}
		tn.seen.Usage = []backend.Usage{{Used: c.used, Kept: c.kept}}
		s := had
		s.Limit = c.memory
		if text := tn.lowered(0, &s); !strings.Contains(text, c.text) || (text == "") != (c.text == "") || s.Before != c.before || s.BeforeKept != c.beforeKept {
			t.Errorf("%s: %q, %+v", name, text, s)
		}
		tn.Shares[0] = s
		if tn.counted(0) != c.counted || tn.onHost(0) != c.onHost {
			t.Errorf("%s: %d of the GPU, %d of the host", name, tn.counted(0), tn.onHost(0))
		}
		tn.giveBack()
		if kept := max(s.kept(), c.kept); tn.counted(0) != kept {
			t.Errorf("%s: %d counted after %d are kept", name, tn.counted(0), c.kept)
		}
		tn.seen.Usage = []backend.Usage{{Used: gib, Kept: gib}}
		tn.giveBack()
		if tn.counted(0) != gib || tn.onHost(0) != 10*gib {
			t.Errorf("%s: at last %d of the GPU, %d of the host", name, tn.counted(0), tn.onHost(0))
		}
	}
}

// What a user's own agent gave of the host is bounded by what the administrator allows the user, too.
func TestInheritedSwapIsBounded(t *testing.T) {
	n := newNode(t)
	r := n.swapping(64 * gib)
	mine := &tenant{record: record{ID: "x", UID: 1000, Shares: []share{{UUID: otherID, Limit: 20 * gib, ShareConfig: v1alpha1.ShareConfig{Swap: true, Kept: v1alpha1.Bytes(3 * gib)}}}}}
	mine.Shares[0].Default(0)
	r.mu.Lock()
	r.bound(&mine.record, nil, agentconfig.Limits{SwapMemory: 10 * gib})
	r.mu.Unlock()
	if s := mine.Shares[0]; s.Limit != 10*gib || s.kept() != 3*gib {
		t.Errorf("%d, of which %d are kept", s.Limit, s.kept())
	}
}

// A swap share of a user's own agent goes on with both of its parts, within what the system agent gives of the host, and
// counts with what it may have in use of more. Suspension is the word of its user, so it counts on its GPU too.
func TestSwapIsInherited(t *testing.T) {
	for name, c := range map[string]struct {
		memory            uint64
		limit, turn, host uint64
	}{
		"with room":    {64 * gib, 20 * gib, 17 * gib, 24 * gib},
		"with less":    {8 * gib, 8 * gib, 5 * gib, 12 * gib},
		"with nothing": {0, 3*gib + v1alpha1.BlockBytes, v1alpha1.BlockBytes, 7*gib + v1alpha1.BlockBytes},
	} {
		t.Run(name, func(t *testing.T) {
			own := newNode(t)
			r := own.swapping(64 * gib)
			own.grant(r, own.asker(os.Getuid()), swap("1", 20*gib, 3*gib))
			suspended := own.grant(r, own.asker(os.Getuid()), suspending("1", 4*gib))
			own.must(r.ReserveHost(t.Context(), suspended.Tenant.ID))
			own.must(r.LeaveGPUs(t.Context(), suspended.Tenant.ID))
			own.must(r.Leave(t.Context()))
			r.stopAgent()
			n := newNode(t)
			r = n.swapping(c.memory)
			n.must(r.Inherit(t.Context(), []Heritage{{UID: os.Getuid(), Tenants: own.backend.dir}}, unlimited))
			l := n.list(r)
			if len(l.Tenants) != 2 || l.Tenants[0].Shares[0].Swap == nil || l.Tenants[1].Shares[0].SuspendAfter != v1alpha1.MinSuspendAfter {
				t.Fatalf("%+v", l.Tenants)
			}
			s, g := l.Tenants[0].Shares[0], l.GPUs[1]
			if s.Limit != c.limit || s.Swap.Kept != 3*gib || g.TurnRoom != c.turn || g.Granted != 7*gib+c.turn || l.SwapMemory.Granted != c.host {
				t.Errorf("%+v, %+v: %+v, %+v", s, s.Swap, g, l.SwapMemory)
			}
			if away, err := r.AwayOf(l.Tenants[1].ID); err != nil || away != AwayLeaving {
				t.Errorf("%q, %v", away, err)
			}
			told, err := page.ReadConfig(tenantdir.Dir(l.Tenants[0].Dir).Theirs())
			if err != nil || told.Device[0].Limit != s.Limit-3*gib || told.Device[1].Limit != 3*gib {
				t.Errorf("its processes read %d and %d, %v", told.Device[0].Limit, told.Device[1].Limit, err)
			}
		})
	}
}

// What another agent told a swap share's processes later counts, as far as there is room.
func TestSwapIsToldByAnotherAgent(t *testing.T) {
	had := share{UUID: otherID, Limit: 12 * gib, Turn: 10 * gib, ShareConfig: v1alpha1.ShareConfig{Swap: true, Kept: v1alpha1.Bytes(2 * gib)}}
	had.Default(0)
	for name, c := range map[string]struct {
		limit, kept         uint64
		wantLimit, wantKept uint64
	}{
		"as it was":                 {12 * gib, 2 * gib, 12 * gib, 2 * gib},
		"less":                      {6 * gib, gib, 6 * gib, gib},
		"more within the host":      {14 * gib, 2 * gib, 14 * gib, 2 * gib},
		"more than the host has":    {17 * gib, 2 * gib, 12 * gib, 2 * gib},
		"more that stays, and fits": {12 * gib, 3 * gib, 12 * gib, 3 * gib},
		"more that stays than fits": {14 * gib, 13 * gib, 12 * gib, 2 * gib},
		"a turn larger than fits":   {16 * gib, 2 * gib, 12 * gib, 2 * gib},
	} {
		n := newNode(t)
		r := n.swapping(20 * gib)
		n.grant(r, n.asker(0), askOn("1", 8*gib))
		n.grant(r, n.asker(0), swap("1", 4*gib, gib))
		mine := &tenant{record: record{ID: "x", Shares: []share{had}}}
		r.mu.Lock()
		r.tenants["x"] = mine
		terms := toldShare(&backend.Tenant{Swap: true}, backend.Share{GPU: backend.GPU{UUID: otherID}, Limit: c.limit, Kept: c.kept}, v1alpha1.BackendSlice)
		changed := mine.record
		changed.Shares = []share{had.with(terms)}
		r.squeeze(mine, &changed)
		delete(r.tenants, "x")
		r.mu.Unlock()
		if s := changed.Shares[0]; s.Limit != c.wantLimit || s.kept() != c.wantKept {
			t.Errorf("%s: %d, of which %d are kept", name, s.Limit, s.kept())
		}
	}
}
