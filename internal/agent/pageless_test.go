package agent

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

// instances is a backend without pages and directories, as one that divides the
// hardware: it keeps its tenants itself, and they outlive agents.
type instances struct {
	mu      sync.Mutex
	made    map[string]backend.Tenant
	users   map[string]int    // pid of the process that uses a tenant
	used    map[string]uint64 // bytes
	percent float64
	// figures changes what a look finds; nil leaves it.
	figures func(*backend.Figures)
	t       *testing.T
	asked   map[string]bool // which functions were given a tenant
}

func newInstances(t *testing.T) *instances {
	t.Helper()
	return &instances{
		made: map[string]backend.Tenant{}, users: map[string]int{}, used: map[string]uint64{}, percent: 12.5, t: t, asked: map[string]bool{},
	}
}

// given checks that a function was given all that is known of a tenant.
func (b *instances) given(function string, t backend.Tenant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked[function] = true
	if len(t.Shares) != 1 || t.Shares[0].GPU.UUID != firstID || t.Shares[0].Limit == 0 || t.Shares[0].Policy == "" || t.ID == "" || t.Name == "" || t.Layer == "" {
		b.t.Errorf("%s was given %+v", function, t)
	}
}

func (b *instances) Discover(context.Context) ([]backend.GPU, error) {
	return []backend.GPU{{Index: 0, UUID: firstID, Total: 80 * gib}}, nil
}

func (b *instances) Plan(t backend.Tenant) (*backend.Plan, error) {
	return &backend.Plan{
		Steps: []backend.Step{instance{b, t}},
		Edits: edits.Edits{Env: []edits.Env{{Name: "INSTANCE", Value: t.ID}}},
	}, nil
}

type instance struct {
	backend *instances
	tenant  backend.Tenant
}

func (i instance) Apply() error {
	i.backend.mu.Lock()
	defer i.backend.mu.Unlock()
	i.backend.made[i.tenant.ID] = i.tenant
	return nil
}

func (i instance) Undo() error { return nil }

func (b *instances) Apply(ctx context.Context, p *backend.Plan) error { return p.Apply(ctx) }
func (b *instances) Health(context.Context) error                     { return nil }

func (b *instances) Undo(_ context.Context, t backend.Tenant) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.made, t.ID)
	return nil
}

func (b *instances) Look(_ context.Context, t backend.Tenant) (backend.Figures, error) {
	b.given("Look", t)
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.made[t.ID]; !ok {
		return backend.Figures{}, errors.New("the instance is gone")
	}
	used, pid := b.used[t.ID], b.users[t.ID]
	f := backend.Figures{
		Usage: []backend.Usage{{Used: used, Time: &backend.Time{Used: 3 * time.Second, Percent: &b.percent}}},
		Live:  pid != 0,
	}
	if pid != 0 {
		f.Processes = []backend.Process{{PID: pid, Live: true, Used: []uint64{used}}}
	}
	if b.figures != nil {
		b.figures(&f)
	}
	return f, nil
}

func (b *instances) Alive(t backend.Tenant) (bool, error) {
	b.given("Alive", t)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.users[t.ID] != 0, nil
}

func (b *instances) Complete(t backend.Tenant) bool {
	b.given("Complete", t)
	return b.limit(t.ID) > 0
}

func (b *instances) Recover(context.Context) (found []backend.Found, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.made {
		found = append(found, backend.Found{Tenant: t})
	}
	return found, nil
}

func (b *instances) Container(int) string { return "" }

func (b *instances) Has(t backend.Tenant, pid int) bool {
	b.given("Has", t)
	return b.user(t.ID) == pid
}

func (b *instances) Owner(tenants []backend.Tenant, pid int) (tenant string, unread bool) {
	for _, t := range tenants {
		b.given("Owner", t)
		if b.user(t.ID) == pid {
			return t.ID, false
		}
	}
	return "", false
}

func (b *instances) Counts(tenants []backend.Tenant, p process.ID) bool {
	for _, t := range tenants {
		b.given("Counts", t)
		if b.user(t.ID) == p.PID {
			return true
		}
	}
	return false
}

func (b *instances) Holder(t backend.Tenant) process.ID {
	b.given("Holder", t)
	id, err := process.Find(b.user(t.ID))
	if err != nil {
		return process.ID{}
	}
	return id
}

func (b *instances) Change(_ context.Context, t backend.Tenant) error {
	b.given("Change", t)
	return instance{b, t}.Apply()
}

func (b *instances) user(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.users[id]
}

// limit is what the instance of a tenant has, 0 without an instance.
func (b *instances) limit(id string) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t, ok := b.made[id]; ok {
		return t.Shares[0].Limit
	}
	return 0
}

// use makes a process use a tenant's instance; pid 0 ends that.
func (b *instances) use(id string, pid int, bytes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users[id], b.used[id] = pid, bytes
}

// find changes what the looks to come find.
func (b *instances) find(figures func(*backend.Figures)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.figures = figures
}

// A tenant of a backend that has neither pages nor a directory is made, listed,
// taken up by the next agent, changed and ended like any other.
func TestBackendWithoutPages(t *testing.T) {
	n := newNode(t)
	b := newInstances(t)
	r := n.startWith(b)
	owner := n.asker(os.Getuid())
	created := n.grant(r, owner, ask(8*gib))
	id := created.Tenant.ID
	if env := created.Edits.Env; len(env) != 1 || env[0].Value != id || b.limit(id) != 8*gib {
		t.Fatalf("made %+v of %d bytes", env, b.limit(id))
	}
	b.use(id, owner.cmd.Process.Pid, 2*gib)
	expectListed := func(r *running, limit uint64) {
		t.Helper()
		l := n.list(r)
		if len(l.Tenants) != 1 || l.GPUs[0].Granted != limit {
			t.Fatalf("listed %+v", l)
		}
		s := l.Tenants[0].Shares[0]
		pids := []int{}
		for _, p := range s.Process {
			pids = append(pids, p.PID)
		}
		if s.Used != 2*gib || s.Limit != limit || !slices.Equal(pids, []int{owner.cmd.Process.Pid}) {
			t.Errorf("listed %+v", s)
		}
		if s.Time == nil || s.Time.Used != uint64(3*time.Second) || s.Time.Percent == nil || *s.Time.Percent != 12.5 {
			t.Errorf("its time is %+v", s.Time)
		}
	}
	expectListed(r, 8*gib)

	r.stopAgent()
	r = n.startWith(b)
	expectListed(r, 8*gib)

	memory := v1alpha1.Bytes(10 * gib)
	if _, err := r.set(t.Context(), owner.peer, control.SetParams{Tenant: id, Memory: &memory}); err != nil || b.limit(id) != 10*gib {
		t.Fatalf("changed: %v, %d bytes", err, b.limit(id))
	}
	expectListed(r, 10*gib)

	r.stopAgent()
	if err := os.WriteFile(filepath.Join(n.dir, "tenants.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = n.startWith(b)
	expectListed(r, 10*gib)
	if l := n.list(r); !l.Tenants[0].Rebuilt {
		t.Error("it was not found again by the backend")
	}

	owner.kill()
	b.use(id, 0, 0)
	eventually(t, "the tenant ends", func() bool {
		r.sweep(t.Context())
		left, _ := r.InUse()
		return left == 0 && b.limit(id) == 0
	})
}

// A tenancy of such a backend is prepared again with the same answer, and is kept
// as long as it is used.
func TestTenancyWithoutPages(t *testing.T) {
	n := newNode(t)
	b := newInstances(t)
	r := n.startWith(b)
	wanted := claimed("a", 4*gib, 30)
	first, err := r.Prepare(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	id := tenancyID("a")
	b.use(id, os.Getpid(), gib)
	r.stopAgent()
	r = n.startWith(b)
	again, err := r.Prepare(t.Context(), wanted)
	if err != nil || !slices.Equal(again.Env, first.Env) || b.limit(id) != 4*gib {
		t.Fatalf("prepared again: %+v, %v", again, err)
	}
	if err := r.Release(t.Context(), "a"); !errors.Is(err, ErrInUse) {
		t.Errorf("release of a tenancy in use: %v", err)
	}
	b.use(id, 0, 0)
	if err := r.Release(t.Context(), "a"); err != nil || b.limit(id) != 0 {
		t.Errorf("release: %v, %d bytes", err, b.limit(id))
	}
}

// noticing is a backend without pages that could give notices and gives none.
type noticing struct{ *instances }

func (b noticing) Notices() (backend.Notices, error) { return heard{backend: b.instances}, nil }

type heard struct{ backend *instances }

func (heard) Remove(string)                         {}
func (heard) Run(context.Context, backend.Listener) {}
func (heard) Close()                                {}

func (h heard) Add(t backend.Tenant) error {
	h.backend.given("Add", t)
	return nil
}

// Whatever a backend is asked of a tenant, it is told what the tenant was granted.
// The backend checks that; this test lets every function be asked.
func TestBackendIsToldTheShares(t *testing.T) {
	n := newNode(t)
	b := noticing{newInstances(t)}
	r := n.startWith(b)
	n.grant(r, n.asker(os.Getuid()), onFirst(30))
	for range 2 {
		if _, err := r.Prepare(t.Context(), claimed("a", 4*gib, 30)); err != nil {
			t.Fatal(err)
		}
	}
	b.find(func(f *backend.Figures) { f.Processes = []backend.Process{{Live: true}} }) // of unknown pid
	stranger := n.asker(os.Getuid()).cmd.Process.Pid
	n.driver.list(nvml.Process{PID: stranger, Used: gib})
	n.list(r)
	r.ownerOf(stranger)
	if err := r.Abandon(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	r.stopAgent()
	n.startWith(b).stopAgent()
	asked := slices.Sorted(maps.Keys(b.asked))
	if want := []string{"Add", "Alive", "Change", "Complete", "Counts", "Holder", "Look", "Owner"}; !slices.Equal(asked, want) {
		t.Errorf("asked were %q, want %q", asked, want)
	}
}
