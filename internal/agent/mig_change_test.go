package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// An instance that somebody else takes away under a share is told, and not made again.
func TestInstanceVanishes(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	asker := q.asker(os.Getuid())
	made := q.grant(r, asker, instanceOf("1g.10gb")).Tenant
	q.mig.TakeAway(t, firstID, made.Shares[0].Instance.UUID)
	if _, err := r.forms(t.Context(), root, struct{}{}); err != nil {
		t.Fatal(err)
	}
	if line := <-q.told; !strings.Contains(line, made.Name) || !strings.Contains(line, "taken away by somebody else") {
		t.Errorf("told %q", line)
	}
	l := q.list(r)
	if !strings.Contains(l.Tenants[0].Fault, "taken away by somebody else") {
		t.Errorf("listed with fault %q", l.Tenants[0].Fault)
	}
	r.stopAgent()
	r = q.run("")
	if l := q.list(r); len(l.Tenants) != 1 || !strings.Contains(l.Tenants[0].Fault, "taken away") {
		t.Errorf("after a restart: %+v", l.Tenants)
	}
	q.has()
	asker.end()
	eventually(t, "the share has ended", func() bool { return len(q.list(r).Tenants) == 0 })
}

// A GPU whose layout is fixed serves with the instances that it has.
func TestFixedLayout(t *testing.T) {
	q := newQuarry(t)
	q.mig.Foreign(t, firstID, "2g.20gb", 4)
	r := q.run("backends: {mig: {gpus: [0], layout: fixed}}")
	if text, code := q.refusal(r, os.Getuid(), instanceOf("1g.10gb")); code != control.CodeRefused || !strings.Contains(text, "keeps its layout fixed") {
		t.Errorf("%s, %s", code, text)
	}
	p := ask(5 * gib)
	p.Request.Backend = v1alpha1.BackendMIG
	if got := q.grant(r, q.asker(os.Getuid()), p).Tenant.Shares[0].Instance.Profile; got != "2g.20gb" {
		t.Errorf("by amounts: %s", got)
	}
	if text, code := q.refusal(r, os.Getuid(), instanceOf("2g.20gb")); code != control.CodeRefused || !strings.Contains(text, "keeps its layout fixed") {
		t.Errorf("%s, %s", code, text)
	}
}

// The form of a GPU in MIG mode is mig, whatever others are given; what contradicts it is said.
func TestFormOfMIGMode(t *testing.T) {
	q := newQuarry(t)
	r := q.run("backends: {timeslice: [0]}")
	if text, code := q.refusal(r, os.Getuid(), instanceOf("1g.10gb")); code != control.CodeRefused || !strings.Contains(text, "it is in MIG mode, and the administrator gave it backend timeslice") {
		t.Errorf("another form: %s, %s", code, text)
	}
	r.stopAgent()
	r = q.run("backends: {mig: [0, 1]}")
	if text, code := q.refusal(r, os.Getuid(), askOn("1", gib)); code != control.CodeInvalid || !strings.Contains(text, "backend mig") {
		t.Errorf("a GPU to be in MIG mode: %s, %s", code, text)
	}
	f, err := r.forms(t.Context(), root, struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	if f.GPUs[0].Form != v1alpha1.BackendMIG || f.GPUs[0].MIG == nil || !f.GPUs[0].MIG.On || f.GPUs[0].Fault != "" {
		t.Errorf("GPU 0 is %+v", f.GPUs[0])
	}
	if !strings.Contains(f.GPUs[1].Fault, "divvy gpu set 1 --mig on") {
		t.Errorf("GPU 1 has fault %q", f.GPUs[1].Fault)
	}
	if free := f.GPUs[0].MIG.Profiles[0]; free.Name != "1g.10gb" || len(free.Free) != 7 || free.Multiprocessors != 16 {
		t.Errorf("profile %+v", free)
	}
}
