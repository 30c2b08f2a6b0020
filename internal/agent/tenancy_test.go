package agent

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// claimed is a tenancy of one share of the first GPU.
func claimed(key string, memory uint64, cores int) Tenancy {
	return Tenancy{
		Key: key, Name: "team/" + key, Namespace: "team", Claim: key, Pods: []string{"train"},
		Shares: []TenancyShare{{UUID: firstID, Memory: memory, Cores: cores}},
	}
}

func wholeGPU(key, uuid string) Tenancy {
	t := claimed(key, 0, 0)
	t.Shares = []TenancyShare{{UUID: uuid, Whole: true}}
	return t
}

func (n *node) prepared(r *running, wanted Tenancy) string {
	n.t.Helper()
	e, err := r.Prepare(n.t.Context(), wanted)
	if err != nil {
		n.t.Fatal(err)
	}
	return e.Env[0].Value
}

// granted is what the agent says that tenants hold of the first GPU.
func (n *node) granted(r *running) uint64 {
	n.t.Helper()
	return n.list(r).GPUs[0].Granted
}

func TestPrepareIsIdempotent(t *testing.T) {
	n := newNode(t)
	r := n.start()
	dir := n.prepared(r, claimed("a", 4*gib, 30))
	again := claimed("a", 4*gib, 30)
	again.Pods = []string{"train", "serve"}
	if got := n.prepared(r, again); got != dir {
		t.Errorf("the second answer is %s, the first was %s", got, dir)
	}
	if applied := n.backend.applied.Load(); applied != 1 {
		t.Errorf("made %d times", applied)
	}
	l := n.list(r)
	if len(l.Tenants) != 1 || l.GPUs[0].Granted != 4*gib || l.GPUs[0].Cores != 30 {
		t.Fatalf("%d tenants hold %d bytes and %d cores", len(l.Tenants), l.GPUs[0].Granted, l.GPUs[0].Cores)
	}
	v := l.Tenants[0]
	if v.Name != "team/a" || v.Namespace != "team" || v.Claim != "a" || !reflect.DeepEqual(v.Pods, again.Pods) || !v.Held || v.Layer != backend.LayerContainer {
		t.Errorf("listed as %+v", v)
	}
	if v.Shares[0].Policy != v1alpha1.PolicyFixed {
		t.Errorf("policy %s: cores without a policy mean fixed", v.Shares[0].Policy)
	}
	_, err := r.Prepare(t.Context(), claimed("a", 5*gib, 30))
	if !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "4Gi") || strings.Contains(err.Error(), "\n") {
		t.Errorf("other shares under one key: %v", err)
	}
}

func TestReleaseIsIdempotentAndFrees(t *testing.T) {
	n := newNode(t)
	r := n.start()
	dir := n.prepared(r, claimed("a", 80*gib, 0))
	for range 2 {
		if err := r.Release(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
	if _, err := os.Stat(filepath.Join(n.dir, "tenants.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the checkpoint is left: %v", err)
	}
	if all := r.Tenancies(); len(all) != 0 {
		t.Errorf("left: %v", all)
	}
	n.prepared(r, claimed("b", 80*gib, 0))
}

// A tenancy does not end with its processes, and is not released while they live.
func TestTenancyLivesUntilRelease(t *testing.T) {
	n := newNode(t)
	r := n.start()
	dir := n.prepared(r, claimed("a", 4*gib, 0))
	s := n.enter(dir, 0, os.Getpid(), gib)
	r.sweep(t.Context())
	if err := r.Release(t.Context(), "a"); !errors.Is(err, ErrInUse) {
		t.Errorf("released under a living process: %v", err)
	}
	if got := n.granted(r); got != 4*gib {
		t.Errorf("%d bytes are counted after the refusal", got)
	}
	s.leave()
	r.sweep(t.Context())
	if got := n.granted(r); got != 4*gib {
		t.Errorf("%d bytes are counted after the last process", got)
	}
	if err := r.Release(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func TestPrepareRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		held   []Tenancy
		wanted Tenancy
		reason alloc.Reason
		text   string
	}{
		"memory beyond what is left": {[]Tenancy{claimed("a", 50*gib, 0)}, claimed("b", 31*gib, 0), alloc.ReasonFull, "has 30Gi of 80Gi not granted"},
		"cores beyond what is left":  {[]Tenancy{claimed("a", gib, 80)}, claimed("b", gib, 21), alloc.ReasonFull, "20 of 100 cores left"},
		"more than the GPU has":      {nil, claimed("b", 81*gib, 0), alloc.ReasonNever, "more than GPU 0 has"},
		"less than a context":        {nil, claimed("b", gib/2, 0), alloc.ReasonNever, "leaves nothing to allocate"},
		"a GPU that is not here":     {nil, wholeGPU("b", "GPU-00000000-0000-4000-8000-00000000dead"), alloc.ReasonUnknown, "is not on this machine"},
		"whole beside a share":       {[]Tenancy{claimed("a", gib, 0)}, wholeGPU("b", firstID), alloc.ReasonFull, "GPU 0 has tenants and the request needs a whole GPU"},
		"a share beside whole":       {[]Tenancy{wholeGPU("a", firstID)}, claimed("b", gib, 0), alloc.ReasonFull, "team/a has the whole GPU"},
		"whole beside whole":         {[]Tenancy{wholeGPU("a", firstID)}, wholeGPU("b", firstID), alloc.ReasonFull, "team/a has the whole GPU"},
		"the second of two does not fit": {[]Tenancy{wholeGPU("a", otherID)}, Tenancy{
			Key: "b", Name: "team/b", Shares: []TenancyShare{{UUID: firstID, Memory: gib}, {UUID: otherID, Memory: gib}},
		}, alloc.ReasonFull, "team/a has the whole GPU"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := n.start()
			for _, h := range c.held {
				n.prepared(r, h)
			}
			before := n.list(r)
			_, err := r.Prepare(t.Context(), c.wanted)
			var refusal *alloc.Refusal
			if !errors.As(err, &refusal) || refusal.Reason != c.reason || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "--") {
				t.Errorf("refused with %v", err)
			}
			if after := n.list(r); !reflect.DeepEqual(after.GPUs, before.GPUs) || len(after.Tenants) != len(c.held) {
				t.Errorf("the ledger became %+v", after)
			}
		})
	}
}

func TestPrepareRefusesNonsense(t *testing.T) {
	n := newNode(t)
	r := n.start()
	for name, spoil := range map[string]func(*Tenancy){
		"no key":        func(w *Tenancy) { w.Key = "" },
		"no shares":     func(w *Tenancy) { w.Shares = nil },
		"no memory":     func(w *Tenancy) { w.Shares[0].Memory = 0 },
		"cores":         func(w *Tenancy) { w.Shares[0].Cores = 101 },
		"one GPU twice": func(w *Tenancy) { w.Shares = append(w.Shares, w.Shares[0]) },
		"policy":        func(w *Tenancy) { w.Shares[0].Config.Policy = v1alpha1.PolicyFixed },
	} {
		wanted := claimed("a", gib, 0)
		spoil(&wanted)
		if _, err := r.Prepare(t.Context(), wanted); !errors.Is(err, ErrTenancy) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(r.Tenancies()) != 0 {
		t.Error("something was taken in")
	}
}

// Tenants of the machine and of the cluster are counted together.
func TestOneLedger(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.prepared(r, wholeGPU("a", firstID))
	request := ask(60 * gib)
	request.Request.Overcommit = true
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, request); err == nil {
		t.Error("overcommit got onto a whole GPU")
	}
	if err := r.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	n.grant(r, n.asker(os.Getuid()), ask(60*gib))
	if _, err := r.Prepare(t.Context(), claimed("b", 21*gib, 0)); err == nil {
		t.Error("more was promised than the GPU has")
	}
	n.prepared(r, claimed("b", 20*gib, 0))
}

func TestTenanciesAreTheClusters(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.prepared(r, claimed("a", 4*gib, 30))
	root := control.NewPeer(self(), 0, nil, nil)
	memory, weight := v1alpha1.Bytes(gib), 3
	if _, err := r.set(t.Context(), root, control.SetParams{Tenant: "team/a", Memory: &memory}); err == nil {
		t.Error("memory was changed behind the scheduler's back")
	}
	policy, cores := v1alpha1.PolicyWeighted, "team/a"
	if _, err := r.set(t.Context(), root, control.SetParams{Tenant: cores, Policy: &policy, Weight: &weight}); err != nil {
		t.Error(err)
	}
	n.prepared(r, claimed("a", 4*gib, 30)) // what was asked for has not changed
	if _, err := r.stop(t.Context(), root, control.StopParams{Tenant: "team/a"}); err == nil {
		t.Error("a tenancy was stopped")
	}
}

func TestFailedPrepareLeavesNothing(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.backend.fail = errors.New("disk full")
	if _, err := r.Prepare(t.Context(), claimed("a", 80*gib, 0)); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("%v", err)
	}
	if len(r.Tenancies()) != 0 || n.granted(r) != 0 {
		t.Errorf("left: %v, %d bytes", r.Tenancies(), n.granted(r))
	}
	if left := n.directories(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	n.backend.fail = nil
	n.prepared(r, claimed("a", 80*gib, 0))
}

// A tenancy that was made stays counted when its directory is gone and cannot be
// made again: containers may run in it.
func TestFailedRepairKeepsTheTenancy(t *testing.T) {
	n := newNode(t)
	r := n.start()
	dir := n.prepared(r, claimed("a", 4*gib, 0))
	if err := os.Remove(tenantdir.Dir(dir).Config()); err != nil {
		t.Fatal(err)
	}
	n.backend.fail = errors.New("disk full")
	if _, err := r.Prepare(t.Context(), claimed("a", 4*gib, 0)); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("%v", err)
	}
	if len(r.Tenancies()) != 1 || n.granted(r) != 4*gib {
		t.Errorf("%v, %d bytes are granted", r.Tenancies(), n.granted(r))
	}
	n.backend.fail = nil
	if again := n.prepared(r, claimed("a", 4*gib, 0)); again != dir || !tenantdir.Dir(dir).Complete() {
		t.Errorf("%s is not whole", again)
	}
}

// What could not be saved is saved when the tenancy is asked for again, so that the
// next agent knows that it is made.
func TestMadeTenancyIsSavedLater(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(n.dir, "tenants.json")
	steps := 0
	n.step = func(step string) {
		if steps++; step == "prepare-made" && steps == 2 {
			_ = os.Mkdir(path+".new", 0o700) // no file can be written there
		}
	}
	r := n.start()
	if _, err := r.Prepare(t.Context(), claimed("a", 4*gib, 0)); err == nil {
		t.Error("it was prepared without being saved")
	}
	if err := os.Remove(path + ".new"); err != nil {
		t.Fatal(err)
	}
	n.prepared(r, claimed("a", 4*gib, 0))
	state, err := newCheckpoint(path).Load()
	if err != nil || len(state.Tenants) != 1 || state.Tenants[0].Unmade {
		t.Errorf("saved is %+v, %v", state, err)
	}
	if applied := n.backend.applied.Load(); applied != 1 {
		t.Errorf("made %d times", applied)
	}
}

func TestTenanciesOutliveTheAgent(t *testing.T) {
	n := newNode(t)
	r := n.start()
	dir := n.prepared(r, claimed("a", 4*gib, 30))
	n.prepared(r, wholeGPU("b", otherID))
	before := r.Tenancies()
	r.stopAgent()
	r = n.start()
	r.sweep(t.Context())
	if after := r.Tenancies(); !reflect.DeepEqual(after, before) {
		t.Errorf("%+v became %+v", before, after)
	}
	if got := n.prepared(r, claimed("a", 4*gib, 30)); got != dir {
		t.Errorf("%s became %s", dir, got)
	}
	if applied := n.backend.applied.Load(); applied != 2 {
		t.Errorf("made %d times", applied)
	}
}

// The checkpoint of a whole GPU that the scheduler counts as a share has no field that an
// earlier version would not know, and its tenancy is the share that this version asks for.
func TestExclusiveSharesAreSavedForEarlierVersions(t *testing.T) {
	n := newNode(t)
	r := n.start()
	exclusive := claimed("a", 80*gib, 0)
	exclusive.Shares[0].Exclusive = true
	n.prepared(r, exclusive)
	state, err := newCheckpoint(filepath.Join(n.dir, "tenants.json")).Load()
	if err != nil {
		t.Fatal(err)
	}
	want := TenancyShare{UUID: firstID, Memory: 80 * gib}
	want.Config.Default(0)
	if got := state.Tenants[0].Tenancy.Shares[0]; got != want || !state.Tenants[0].Shares[0].Whole {
		t.Errorf("saved is %+v of %+v", got, state.Tenants[0].Shares[0])
	}
	r.stopAgent()
	// Such a version saves it as it read it, and this one finds it again.
	if err := newCheckpoint(filepath.Join(n.dir, "tenants.json")).Save(state); err != nil {
		t.Fatal(err)
	}
	r = n.start()
	n.prepared(r, exclusive)
	if !n.list(r).Tenants[0].Shares[0].Whole {
		t.Error("others may have a share of it")
	}
}
