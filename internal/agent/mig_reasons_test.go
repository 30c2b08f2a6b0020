package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc/forms"
)

// A profile means a whole instance unless a backend is named, also where something is to be isolated.
func TestProfileMeansAnInstance(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	for _, wanted := range []v1alpha1.Backend{"", v1alpha1.BackendAuto} {
		for _, isolate := range []v1alpha1.Isolation{"", v1alpha1.IsolateFaults, v1alpha1.IsolateBandwidth} {
			p := instanceOf("1g.10gb")
			p.Request.Backend, p.Request.Isolate = wanted, isolate
			if got := q.grant(r, q.asker(os.Getuid()), p).Tenant.Shares[0]; got.Backend != v1alpha1.BackendMIG {
				t.Errorf("backend %q, isolate %q: %+v", wanted, isolate, got)
			}
			if verdicts, e := q.explained(r, os.Getuid(), p); !verdicts[v1alpha1.BackendMIG].Chosen || e.Request.Backend != v1alpha1.BackendMIG {
				t.Errorf("explained, backend %q, isolate %q: %+v", wanted, isolate, verdicts)
			}
		}
	}
	part := within("1g.10gb", v1alpha1.BackendSlice, gib)
	part.Request.Isolate = v1alpha1.IsolateFaults
	if verdicts, _ := q.explained(r, os.Getuid(), part); !verdicts[v1alpha1.BackendSlice].Chosen {
		t.Errorf("a part: %+v", verdicts)
	}
}

// Where instances have no room the refusal says why each of them has none, and calls it by its name.
func TestRefusalNamesInstances(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	other := &asker{peer: q.asker(os.Getuid()).peer}
	other.peer.UID, other.peer.Maker = bob, bob
	q.grant(r, other, within("7g.80gb", v1alpha1.BackendMPS, 2*gib))
	text, code := q.refusal(r, os.Getuid(), within("7g.80gb", v1alpha1.BackendMPS, 2*gib))
	if want := "MIG instance 7g.80gb at memory slice 0 of GPU 0 has shares of user"; code != control.CodeRefused || !strings.Contains(text, want) ||
		!strings.Contains(text, "has no room for a MIG instance 7g.80gb") {
		t.Errorf("%s, %s; want %q", code, text, want)
	}
}

// A full instance is named by a refusal, with who holds it and what would fit.
func TestFullInstances(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	share := within("7g.80gb", v1alpha1.BackendSlice, 60*gib)
	share.Request.Cores = 70
	holder := q.asker(os.Getuid())
	q.grant(r, holder, share)
	text, _ := q.refusal(r, os.Getuid(), within("7g.80gb", v1alpha1.BackendSlice, 40*gib))
	for _, want := range []string{"MIG instance 7g.80gb at memory slice 0 of GPU 0 has 20Gi of 80Gi not granted", " holds 60Gi", "ask for at most 20Gi"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s; want %q", text, want)
		}
	}
	small := within("7g.80gb", v1alpha1.BackendSlice, gib)
	second := q.asker(os.Getuid())
	name := q.grant(r, second, small).Tenant.Name
	cores := 40
	_, err := r.set(t.Context(), second.peer, control.SetParams{Tenant: name, Cores: &cores})
	if err == nil || !strings.Contains(err.Error(), "MIG instance 7g.80gb at memory slice 0 of GPU 0 has 30 of 100 cores left") {
		t.Errorf("more cores: %v", err)
	}
}

// An agent that makes no instances gives out those that are there, and says whose it is to make others.
func TestAgentThatMakesNoInstances(t *testing.T) {
	q := newQuarry(t)
	q.mig.Bookless = true
	q.mig.Foreign(t, firstID, "1g.10gb", 0)
	r := q.run("")
	p := ask(8 * gib)
	p.Request.Backend = v1alpha1.BackendMIG
	q.grant(r, q.asker(os.Getuid()), p)
	for what, p := range map[string]control.CreateParams{"by profile": instanceOf("2g.20gb"), "a second": p} {
		if text, code := q.refusal(r, os.Getuid(), p); code != control.CodeRefused || !strings.Contains(text, "making MIG instances is root's") {
			t.Errorf("%s: %s, %s", what, code, text)
		}
		verdicts, _ := q.explained(r, os.Getuid(), p)
		if v := verdicts[v1alpha1.BackendMIG]; v.State != forms.Waits || !strings.Contains(v.Reason, "making MIG instances is root's") {
			t.Errorf("explained, %s: %+v", what, v)
		}
	}
	p = ask(30 * gib)
	p.Request.Backend = v1alpha1.BackendMIG
	if text, code := q.refusal(r, os.Getuid(), p); code != control.CodeInvalid || !strings.Contains(text, "the largest is 1g.10gb") {
		t.Errorf("more than there is: %s, %s", code, text)
	}
	q.has("1g.10gb@0 foreign")
}

// What not even root could have is no question of rights.
func TestTooLargeForAnybody(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	p := ask(1000 * gib)
	p.Request.Backend = v1alpha1.BackendMIG
	verdicts, _ := q.explained(r, bob, p)
	for _, b := range []v1alpha1.Backend{v1alpha1.BackendMPS, v1alpha1.BackendMIG} {
		if v := verdicts[b]; v.State != forms.Never || strings.Contains(v.Reason, "root") {
			t.Errorf("%s: %+v", b, v)
		}
	}
}

// What has no meaning in an instance of one's own is said to have none, and its size is a matter of its own.
func TestChangesOfOwnInstances(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	asker := q.asker(os.Getuid())
	name := q.grant(r, asker, instanceOf("1g.10gb")).Tenant.Name
	weight, memory := 3, v1alpha1.Bytes(gib)
	for want, p := range map[string]control.SetParams{"nobody with whom": {Weight: &weight}, "size cannot be changed": {Memory: &memory}} {
		p.Tenant = name
		if _, err := r.set(t.Context(), asker.peer, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// To take back a change that was pending turns nothing on or off.
func TestPendingModeIsTakenBack(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	q.mig.Leave(firstID)
	if err := q.turn(r, "0", true); err != nil {
		t.Fatal(err)
	}
	if !q.tells(r, control.EventGPU, "the MIG mode of GPU 0 stays on after its next reset") || q.tells(r, control.EventGPU, "was turned") {
		t.Errorf("events %+v", q.list(r).Events)
	}
}
