package agent

import (
	"os"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// What another tool did a moment ago is read before a request is refused.
func TestRefusalsAreOfWhatIsThere(t *testing.T) {
	q := newQuarry(t)
	all := q.mig.Foreign(t, firstID, "7g.80gb", 0)
	r := q.still()
	r.mu.Lock()
	r.intruders = []intruder{{pid: 1, uuid: firstID}}
	r.mu.Unlock()
	q.refusal(r, os.Getuid(), instanceOf("7g.80gb"))
	q.mig.TakeAway(t, firstID, all.UUID)
	asker := q.asker(os.Getuid())
	q.grant(r, asker, instanceOf("7g.80gb"))
	asker.end()
	eventually(t, "the share has ended", func() bool { return len(q.list(r).Tenants) == 0 })
	r.settleInstances(t.Context())
	q.has()
	q.mig.Turn(firstID, false)
	q.grant(r, q.asker(os.Getuid()), askOn("0", gib))
}

// A GPU that was put into MIG mode a moment ago serves a request for an instance.
func TestModeOfAMomentAgo(t *testing.T) {
	q := newQuarry(t)
	q.mig.Turn(firstID, false)
	r := q.still()
	q.mig.Turn(firstID, true)
	p := ask(8 * gib)
	p.Request.Backend = v1alpha1.BackendMIG
	if got := q.grant(r, q.asker(os.Getuid()), p).Tenant.Shares[0].Instance; got == nil || got.Profile != "1g.10gb" {
		t.Errorf("granted %+v", got)
	}
}

// An instance whose place somebody else took a moment ago is made at another one.
func TestPlaceThatWasTaken(t *testing.T) {
	q := newQuarry(t)
	r := q.still()
	asker := q.asker(os.Getuid())
	at := q.grant(r, asker, instanceOf("3g.40gb")).Tenant.Shares[0].Instance.Start
	asker.end()
	eventually(t, "the share has ended", func() bool { return len(q.list(r).Tenants) == 0 })
	r.settleInstances(t.Context())
	q.mig.Foreign(t, firstID, "2g.20gb", at)
	got := q.grant(r, q.asker(os.Getuid()), instanceOf("3g.40gb")).Tenant.Shares[0].Instance
	if got.Start == at {
		t.Errorf("granted %+v beside another tool's instance at %d", got, at)
	}
	if n := len(q.list(r).Tenants); n != 1 {
		t.Errorf("%d tenants", n)
	}
}
