package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/page"
)

func TestCounted(t *testing.T) {
	amount := func(n uint64) *uint64 { return &n }
	for name, c := range map[string]struct {
		limit, before  uint64
		told, observed *uint64
		want           uint64
	}{
		"never lowered":               {4, 0, amount(3), amount(3), 4},
		"never lowered, and exceeded": {4, 0, amount(3), amount(9), 4},
		"raised, with less before":    {8, 4, amount(9), amount(9), 8},
		"lowered":                     {1, 4, amount(3), amount(3), 3},
		"pages tell less":             {1, 4, amount(0), amount(3), 3},
		"the driver is late":          {1, 4, amount(3), amount(0), 3},
		"no more than it had":         {1, 4, amount(9), amount(9), 4},
		"given back in part":          {1, 4, amount(2), amount(2), 2},
		"given back":                  {1, 4, amount(1), amount(1), 1},
		"less than the limit":         {2, 4, amount(0), amount(0), 2},
		"raised again":                {8, 4, amount(3), amount(3), 8},
		"nobody tells":                {1, 4, nil, nil, 4},
		"only pages tell of more":     {1, 4, amount(3), nil, 4},
		"only pages tell of less":     {1, 4, amount(1), nil, 1},
		"only the driver tells":       {1, 4, nil, amount(2), 2},
	} {
		tenant := &tenant{record: record{Shares: []share{{UUID: firstID, Limit: c.limit, Before: c.before}}}}
		if c.told != nil {
			tenant.seen.Usage = []backend.Usage{{Used: *c.told}}
		}
		tenant.watched(firstID).observed = c.observed
		had := tenant.counted(0)
		if gave := tenant.giveBack(); tenant.counted(0) != c.want || gave != (c.want < had) {
			t.Errorf("%s: %d, want %d; given back %v", name, tenant.counted(0), c.want, gave)
		}
		// What others may have by now does not come back.
		tenant.watched(firstID).observed = amount(9)
		if tenant.giveBack(); tenant.counted(0) != c.want {
			t.Errorf("%s: later %d, want %d", name, tenant.counted(0), c.want)
		}
		if tenant.watched(firstID).pending, tenant.watched(firstID).observed = true, amount(0); tenant.giveBack() {
			t.Errorf("%s: given back what may be a process's that is not known yet", name)
		}
	}
}

// Memory that is in use is not granted again when a limit is lowered below it: neither
// to its user beyond what they may have, nor to a neighbour. Whoever waits gets it when
// it is free, and no sooner.
func TestLoweredLimitSellsNothingInUse(t *testing.T) {
	for name, forged := range map[string]bool{"told": false, "pages tell of nothing": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := n.ruled("users: {ada: {memory: 8Gi}}")
			owner := n.asker(ada)
			created := n.grant(r, owner, askOn("0", 8*gib))
			pid := owner.cmd.Process.Pid
			var own *slot
			if !forged {
				own = n.enter(created.Tenant.Dir, 0, pid, 7*gib)
			}
			n.driver.list(nvml.Process{PID: pid, Used: 7 * gib})
			n.list(r)
			memory := v1alpha1.Bytes(gib)
			for range 2 {
				if _, err := r.set(t.Context(), owner.peer, control.SetParams{Tenant: created.Tenant.ID, Memory: &memory, BelowUsed: true}); err != nil {
					t.Fatal(err)
				}
			}
			if got := n.list(r).GPUs[0].Granted; got != 7*gib {
				t.Errorf("granted %d, want 7 GiB", got)
			}
			if got, code := n.refusal(r, ada, askOn("0", 2*gib)); code != control.CodeRefused || !strings.Contains(got, "you have 7Gi of memory, the request needs 2Gi more") {
				t.Errorf("beyond the user's limit: %q (%s)", got, code)
			}
			if got, code := n.refusal(r, bob, askOn("0", 74*gib)); code != control.CodeRefused || !strings.Contains(got, "holds 7Gi") {
				t.Errorf("memory in use: %q (%s)", got, code)
			}
			w := n.wait(r, n.asker(os.Getuid()), askOn("0", 79*gib))
			if !forged {
				writeSlot(own.file, own.at, uint32(pid), gib/2/page.Unit)
			}
			n.driver.list(nvml.Process{PID: pid, Used: gib / 2})
			r.sweep(t.Context())
			if err := <-w.done; err != nil {
				t.Error(err)
			}
			if got := n.list(r).GPUs[0].Granted; got != 80*gib {
				t.Errorf("granted %d, want 80 GiB", got)
			}
		})
	}
}
