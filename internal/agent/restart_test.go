package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/backend"
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

// crashing runs an agent until it crashes in f at a step, or f returns.
func (n *node) crashing(step string, f func(*running)) (crashed bool) {
	n.step = agenttest.CrashAt(step, 1)
	r := n.start()
	n.step = nil
	defer r.stopAgent()
	return agenttest.Crashes(step, func() { f(r) })
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
			n.finishes(n.start(), wanted)
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

// finishes finds that an agent counts a tenancy of 60 GiB that another made by half, makes the rest, and releases it.
func (n *node) finishes(r *running, wanted Tenancy) {
	n.t.Helper()
	if got := n.granted(r); got != 60*gib {
		n.t.Errorf("%d bytes are counted", got)
	}
	n.prepared(r, wanted)
	n.mustBeAlone(r, wanted)
	if err := r.Release(n.t.Context(), "a"); err != nil {
		n.t.Error(err)
	}
	n.mustBeEmpty(r)
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
