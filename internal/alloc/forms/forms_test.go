package forms

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	slice, timeslice, mps = v1alpha1.BackendSlice, v1alpha1.BackendTimeslice, v1alpha1.BackendMPS
	mig, auto             = v1alpha1.BackendMIG, v1alpha1.BackendAuto
)

func TestJudge(t *testing.T) {
	fits := func(b v1alpha1.Backend) Found { return Found{Backend: b} }
	waits := func(b v1alpha1.Backend) Found { return Found{Backend: b, Wait: "GPU 0 is full"} }
	never := func(b v1alpha1.Backend) Found { return Found{Backend: b, Never: "it has no weights"} }
	for _, test := range []struct {
		name   string
		wanted v1alpha1.Backend
		found  []Found
		chosen v1alpha1.Backend
		state  State
		reason string
	}{
		{"all fit", auto, []Found{fits(mps), fits(timeslice), fits(slice)}, slice, Fits, "preferred of those that fit: exact memory"},
		{"a fault must not spread", auto, []Found{fits(mps), fits(timeslice)}, timeslice, Fits, "equal time"},
		{"nothing but mps", auto, []Found{fits(mps)}, mps, Fits, "neither faults nor memory bandwidth are isolated"},
		{"what fits before what is better", auto, []Found{waits(slice), fits(mps)}, mps, Fits, "preferred of those that fit"},
		{"the best is waited for", auto, []Found{waits(slice), waits(timeslice), waits(mps)}, slice, Waits, "GPU 0 is full; then: exact memory"},
		{"none that can never be had", auto, []Found{never(slice), waits(mps)}, mps, Waits, "GPU 0 is full"},
		{"nothing ever", auto, []Found{never(slice), never(mps)}, "", "", ""},
		{"nothing here", auto, nil, "", "", ""},
		{"hardware where it is", auto, []Found{never(slice), fits(mig)}, mig, Fits, "keeps apart"},
		{"named", mps, []Found{fits(slice), fits(mps)}, mps, Fits, "ceiling on SMs"},
		{"named and full", mps, []Found{fits(slice), waits(mps)}, mps, Waits, "GPU 0 is full"},
		{"named and impossible", mps, []Found{fits(slice), never(mps)}, "", "", ""},
		{"named and not here", mps, []Found{fits(slice)}, "", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := Judge(test.wanted, "", test.found)
			if len(all) != len(All()) {
				t.Fatalf("verdicts about %d of %d backends", len(all), len(All()))
			}
			for i, v := range all {
				if v.Backend != All()[i] || v.Reason == "" {
					t.Errorf("verdict without backend or reason: %+v", v)
				}
			}
			v, ok := Chosen(all)
			if ok != (test.chosen != "") || v.Backend != test.chosen || v.State != test.state || !strings.Contains(v.Reason, test.reason) {
				t.Errorf("chosen %+v, want %s %s: %q", v, test.chosen, test.state, test.reason)
			}
		})
	}
}

// Every backend says why it is not the one.
func TestReasons(t *testing.T) {
	all := Judge(auto, "", []Found{{Backend: slice}, {Backend: timeslice}, {Backend: mps, Never: "it knows no weights"}})
	for i, want := range []string{"preferred", "it would fit, and slice is preferred", "it knows no weights", "makes no shares of this backend"} {
		if !strings.Contains(all[i].Reason, want) {
			t.Errorf("%s: %q, want %q", all[i].Backend, all[i].Reason, want)
		}
	}
	if all := Judge(mps, "", []Found{{Backend: slice}, {Backend: mps}}); !strings.Contains(all[0].Reason, "the request is for mps") {
		t.Errorf("slice: %q", all[0].Reason)
	}
}

// What no backend gives is refused with what keeps each from it.
func TestRefusal(t *testing.T) {
	const shared = "shares of a GPU use its memory bandwidth together"
	all := Judge(auto, "", []Found{{Backend: slice, Never: "backend slice does not isolate bandwidth: " + shared}, {Backend: timeslice, Never: "it is not given"}, {Backend: mps, Never: "backend mps does not isolate bandwidth: " + shared}})
	text := Refusal(auto, v1alpha1.IsolateBandwidth, all)
	for _, want := range []string{"with --isolate bandwidth; slice, mps: " + shared + "; timeslice: it is not given", "not here: mig"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	if text := Refusal(mps, "", Judge(mps, "", nil)); strings.Contains(text, "slice") || !strings.Contains(text, "not here: mps") {
		t.Errorf("of mps alone: %q", text)
	}
}

// Backend remote is for those who ask for it: it cannot serve every program.
func TestRemoteIsAskedFor(t *testing.T) {
	const remote = v1alpha1.BackendRemote
	all := Judge(auto, "", []Found{{Backend: slice, Never: "it has no room"}, {Backend: remote}})
	if v, ok := Chosen(all); ok || !strings.Contains(all[len(all)-1].Reason, "for those who ask") {
		t.Errorf("%s is chosen of %+v", v.Backend, all)
	}
	if text := Refusal(auto, "", all); strings.Contains(text, "remote") {
		t.Errorf("a request that left the backend open is refused with %q", text)
	}
	if v, ok := Chosen(Judge(remote, "", []Found{{Backend: slice}, {Backend: remote}})); !ok || v.Backend != remote {
		t.Errorf("%s is chosen where remote was asked for", v.Backend)
	}
}

// What is for virtual machines is no share's, and a refusal speaks of it only where it was asked for.
func TestForMachines(t *testing.T) {
	for _, b := range []v1alpha1.Backend{v1alpha1.BackendVGPU, v1alpha1.BackendVF, v1alpha1.BackendPassthrough} {
		all := Judge(b, "", []Found{{Backend: slice}})
		if v, ok := Chosen(all); ok {
			t.Errorf("for %s %s is chosen", b, v.Backend)
		}
		if text := Refusal(b, "", all); !strings.Contains(text, "divvy vm claim") {
			t.Errorf("%s is refused with %q, which does not say what gives it", b, text)
		}
	}
	if text := Refusal(auto, "", Judge(auto, "", nil)); strings.Contains(text, "passthrough") {
		t.Errorf("a request that left the backend open is refused with %q", text)
	}
}

// Many small programs that need not be kept apart run side by side, where that can be.
func TestDensity(t *testing.T) {
	for name, c := range map[string]struct {
		found  []Found
		chosen v1alpha1.Backend
	}{
		"all fit":     {[]Found{{Backend: slice}, {Backend: timeslice}, {Backend: mps}}, mps},
		"no MPS":      {[]Found{{Backend: slice}, {Backend: timeslice}}, slice},
		"weights":     {[]Found{{Backend: slice}, {Backend: mps, Never: "it knows no weights"}}, slice},
		"MPS is full": {[]Found{{Backend: slice}, {Backend: mps, Wait: "GPU 0 is full"}}, slice},
	} {
		all := Judge(auto, v1alpha1.IsolateNone, c.found)
		if v, _ := Chosen(all); v.Backend != c.chosen || all[0].Backend != mps || len(all) != len(All()) {
			t.Errorf("%s: %+v, want %s", name, all, c.chosen)
		}
	}
}
