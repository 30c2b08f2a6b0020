package agent

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc/forms"
)

// auto asks for memory by whatever backend suits best.
func auto(memory uint64, change ...func(*v1alpha1.ShareRequest)) control.CreateParams {
	p := ask(memory)
	p.Request.Backend = v1alpha1.BackendAuto
	for _, f := range change {
		f(&p.Request)
	}
	return p
}

// explained is what the agent says of a request, by backend.
func (n *node) explained(r *running, uid int, p control.CreateParams) (map[v1alpha1.Backend]forms.Verdict, *control.Explanation) {
	n.t.Helper()
	e, err := r.explain(n.t.Context(), n.asker(uid).peer, control.ExplainParams{Request: p.Request})
	if err != nil {
		n.t.Fatal(err)
	}
	verdicts := map[v1alpha1.Backend]forms.Verdict{}
	for _, v := range e.Backends {
		verdicts[v.Backend] = v
	}
	return verdicts, e
}

// The agent chooses the best backend that fits now: another one where that is full, and slice where all fit.
func TestAgentChoosesTheBackend(t *testing.T) {
	n := newNode(t)
	r := n.start()
	got := n.grant(r, n.asker(os.Getuid()), auto(gib, func(r *v1alpha1.ShareRequest) { r.Among = []string{"0"} }))
	if b := got.Tenant.Shares[0].Backend; b != v1alpha1.BackendSlice {
		t.Errorf("on a free machine it chose %s", b)
	}
	n.grant(r, n.asker(os.Getuid()), timesliced("1", gib))
	all := n.list(r).GPUs[0].Capacity
	n.grant(r, n.asker(os.Getuid()), askOn("0", all-gib)) // full
	if b := n.grant(r, n.asker(os.Getuid()), auto(gib)).Tenant.Shares[0].Backend; b != v1alpha1.BackendTimeslice {
		t.Errorf("where only timeslice has room it chose %s", b)
	}
	weighted := auto(gib, func(r *v1alpha1.ShareRequest) { r.Weight = 3 })
	verdicts, e := n.explained(r, os.Getuid(), weighted)
	if v := verdicts[v1alpha1.BackendTimeslice]; v.State != forms.Never || !strings.Contains(v.Reason, "leave out the weight") {
		t.Errorf("a weight under timeslice: %+v", v)
	}
	if v := verdicts[v1alpha1.BackendSlice]; v.State != forms.Waits || !v.Chosen || e.Refused != "" {
		t.Errorf("slice while its GPU is full: %+v (%q)", v, e.Refused)
	}
	if text, code := n.refusal(r, os.Getuid(), weighted); code != control.CodeRefused || !strings.Contains(text, "GPU 0 has") {
		t.Errorf("without --wait: %q (%s)", text, code)
	}
}

// A request that lets the agent choose waits for the best backend that can ever be had.
func TestAutoWaitsForTheBest(t *testing.T) {
	n := newNode(t)
	r := n.start()
	gpus := n.list(r).GPUs
	holder := n.asker(os.Getuid())
	n.grant(r, holder, askOn("0", gpus[0].Capacity))
	n.grant(r, n.asker(os.Getuid()), timesliced("1", gpus[1].Capacity))
	p := auto(gib)
	p.Wait = true
	answer := make(chan *control.Created, 1)
	peer := n.asker(os.Getuid()).peer
	go func() {
		created, err := r.create(context.Background(), peer, p)
		if err != nil {
			t.Error(err)
		}
		answer <- created
	}()
	eventually(t, "the request waits", func() bool { return len(n.list(r).Waiting) == 1 })
	if w := n.list(r).Waiting[0]; w.Request.Backend != v1alpha1.BackendSlice {
		t.Errorf("it waits for backend %s", w.Request.Backend)
	}
	holder.hangUp()
	holder.kill()
	if created := <-answer; created != nil && created.Tenant.Shares[0].Index != 0 {
		t.Errorf("it got GPU %d", created.Tenant.Shares[0].Index)
	}
}

// What no backend of the machine gives is refused with the reason of each, and nothing is made.
func TestIsolationThatNobodyGives(t *testing.T) {
	n := newNode(t)
	r := n.start()
	p := auto(gib, func(r *v1alpha1.ShareRequest) { r.Isolate = v1alpha1.IsolateBandwidth })
	p.Wait = true // in vain
	text, code := n.refusal(r, os.Getuid(), p)
	for _, want := range []string{"--isolate bandwidth", "slice, timeslice: shares of a GPU use its memory bandwidth together", "not here: mps, mig"} {
		if code != control.CodeInvalid || !strings.Contains(text, want) {
			t.Errorf("%q (%s) does not say %q", text, code, want)
		}
	}
	if _, e := n.explained(r, os.Getuid(), p); e.Refused != text {
		t.Errorf("explained as %q, refused as %q", e.Refused, text)
	}
	faults := auto(gib, func(r *v1alpha1.ShareRequest) { r.Isolate = v1alpha1.IsolateFaults })
	if verdicts, _ := n.explained(r, os.Getuid(), faults); !verdicts[v1alpha1.BackendSlice].Chosen {
		t.Errorf("faults: %+v", verdicts)
	}
	if l := n.list(r); len(l.Tenants) != 0 || len(l.Waiting) != 0 {
		t.Errorf("explaining made %+v", l.Tenants)
	}
}

// Each GPU has its own verdict, and what a user may not choose or the administrator does not give is said.
func TestVerdictsOfGPUs(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.grant(r, n.asker(os.Getuid()), askOn("0", gib))
	if gpus := n.list(r).GPUs; gpus[0].Form != v1alpha1.BackendSlice || gpus[1].Form != "" {
		t.Errorf("listed forms: %q and %q", gpus[0].Form, gpus[1].Form)
	}
	verdicts, _ := n.explained(r, os.Getuid(), timesliced("0", gib))
	v := verdicts[v1alpha1.BackendTimeslice]
	if v.State != forms.Waits || !strings.Contains(v.Reason, "GPU 0 has shares of backend slice") || len(v.GPUs) != 2 {
		t.Fatalf("timeslice on GPU 0: %+v", v)
	}
	if v.GPUs[0].State != forms.Waits || v.GPUs[1].State != forms.Never || !strings.Contains(v.GPUs[1].Reason, "other GPUs") {
		t.Errorf("by GPU: %+v", v.GPUs)
	}
	other, _ := n.explained(r, os.Getuid()+1, auto(gib))
	if v := other[v1alpha1.BackendTimeslice]; v.State != forms.Never || !strings.Contains(v.Reason, "the right of root") {
		t.Errorf("another user's timeslice: %+v", v)
	}
	if b := n.grant(r, n.asker(os.Getuid()+1), auto(gib)).Tenant.Shares[0].Backend; b != v1alpha1.BackendSlice {
		t.Errorf("another user's auto is %s", b)
	}
	_, err := r.explain(t.Context(), n.asker(os.Getuid()).peer, control.ExplainParams{Request: v1alpha1.ShareRequest{ShareConfig: v1alpha1.ShareConfig{Backend: "magic"}}})
	if control.CodeOf(err) != control.CodeInvalid {
		t.Errorf("an unknown backend: %v", err)
	}
}

// Where the administrator gives each GPU its backend, the choice is among these.
func TestAutoAmongGivenBackends(t *testing.T) {
	n := newNode(t)
	r := n.ruled("backends: {timeslice: {gpus: [0, 1], replicas: 3}}")
	if gpu := n.list(r).GPUs[1]; gpu.Form != v1alpha1.BackendTimeslice || gpu.Replicas != 3 {
		t.Errorf("listed form %q with %d replicas", gpu.Form, gpu.Replicas)
	}
	created := n.grant(r, n.asker(ada), auto(gib))
	if b := created.Tenant.Shares[0].Backend; b != v1alpha1.BackendTimeslice {
		t.Errorf("it chose %s", b)
	}
	unsized := auto(gib, func(r *v1alpha1.ShareRequest) { r.Memory = v1alpha1.Memory{} })
	gpu := n.list(r).GPUs[0]
	if got := n.grant(r, n.asker(ada), unsized).Tenant.Shares[0].Limit; got > gpu.Capacity/3 || got == 0 {
		t.Errorf("without memory it has %d bytes, and a replica is a third of %d", got, gpu.Capacity)
	}
	text, code := n.refusal(r, ada, auto(gib, func(r *v1alpha1.ShareRequest) { r.Cores = 30 }))
	if code != control.CodeInvalid || !strings.Contains(text, "leave out cores") || !strings.Contains(text, "the administrator gave") {
		t.Errorf("cores where no backend has them: %q (%s)", text, code)
	}
}

// Nobody is told to leave out what they did not ask for.
func TestRemediesAreForWhatWasAsked(t *testing.T) {
	n := newNode(t)
	r := n.start()
	for asked, remedy := range map[v1alpha1.Backend]string{
		"": "is the right of root, who can give", v1alpha1.BackendAuto: "is the right of root, who can give",
		v1alpha1.BackendTimeslice: "is the right of root: leave out --backend, or have root give",
	} {
		p := ask(gib)
		p.Request.Backend = asked
		verdicts, e := n.explained(r, os.Getuid()+1, p)
		text := verdicts[v1alpha1.BackendTimeslice].Reason
		if !strings.Contains(text, remedy+" a GPU that backend (`divvy gpu set GPU --form timeslice`)") || asked == "" && strings.Contains(text+e.Refused, "leave out") {
			t.Errorf("asked for %q: %q; refused %q", asked, text, e.Refused)
		}
	}
	for _, c := range []struct {
		open    bool
		profile string
		want    string
	}{
		{true, "", ""}, {true, "1g.10gb", ": leave out --profile"}, {false, "", ": leave out --backend mig"},
		{false, "1g.10gb", ": leave out --profile and --backend mig"},
	} {
		request := v1alpha1.ShareRequest{Profile: c.profile, ShareConfig: v1alpha1.ShareConfig{Backend: v1alpha1.BackendMIG}}
		if got := (requester{open: c.open}).withoutMIG(request); got != c.want {
			t.Errorf("open %t, profile %q: %q, want %q", c.open, c.profile, got, c.want)
		}
	}
}
