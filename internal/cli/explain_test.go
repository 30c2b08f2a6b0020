package cli

import (
	"fmt"
	"slices"
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
		{Backend: v1alpha1.BackendTimeslice, Never: "backend timeslice keeps other users' shares away from its GPU, and is the right of root, who can give a GPU that backend (`divvy gpu set GPU --form timeslice`)"},
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

// Of a full server one line says what is free and who holds the rest, and only GPUs that differ have lines of their own.
func TestExplanationOfAFullServer(t *testing.T) {
	var full []forms.GPU
	for i := range 8 {
		full = append(full, forms.GPU{Index: i, State: forms.Waits, Reason: fmt.Sprintf("GPU %d has 9Gi of 79Gi not granted and the share needs 20Gi; alice/j%d holds 70Gi", i, i)})
	}
	mixed := slices.Clone(full)
	mixed[5].Reason = "GPU 5 has 1Gi of 79Gi not granted and the share needs 20Gi; bob/big holds 78Gi"
	all := "each of GPUs 0 to 7 has 9Gi of 79Gi not granted and the share needs 20Gi; alice/j0 holds 70Gi and 7 other shares the rest"
	for name, test := range map[string]struct {
		verdict forms.Verdict
		want    string
	}{
		"alike":  {forms.Verdict{Backend: "slice", State: forms.Waits, Reason: all, GPUs: full}, "BACKEND  GPU  VERDICT  REASON\nslice         waits    " + all + "\n"},
		"chosen": {forms.Verdict{Backend: "slice", State: forms.Waits, Chosen: true, Reason: all, GPUs: full}, "BACKEND  GPU  VERDICT        REASON\nslice         chosen, waits  " + all + "\n"},
		"one differs": {forms.Verdict{Backend: "slice", State: forms.Waits, Reason: "GPUs 0 to 7 have at most 9Gi", GPUs: mixed}, "BACKEND  GPU      VERDICT  REASON\n" +
			"slice             waits    GPUs 0 to 7 have at most 9Gi\n" +
			"         0-4,6-7  waits    9Gi of 79Gi not granted and the share needs 20Gi\n" +
			"         5        waits    GPU 5 has 1Gi of 79Gi not granted and the share needs 20Gi; bob/big holds 78Gi\n"},
		"the only one": {forms.Verdict{Backend: "slice", State: forms.Waits, Reason: full[0].Reason, GPUs: full[:1]}, "BACKEND  GPU  VERDICT  REASON\nslice         waits    " + full[0].Reason + "\n"},
		"the only one that fits": {forms.Verdict{Backend: "slice", State: forms.Fits, Reason: "exact", GPUs: []forms.GPU{{Index: 3, State: forms.Fits}}},
			"BACKEND  GPU  VERDICT  REASON\nslice         fits     exact\n         3    fits\n"},
	} {
		var w strings.Builder
		printExplanation(&w, &control.Explanation{Backends: []forms.Verdict{test.verdict}})
		if w.String() != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, w.String(), test.want)
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
