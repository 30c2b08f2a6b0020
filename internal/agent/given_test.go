package agent

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// ofBackend is a tenancy with a share of the first GPU.
func ofBackend(key string, b v1alpha1.Backend) Tenancy {
	t := claimed(key, gib, 0)
	t.Shares[0].Config.Backend = b
	return t
}

// allOf is a tenancy with all of the first GPU, as a claim has it.
func (f *forge) allOf(r *running, key string, b v1alpha1.Backend) Tenancy {
	t := ofBackend(key, b)
	t.Shares[0].Memory, t.Shares[0].Exclusive = r.GPUs()[0].Capacity(), true
	return t
}

// A claim gets a whole GPU in the form that it wants, whatever form the GPU is given, and the GPU gets that again.
func TestWholeGPUInAnyForm(t *testing.T) {
	f := newForge(t)
	r := f.run("backends: {mps: [0]}", nil)
	eventually(t, "it has the form that it is given", func() bool { return f.silicon.changed() == exclusiveFirst })
	for b, want := range map[v1alpha1.Backend]string{v1alpha1.BackendSlice: unchanged, v1alpha1.BackendTimeslice: longFirst} {
		f.prepared(r, f.allOf(r, "a", b))
		if got := f.silicon.changed(); got != want {
			t.Errorf("whole with backend %s: %s, want %s", b, got, want)
		}
		if _, err := r.Prepare(t.Context(), ofBackend("b", v1alpha1.BackendMPS)); err == nil {
			t.Error("there is a share beside it")
		}
		if err := r.Release(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it has the form that it is given again", func() bool { return f.silicon.changed() == exclusiveFirst })
	}
}

// A claim that was allocated before the GPU was given another form is prepared, beside others of its kind and of no other.
func TestClaimOfTheFormBefore(t *testing.T) {
	f := newForge(t)
	r := f.run("backends: {mps: [0]}", nil)
	f.prepared(r, ofBackend("a", v1alpha1.BackendSlice))
	f.prepared(r, ofBackend("b", v1alpha1.BackendSlice))
	if _, err := r.Prepare(t.Context(), ofBackend("c", v1alpha1.BackendMPS)); err == nil || !strings.Contains(err.Error(), "backend slice") {
		t.Errorf("a share of MPS beside slices: %v", err)
	}
	if got := f.silicon.changed(); got != unchanged {
		t.Errorf("with slices: %s", got)
	}
}

// A claim that has a whole GPU may say how long its time slices are, also through a restart of the agent.
func TestIntervalOfAClaim(t *testing.T) {
	f := newForge(t)
	r := f.run("backends: {timeslice: {gpus: [0], slice: short}}", nil)
	eventually(t, "slices are short", func() bool { return f.silicon.changed() == shortFirst })
	wanted := f.allOf(r, "a", v1alpha1.BackendTimeslice)
	wanted.Shares[0].Interval = "long"
	f.prepared(r, wanted)
	if got := f.silicon.changed(); got != longFirst {
		t.Errorf("with the claim: %s", got)
	}
	r.stopAgent()
	r = f.run("backends: {timeslice: {gpus: [0], slice: short}}", nil)
	f.prepared(r, wanted)
	if got := f.silicon.changed(); got != longFirst {
		t.Errorf("after a restart: %s", got)
	}
	if err := r.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "slices are short again", func() bool { return f.silicon.changed() == shortFirst })
}

// What follows from a claim's terms is told to the backend, and other backends refuse it.
func TestTermsOfClaims(t *testing.T) {
	f := newForge(t)
	r := f.run("", nil)
	bounded := f.allOf(r, "a", v1alpha1.BackendMPS)
	bounded.Shares[0].ProcessMemory = gib
	entered := &record{Tenancy: &bounded, Shares: []share{{UUID: firstID, ShareConfig: v1alpha1.ShareConfig{Backend: v1alpha1.BackendMPS}}}}
	if got := r.tenantOf(entered).Shares[0].ProcessLimit; got != gib {
		t.Errorf("each process is bounded by %d", got)
	}
	for text, change := range map[string]func(*TenancyShare){
		"a bound of each process's memory with backend slice": func(s *TenancyShare) { s.ProcessMemory = gib },
		"time slices of length long with backend slice":       func(s *TenancyShare) { s.Interval = "long" },
	} {
		other := claimed("b", gib, 0)
		change(&other.Shares[0])
		if _, err := r.Prepare(t.Context(), other); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}
