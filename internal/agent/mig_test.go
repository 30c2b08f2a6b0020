package agent

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/registry"
	"github.com/divvy-gpu/divvy/internal/process"
)

// migPages is a backend of pages whose GPUs have MIG.
type migPages struct {
	*pages
	*agenttest.MIG
}

func (m migPages) Extends() backend.Backend { return m.pages }

// mpsPages is a backend of pages that notes which GPUs and instances it prepared.
type mpsPages struct {
	*pages
	mu   sync.Mutex
	has  []string
	fail error
}

func (b *mpsPages) Extends() backend.Backend { return b.pages }

func (b *mpsPages) Plan(t backend.Tenant) (*backend.Plan, error) {
	t.MPSPipe = "/pipe"
	return b.pages.Plan(t)
}

func (b *mpsPages) Enter(_ context.Context, gpu backend.GPU) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.has, gpu.UUID) {
		b.has = append(b.has, gpu.UUID)
	}
	return b.fail
}

func (b *mpsPages) Leave(_ context.Context, gpu backend.GPU) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.has = slices.DeleteFunc(b.has, func(uuid string) bool { return uuid == gpu.UUID })
	return nil
}

func (b *mpsPages) entered() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.has)
}

// quarry is a node whose first GPU is in MIG mode.
type quarry struct {
	*node
	mig   *agenttest.MIG
	mpsed *mpsPages
	told  chan string
	// misuse and listed are what is done about processes without a share.
	misuse agentconfig.Outside
	listed func(uid int) bool
}

func newQuarry(t *testing.T) *quarry {
	t.Helper()
	q := &quarry{node: newNode(t), mig: agenttest.NewMIG(t, firstID), told: make(chan string, 10)}
	q.mpsed = &mpsPages{pages: q.backend}
	return q
}

// run starts an agent with the rules of an agent.yaml, which may be empty.
func (q *quarry) run(rules string) *running {
	q.t.Helper()
	return q.startAs(q.configured(rules))
}

// still is an agent that does nothing by itself.
func (q *quarry) still() *running {
	q.t.Helper()
	a, err := New(q.t.Context(), q.configured(""))
	if err != nil {
		q.t.Fatal(err)
	}
	return &running{Agent: a}
}

func (q *quarry) configured(rules string) Config {
	q.t.Helper()
	c := q.settings(q.backend)
	c.Misuse, c.Listed = cmp.Or(q.misuse, c.Misuse), q.listed
	c.Backends = registry.New(registry.Kind{Name: v1alpha1.BackendSlice, Backend: q.backend},
		registry.Kind{Name: v1alpha1.BackendMPS, Backend: q.mpsed}, registry.Kind{Name: v1alpha1.BackendMIG, Backend: migPages{q.backend, q.mig}})
	if rules != "" {
		c.Rules = q.rules(rules)
	}
	c.Tell = func(_ process.ID, _ int, line string) error {
		q.told <- line
		return nil
	}
	var err error
	if c.Forms, err = OpenForms("", c.Rules); err != nil {
		q.t.Fatal(err)
	}
	return c
}

// has compares the instances of the first GPU.
func (q *quarry) has(want ...string) {
	q.t.Helper()
	if got := q.mig.Lists(firstID); !slices.Equal(got, want) {
		q.t.Errorf("the GPU has %q, want %q", got, want)
	}
}

// becomes waits until the first GPU has some instances.
func (q *quarry) becomes(want ...string) {
	q.t.Helper()
	eventually(q.t, "the GPU has "+strings.Join(want, ", "), func() bool { return slices.Equal(q.mig.Lists(firstID), want) })
}

// instanceOf asks for an instance of a profile.
func instanceOf(profile string) control.CreateParams {
	p := ask(0)
	p.Request.Memory, p.Request.Profile = v1alpha1.Memory{}, profile
	return p
}

// within asks for a part of an instance.
func within(profile string, b v1alpha1.Backend, memory uint64) control.CreateParams {
	p := ask(memory)
	p.Request.Profile, p.Request.Backend = profile, b
	return p
}

func (a *asker) end() {
	a.hangUp()
	a.kill()
}

// An instance is made for a share, is its tenant's alone, and ends with it.
func TestInstanceOfAShare(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	first, second := q.asker(os.Getuid()), q.asker(os.Getuid())
	made := q.grant(r, first, instanceOf("3g.40gb")).Tenant.Shares[0]
	i := made.Instance
	if made.Backend != v1alpha1.BackendMIG || made.UUID != firstID || made.Limit != 40*gib || i == nil || i.Profile != "3g.40gb" || !strings.HasPrefix(i.UUID, "MIG-") {
		t.Fatalf("granted %+v of %+v", made, i)
	}
	q.grant(r, second, instanceOf("3g.40gb"))
	q.has("3g.40gb@0 share", "3g.40gb@4 share")
	if text, code := q.refusal(r, os.Getuid(), instanceOf("1g.10gb")); code != control.CodeRefused || !strings.Contains(text, "has no room for a MIG instance 1g.10gb") {
		t.Errorf("a full GPU: %s, %s", code, text)
	}
	l := q.list(r)
	if l.GPUs[0].Form != v1alpha1.BackendMIG || l.GPUs[0].Granted != 80*gib || l.Tenants[0].Shares[0].Instance == nil {
		t.Errorf("listed %+v", l.GPUs[0])
	}
	second.end()
	q.becomes("3g.40gb@" + []string{"0", "4"}[min(i.Start/4, 1)] + " share")
	first.end()
	q.becomes()
}

// A request by amounts gets the smallest profile that has them.
func TestSmallestProfile(t *testing.T) {
	for _, c := range []struct {
		memory v1alpha1.Memory
		cores  int
		want   string
	}{
		{v1alpha1.Bytes(8 * gib), 0, "1g.10gb"},
		{v1alpha1.Bytes(10 * gib), 0, "1g.10gb"},
		{v1alpha1.Bytes(11 * gib), 0, "1g.20gb"},
		{v1alpha1.Bytes(8 * gib), 15, "2g.20gb"},
		{v1alpha1.Bytes(21 * gib), 0, "3g.40gb"},
		{v1alpha1.Bytes(8 * gib), 50, "4g.40gb"},
		{v1alpha1.Memory{}, 28, "2g.20gb"},
		{v1alpha1.Percent(50), 0, "3g.40gb"},
		{v1alpha1.Memory{}, 0, "7g.80gb"},
		{v1alpha1.Bytes(8 * gib), 100, "7g.80gb"},
	} {
		q := newQuarry(t)
		r := q.run("")
		p := ask(0)
		p.Request.Memory, p.Request.Cores, p.Request.Backend = c.memory, c.cores, v1alpha1.BackendMIG
		got := q.grant(r, q.asker(os.Getuid()), p).Tenant.Shares[0]
		if got.Instance.Profile != c.want || got.Cores != 0 || got.Policy != v1alpha1.PolicyWeighted {
			t.Errorf("%s and %d cores: %+v of %s, want %s", c.memory, c.cores, got, got.Instance.Profile, c.want)
		}
		r.stopAgent()
	}
}

// Instances that are there serve first; another tool's stay as they are, and are not given while somebody is on them.
func TestInstancesThatAreThere(t *testing.T) {
	q := newQuarry(t)
	foreign := q.mig.Foreign(t, firstID, "1g.10gb", 5)
	r := q.run("")
	asker := q.asker(os.Getuid())
	if got := q.grant(r, asker, instanceOf("1g.10gb")).Tenant.Shares[0].Instance; got.UUID != foreign.UUID {
		t.Errorf("granted %+v, and %s is free", got, foreign.UUID)
	}
	q.has("1g.10gb@5 foreign")
	asker.end()
	eventually(t, "the share has ended", func() bool { return len(q.list(r).Tenants) == 0 })
	q.has("1g.10gb@5 foreign")
	if _, err := r.layout(t.Context(), root, control.LayoutParams{GPU: "0", On: true, Instances: map[string]int{"1g.10gb": 1, "2g.20gb": 1}}); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	r.intruders = []intruder{{pid: 1, uuid: firstID, instances: []int{foreign.GPUInstance}}}
	r.mu.Unlock()
	got := q.grant(r, q.asker(os.Getuid()), instanceOf("1g.10gb")).Tenant.Shares[0].Instance
	if got.UUID == foreign.UUID {
		t.Error("an instance was given on which somebody else is")
	}
	if got := q.grant(r, q.asker(os.Getuid()), instanceOf("2g.20gb")).Tenant.Shares[0].Instance; !slices.Contains(q.mig.Lists(firstID), "2g.20gb@"+string(rune('0'+got.Start))+" layout") {
		t.Errorf("granted %+v, and the layout has one: %q", got, q.mig.Lists(firstID))
	}
}

// Shares by one backend divide an instance, which ends with the last of them.
func TestPartsOfInstances(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	askers := []*asker{q.asker(os.Getuid()), q.asker(os.Getuid()), q.asker(os.Getuid()), q.asker(os.Getuid())}
	var on []string
	for i, p := range []control.CreateParams{
		within("2g.20gb", v1alpha1.BackendSlice, 12*gib), within("2g.20gb", v1alpha1.BackendSlice, 12*gib),
		within("2g.20gb", v1alpha1.BackendSlice, 8*gib), within("2g.20gb", v1alpha1.BackendMPS, 2*gib),
	} {
		s := q.grant(r, askers[i], p).Tenant.Shares[0]
		if s.Limit != p.Request.Memory.Of(0) || s.Backend != p.Request.Backend {
			t.Errorf("share %d has %+v", i, s)
		}
		on = append(on, s.Instance.UUID)
	}
	if on[0] == on[1] || on[2] != on[0] && on[2] != on[1] || slices.Contains(on[:3], on[3]) {
		t.Errorf("the shares are on %q", on)
	}
	if got := q.mpsed.entered(); !slices.Equal(got, on[3:]) {
		t.Errorf("mps was prepared on %q, want %q", got, on[3:])
	}
	text, code := q.refusal(r, os.Getuid(), within("2g.20gb", v1alpha1.BackendSlice, 21*gib))
	if code != control.CodeInvalid || !strings.Contains(text, "memory 21Gi is more than a MIG instance 2g.20gb has") {
		t.Errorf("more than an instance has: %s, %s", code, text)
	}
	if got := q.list(r).GPUs[0]; got.Form != v1alpha1.BackendMIG || got.Granted != 34*gib {
		t.Errorf("listed %+v", got)
	}
	more := v1alpha1.Bytes(9 * gib)
	if _, err := r.set(t.Context(), askers[2].peer, control.SetParams{Tenant: q.list(r).Tenants[2].Name, Memory: &more}); on[2] == on[0] && control.CodeOf(err) != control.CodeRefused {
		t.Errorf("grown beyond the instance: %v", err)
	}
	less := v1alpha1.Bytes(7 * gib)
	if changed, err := r.set(t.Context(), askers[2].peer, control.SetParams{Tenant: q.list(r).Tenants[2].Name, Memory: &less}); err != nil || changed.Shares[0].Limit != 7*gib {
		t.Errorf("changed: %+v, %v", changed, err)
	}
	for _, a := range askers {
		a.end()
	}
	q.becomes()
	if got := q.mpsed.entered(); len(got) != 0 {
		t.Errorf("mps is still prepared on %q", got)
	}
}

// What cannot be: a clear error, and nothing left.
func TestMIGRefusals(t *testing.T) {
	q := newQuarry(t)
	q.mig.Foreign(t, firstID, "1g.10gb", 2)
	q.mig.Foreign(t, firstID, "1g.10gb", 6)
	r := q.run("")
	plain := askOn("0", gib)
	elsewhere := instanceOf("1g.10gb")
	elsewhere.Request.Among = []string{"1"}
	sized := instanceOf("1g.10gb")
	sized.Request.Memory = v1alpha1.Bytes(gib)
	large := ask(90 * gib)
	large.Request.Backend = v1alpha1.BackendMIG
	for name, c := range map[string]struct {
		p    control.CreateParams
		code control.Code
		want string
	}{
		"an unknown profile":    {instanceOf("9g.90gb"), control.CodeInvalid, "has the MIG profile 9g.90gb (`divvy gpu ls --profiles` lists what there is): GPU 0 has 1g.10gb"},
		"no instance":           {plain, control.CodeInvalid, "GPU 0 is in MIG mode, where every share is in a MIG instance: ask for one by its profile, such as 1g.10gb"},
		"a GPU without MIG":     {elsewhere, control.CodeInvalid, "GPU 1 is not in MIG mode"},
		"a profile and memory":  {sized, control.CodeInvalid, "profile 1g.10gb says the memory"},
		"more than there is":    {large, control.CodeInvalid, "of a GPU that may serve has 90Gi: the largest is 7g.80gb"},
		"only by moving others": {instanceOf("3g.40gb"), control.CodeRefused, "it has room for 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, and for 3g.40gb only if a running instance moved"},
		"full":                  {instanceOf("7g.80gb"), control.CodeRefused, "has no room for a MIG instance 7g.80gb"},
	} {
		if text, code := q.refusal(r, os.Getuid(), c.p); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: %s, %s; want %s, %q", name, code, text, c.code, c.want)
		}
	}
	q.has("1g.10gb@2 foreign", "1g.10gb@6 foreign")
	if n := len(q.list(r).Tenants); n != 0 {
		t.Errorf("%d tenants", n)
	}
}

// A driver that fails leaves nothing, and the next share tries again.
func TestInstanceThatCannotBeMade(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	q.mig.SetFail(func(string) error { return errors.New("the driver failed") })
	if text, code := q.refusal(r, os.Getuid(), instanceOf("1g.10gb")); code != control.CodeRefused || !strings.Contains(text, "the driver failed") {
		t.Errorf("%s, %s", code, text)
	}
	if n := len(q.list(r).Tenants); n != 0 {
		t.Errorf("%d tenants", n)
	}
	q.mig.SetFail(nil)
	q.backend.fail = errors.New("no pages")
	if _, err := r.create(t.Context(), q.asker(os.Getuid()).peer, instanceOf("1g.10gb")); err == nil {
		t.Error("made without pages")
	}
	q.becomes()
	q.backend.fail = nil
	q.grant(r, q.asker(os.Getuid()), instanceOf("1g.10gb"))
}

// An instance that is still in use when its last share ends is taken away later.
func TestInstanceInUseIsTriedAgain(t *testing.T) {
	q := newQuarry(t)
	r := q.run("")
	asker := q.asker(os.Getuid())
	made := q.grant(r, asker, instanceOf("1g.10gb")).Tenant.Shares[0].Instance
	q.mig.Use(firstID, made.UUID, "process 7")
	asker.end()
	eventually(t, "an event tells of it", func() bool {
		return slices.ContainsFunc(q.list(r).Events, func(e control.Event) bool { return strings.Contains(e.Text, "is left of a share") })
	})
	if got := q.mig.Lists(firstID); len(got) != 1 {
		t.Fatalf("the GPU has %q", got)
	}
	q.mig.Use(firstID, made.UUID, "")
	r.mu.Lock()
	r.reform()
	r.mu.Unlock()
	q.becomes()
}
