package agent

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/internal/backend"
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
	if text, code := q.refusal(r, os.Getuid(), instanceOf("7g.80gb")); code != control.CodeRefused || !strings.Contains(text, "no room") {
		t.Errorf("in the place of an instance whose share has not ended: %s, %s", code, text)
	}
	if _, err := r.layout(t.Context(), root, control.LayoutParams{GPU: "0", On: true, Instances: map[string]int{"1g.10gb": 7}}); err == nil || !strings.Contains(err.Error(), made.Name+": end them first") {
		t.Errorf("a layout there: %v", err)
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
	if l := q.list(r); !strings.Contains(l.GPUs[1].Misgiven, "divvy gpu set 1 --mig on") || l.GPUs[0].Misgiven != "" {
		t.Errorf("listed %+v", l.GPUs)
	}
	if !strings.Contains(f.GPUs[1].Fault, "divvy gpu set 1 --mig on") {
		t.Errorf("GPU 1 has fault %q", f.GPUs[1].Fault)
	}
	if free := f.GPUs[0].MIG.Profiles[0]; free.Name != "1g.10gb" || len(free.Free) != 7 || free.Multiprocessors != 16 {
		t.Errorf("profile %+v", free)
	}
}

// Whoever needs bandwidth of their own gets an instance, and every other backend says why not.
func TestAutoChoosesAnInstance(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	p := ask(12 * gib)
	p.Request.Backend, p.Request.Isolate = v1alpha1.BackendAuto, v1alpha1.IsolateBandwidth
	e, err := r.explain(t.Context(), root, control.ExplainParams{Request: p.Request})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range e.Backends {
		if v.Chosen != (v.Backend == v1alpha1.BackendMIG) || v.Reason == "" {
			t.Errorf("verdict %+v", v)
		}
	}
	if e.Request.Profile != "1g.20gb" {
		t.Errorf("explained with profile %s", e.Request.Profile)
	}
	if got := q.grant(r, q.asker(os.Getuid()), p).Tenant.Shares[0]; got.Backend != v1alpha1.BackendMIG || got.Instance.Profile != "1g.20gb" {
		t.Errorf("granted %+v", got)
	}
	p.Request.Isolate = ""
	if got := q.grant(r, q.asker(os.Getuid()), p).Tenant.Shares[0]; got.Backend != v1alpha1.BackendSlice || got.UUID != otherID {
		t.Errorf("granted %+v, and a whole GPU is free", got)
	}
}

// A checkpoint with an instance and with what was learnt is what it was, and those of the versions before are read as ever.
func TestCheckpointOfAnInstance(t *testing.T) {
	golden := filepath.Join("testdata/checkpoint", "v5-mig.json")
	i := backend.Instance{UUID: "MIG-00000000-0000-4000-8000-000000000001", Parent: firstID, Profile: "2g.20gb", Start: 2, Size: 2, GPUInstance: 5, Bytes: 20 * gib, Multiprocessors: 32}
	s := share{UUID: firstID, Limit: 20 * gib, Instance: &i, ShareConfig: v1alpha1.ShareConfig{Backend: v1alpha1.BackendMIG}}
	s.Default(0)
	want := saved{Tenants: []record{{ID: "0a1b2c3d", Name: "train", UID: 7, User: "ada", Layer: backend.LayerEnv, Shares: []share{s}}}}
	before := want
	want.Learnt = []alloc.Learnt{{Model: "0123456789abcdef", Arrivals: []layouts.Arrival{{Profile: 2, Held: 1500, Fitted: true}, {}}}}
	path := filepath.Join(t.TempDir(), "tenants.json")
	if err := newCheckpoint(path).Save(want); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	frozen, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(frozen, written) {
		t.Errorf("written is\n%s\nand the golden file has, %v,\n%s", written, err, frozen)
	}
	if got, err := newCheckpoint(golden).Load(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read is %+v, %v", got, err)
	}
	for _, version := range []string{"v4", "v3"} {
		if got, err := newCheckpoint(filepath.Join("testdata/checkpoint", version+"-mig.json")).Load(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("version %s is read as %+v, %v", version, got, err)
		}
	}
	if got, err := newCheckpoint(filepath.Join("testdata/checkpoint", "v2-mig.json")).Load(); err != nil || !reflect.DeepEqual(got, before) {
		t.Errorf("version 2 is read as %+v, %v", got, err)
	}
}

// What was learnt of requests is known to the next agent, also where nothing else is left.
func TestLearntOutlivesTheAgent(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	for _, profile := range []string{"1g.10gb", "3g.40gb", "1g.10gb"} {
		asker := q.asker(os.Getuid())
		q.grant(r, asker, instanceOf(profile))
		asker.end()
	}
	eventually(t, "the shares have ended", func() bool { return len(q.list(r).Tenants) == 0 })
	q.becomes()
	r.mu.Lock()
	want := r.mixes.Learnt()
	r.mu.Unlock()
	r.stopAgent()
	r = q.run("")
	if got := r.mixes.Learnt(); len(got) != 1 || len(got[0].Arrivals) != 3 || !reflect.DeepEqual(got, want) {
		t.Errorf("the next agent knows %+v, want %+v", got, want)
	}
	learnt := alloc.MixesOf(want)
	order, err := learnt.Order(r.divisions.get(firstID).Profiles, 0)
	if got := r.Preferred([]string{firstID}); err != nil || !slices.Equal(got, order) {
		t.Errorf("it prefers %+v, and with what was learnt %+v, %v", got, order, err)
	}
	own := q.configured("")
	own.Info.Ephemeral = true
	r.stopAgent()
	r = q.startAs(own)
	if err := r.Save(); err != nil {
		t.Error(err)
	}
	r.stopAgent()
	if _, err := os.Stat(filepath.Join(q.dir, "tenants.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a user's own agent leaves %v", err)
	}
}

// A share of a part joins an instance that is about to be made for another one.
func TestPartsOfAnInstanceThatIsBeingMade(t *testing.T) {
	q := newQuarry(t)
	begun, let := make(chan struct{}), make(chan struct{})
	var once sync.Once
	q.step = func(name string) {
		if name == "instance-begun" {
			once.Do(func() {
				close(begun)
				<-let
			})
		}
	}
	r := q.run("")
	first, second := q.asker(os.Getuid()), q.asker(os.Getuid())
	granted := make(chan error, 2)
	half := within("7g.80gb", v1alpha1.BackendSlice, 20*gib)
	go func() {
		_, err := r.create(t.Context(), first.peer, half)
		granted <- err
	}()
	<-begun
	go func() {
		_, err := r.create(t.Context(), second.peer, half)
		granted <- err
	}()
	eventually(t, "both shares are in the ledger, or one is refused", func() bool { return len(q.list(r).Tenants) == 2 || len(granted) > 0 })
	close(let)
	for range 2 {
		if err := <-granted; err != nil {
			t.Error(err)
		}
	}
	q.has("7g.80gb@0 share")
	first.end()
	second.end()
	q.becomes()
}
