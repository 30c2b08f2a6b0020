package cli

import (
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc/forms"
	"github.com/divvy-gpu/divvy/internal/cli/program"
)

// explanation is one of a machine with two GPUs, of which the second has shares of another backend.
func explanation(isolate v1alpha1.Isolation) *control.Explanation {
	r := v1alpha1.ShareRequest{Memory: v1alpha1.Bytes(8 << 30), Isolate: isolate, ShareConfig: v1alpha1.ShareConfig{Backend: v1alpha1.BackendAuto}}
	r.Default()
	found := []forms.Found{
		{Backend: v1alpha1.BackendSlice, GPUs: []forms.GPU{
			{Index: 0, UUID: "GPU-00", State: forms.Fits},
			{Index: 1, UUID: "GPU-01", State: forms.Waits, Reason: "GPU 1 has shares of backend timeslice, and a GPU has shares of one backend at a time"},
		}},
		{Backend: v1alpha1.BackendTimeslice, Never: "backend timeslice keeps other users' shares away from its GPU, and is the right of root: leave out --backend"},
	}
	e := &control.Explanation{Request: r}
	if isolate == v1alpha1.IsolateBandwidth {
		for i := range found {
			found[i] = forms.Found{Backend: found[i].Backend, Never: "shares of a GPU use its memory bandwidth together, unless hardware divides it"}
		}
	}
	e.Backends = forms.Judge(r.Backend, isolate, found)
	if _, ok := forms.Chosen(e.Backends); !ok {
		e.Refused = forms.Refusal(r.Backend, r.Isolate, e.Backends)
	}
	return e
}

func TestExplanations(t *testing.T) {
	for name, isolate := range map[string]v1alpha1.Isolation{"explain": "", "explain-refused": v1alpha1.IsolateBandwidth} {
		e := explanation(isolate)
		for _, form := range []format{"table", "json"} {
			var w strings.Builder
			if err := form.print(&w, e, func(w *strings.Builder) { printExplanation(w, e) }); err != nil {
				t.Fatal(err)
			}
			golden(t, name+"."+string(form), w.String())
		}
	}
}

// What is wrong with the command line is said before any agent is asked.
func TestExplainIsStrict(t *testing.T) {
	for want, args := range map[string][]string{
		"argument":               {"python"},
		"choose auto or one of":  {"--backend", "magic"},
		`isolate "noise"`:        {"--isolate", "noise"},
		"guarantees nothing":     {"--class", "offline", "--cores", "10", "--policy", "burst"},
		"use table, json or":     {"-o", "xml"},
		"unknown flag: --banana": {"--banana"},
	} {
		status, out, errOut := call(t, append([]string{"explain"}, args...)...)
		if status != program.ExitUsage || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%v: status %d, %q, want %q", args, status, errOut, want)
		}
	}
}
