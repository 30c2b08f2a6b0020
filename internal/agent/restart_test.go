package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// frozenTenants is the place of tenant directories in the fixtures.
const frozenTenants = "/dev/shm/divvy-0/tenants"

// thaw puts a frozen checkpoint on a machine, with the directories of the
// tenants of which one is there.
func (n *node) thaw(name string) saved {
	n.t.Helper()
	path := filepath.Join("testdata/checkpoint", name)
	state, err := newCheckpoint(path).Load()
	if err != nil {
		n.t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	var envelope struct {
		Kind    string          `json:"kind"`
		Version int             `json:"version"`
		SHA256  string          `json:"sha256"`
		State   json.RawMessage `json:"state"`
	}
	if err := json.Unmarshal(data, &envelope); err != nil {
		n.t.Fatal(err)
	}
	moved := strings.ReplaceAll(string(envelope.State), frozenTenants, n.backend.dir)
	sum := sha256.Sum256([]byte(moved))
	text := strings.ReplaceAll(strings.ReplaceAll(string(data), frozenTenants, n.backend.dir), envelope.SHA256, hex.EncodeToString(sum[:]))
	if err := os.WriteFile(filepath.Join(n.dir, "tenants.json"), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	for i := range state.Tenants {
		r := &state.Tenants[i]
		r.Dir = strings.Replace(r.Dir, frozenTenants, n.backend.dir, 1)
		if !r.Unmade {
			n.furnish(*r)
		}
	}
	return state
}

// furnish makes a tenant's directory as an earlier agent did.
func (n *node) furnish(r record) {
	n.t.Helper()
	t := backend.Tenant{ID: r.ID, Name: r.Name, Layer: r.Layer}
	for _, s := range r.Shares {
		s.Default(s.Cores)
		t.Shares = append(t.Shares, backend.Share{
			GPU: backend.GPU{UUID: s.UUID}, Limit: s.Limit, Cores: s.Cores, MaxCores: s.MaxCores, Weight: s.Weight, Policy: s.Policy, Class: s.Class,
		})
	}
	plan, err := n.backend.Plan(t)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := plan.Apply(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

// Every version that was released is taken up with its tenants running.
func TestStartFromEveryCheckpoint(t *testing.T) {
	for name, want := range map[string]struct {
		granted []uint64
		dirs    int
	}{
		"v1.json": {[]uint64{12 * gib, 6*gib + 512}, 3},
		"v2.json": {[]uint64{14 * gib, 24 * gib}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			state := n.thaw(name)
			for i, r := range state.Tenants {
				if !r.Unmade {
					n.enter(r.Dir, 0, 1000000+i, gib)
				}
			}
			made := n.backend.applied.Load()
			r := n.start()
			r.sweep(t.Context())
			l := n.list(r)
			for i, gpu := range l.GPUs {
				if gpu.Granted != want.granted[i] {
					t.Errorf("%d bytes are granted of GPU %d, want %d", gpu.Granted, i, want.granted[i])
				}
			}
			if len(l.Tenants) != len(state.Tenants) || len(l.Events) != 0 {
				t.Errorf("%d tenants, events %+v", len(l.Tenants), l.Events)
			}
			if dirs := n.directories(); len(dirs) != want.dirs {
				t.Errorf("directories %v", dirs)
			}
			for i, tenancy := range r.Tenancies() {
				if _, err := r.Prepare(t.Context(), tenancy); err != nil {
					t.Errorf("tenancy %d: %v", i, err)
				}
			}
			unmade := slices.IndexFunc(state.Tenants, func(r record) bool { return r.Unmade })
			if again := n.backend.applied.Load() - made; (unmade >= 0) != (again == 1) {
				t.Errorf("%d directories were made", again)
			}
			r.stopAgent()
			if state, err := newCheckpoint(filepath.Join(n.dir, "tenants.json")).Load(); err != nil || len(state.Tenants) != len(l.Tenants) {
				t.Errorf("then saved: %d tenants, %v", len(state.Tenants), err)
			}
		})
	}
}

// damage makes the checkpoint unreadable.
func (n *node) damage() {
	n.t.Helper()
	path := filepath.Join(n.dir, "tenants.json")
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, data[:len(data)/2], 0o600)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

func TestDamagedCheckpointForgetsNobody(t *testing.T) {
	n := newNode(t)
	r := n.start()
	created := n.grant(r, n.asker(os.Getuid()), askOn(firstID, 8*gib))
	n.enter(created.Tenant.Dir, 0, os.Getpid(), gib)
	wanted := claimed("a", 4*gib+700, 30)
	dir := n.prepared(r, wanted)
	n.prepared(r, wholeGPU("b", otherID))
	r.stopAgent()
	n.damage()

	r = n.start()
	r.sweep(t.Context())
	l := n.list(r)
	if len(l.Tenants) != 3 || l.GPUs[0].Granted != 12*gib+512 || l.GPUs[0].Cores != 30 || l.GPUs[1].Granted != 24*gib {
		t.Fatalf("found %+v", l)
	}
	for _, v := range l.Tenants {
		if !v.Rebuilt {
			t.Errorf("%s is not marked", v.Name)
		}
	}
	if !slices.ContainsFunc(l.Events, func(e control.Event) bool { return strings.Contains(e.Text, "3 tenants of the last agent were found") }) {
		t.Errorf("events %+v", l.Events)
	}
	if _, err := r.Prepare(t.Context(), claimed("c", 69*gib, 0)); err == nil {
		t.Error("what they hold was granted again")
	}
	if _, err := r.Prepare(t.Context(), claimed("a", 5*gib, 30)); !errors.Is(err, ErrChanged) {
		t.Errorf("other shares under one key: %v", err)
	}
	if got := n.prepared(r, wanted); got != dir {
		t.Errorf("%s became %s", dir, got)
	}
	if err := r.Release(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	r.stopAgent() // and all of it is saved
	if all := n.start().Tenancies(); len(all) != 1 || all[0].Key != "a" {
		t.Errorf("then left: %+v", all)
	}
}

// All of a share survives the loss of the checkpoint: its pages tell it.
func TestDamagedCheckpointKeepsMaxCores(t *testing.T) {
	n := newNode(t)
	r := n.start()
	p := onFirst(30)
	p.Request.Policy, p.Request.MaxCores = v1alpha1.PolicyBurst, 60
	created := n.grant(r, n.asker(os.Getuid()), p)
	n.enter(created.Tenant.Dir, 0, os.Getpid(), gib)
	r.stopAgent()
	n.damage()
	l := n.list(n.start())
	if len(l.Tenants) != 1 || !l.Tenants[0].Rebuilt {
		t.Fatalf("found %+v", l)
	}
	if s := l.Tenants[0].Shares[0]; s.Policy != v1alpha1.PolicyBurst || s.Cores != 30 || s.MaxCores != 60 {
		t.Errorf("found %+v, want policy burst, 30 cores, 60 max cores", s)
	}
}

// Tenants of another machine's agent lie in the same place.
func TestRebuildLeavesForeignTenants(t *testing.T) {
	n := newNode(t)
	foreign := record{ID: "feedbeef", Name: "theirs", Shares: []share{{UUID: "GPU-00000000-0000-4000-8000-00000000dead", Limit: gib}}}
	n.furnish(foreign)
	if err := os.Mkdir(filepath.Join(n.backend.dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "tenants.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := n.start()
	r.sweep(t.Context())
	if l := n.list(r); len(l.Tenants) != 0 || len(l.Events) != 2 {
		t.Errorf("found %+v", l)
	}
	if _, err := page.ReadConfig(tenantdir.Of(n.backend.dir, "feedbeef").Config()); err != nil {
		t.Error(err)
	}
}

// crash is what the step hook panics with.
type crash string

// crashing runs an agent until it crashes in f at a step, or f returns.
func (n *node) crashing(step string, f func(*running)) (crashed bool) {
	n.step = func(name string) {
		if name == step {
			panic(crash(step))
		}
	}
	r := n.start()
	n.step = nil
	defer r.stopAgent()
	defer func() {
		if fault := recover(); fault != nil {
			crashed = fault == crash(step)
		}
	}()
	f(r)
	return false
}

// An agent that dies after any step leaves what the next one completes.
func TestCrashAfterEveryStep(t *testing.T) {
	wanted := claimed("a", 60*gib, 0)
	for _, step := range []string{"prepare-entered", "prepare-made"} {
		t.Run(step, func(t *testing.T) {
			n := newNode(t)
			if !n.crashing(step, func(r *running) { n.prepared(r, wanted) }) {
				t.Fatal("there is no such step")
			}
			r := n.start()
			if got := n.granted(r); got != 60*gib {
				t.Errorf("%d bytes are counted", got)
			}
			n.prepared(r, wanted)
			n.mustBeAlone(r, wanted)
			if err := r.Release(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			n.mustBeEmpty(r)
		})
		t.Run(step+" and released", func(t *testing.T) {
			n := newNode(t)
			n.crashing(step, func(r *running) { n.prepared(r, wanted) })
			r := n.start()
			if err := r.Release(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			n.mustBeEmpty(r)
		})
	}
	for _, step := range []string{"release-begun", "release-undone"} {
		t.Run(step, func(t *testing.T) {
			n := newNode(t)
			crashed := n.crashing(step, func(r *running) {
				n.prepared(r, wanted)
				_ = r.Release(t.Context(), "a")
			})
			if !crashed {
				t.Fatal("there is no such step")
			}
			r := n.start()
			r.sweep(t.Context())
			n.mustBeAlone(r, wanted)
			if err := r.Release(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			n.mustBeEmpty(r)
		})
	}
}

func (n *node) mustBeAlone(r *running, want Tenancy) {
	n.t.Helper()
	want, err := want.normal()
	if err != nil {
		n.t.Fatal(err)
	}
	if all := r.Tenancies(); len(all) != 1 || !reflect.DeepEqual(all[0], want) || n.granted(r) != want.Shares[0].Memory {
		n.t.Errorf("tenancies %+v, %d bytes", all, n.granted(r))
	}
}

// directories are those of tenants.
func (n *node) directories() []string {
	n.t.Helper()
	var dirs []string
	for _, tenants := range []string{n.backend.dir, tenantdir.Containers(n.backend.dir)} {
		found, err := filepath.Glob(filepath.Join(tenants, "*"))
		if err != nil {
			n.t.Fatal(err)
		}
		dirs = append(dirs, found...)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return dir == tenantdir.Containers(n.backend.dir) })
}

func (n *node) mustBeEmpty(r *running) {
	n.t.Helper()
	if all := r.Tenancies(); len(all) != 0 || n.granted(r) != 0 {
		n.t.Errorf("left: %+v, %d bytes", all, n.granted(r))
	}
	if left := n.directories(); len(left) != 0 {
		n.t.Errorf("left: %v", left)
	}
}
