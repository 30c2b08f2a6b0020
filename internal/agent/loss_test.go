package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// spoil replaces the checkpoint by what f makes of it; nil removes it.
func (n *node) spoil(f func(data []byte) []byte) {
	n.t.Helper()
	path := filepath.Join(n.dir, "tenants.json")
	data, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	if data = f(data); data == nil {
		err = os.Remove(path)
	} else {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

func half(data []byte) []byte { return data[:len(data)/2] }

// damages are what can become of a checkpoint.
var damages = map[string]func(data []byte) []byte{
	"truncated":  half,
	"empty":      func([]byte) []byte { return []byte{} },
	"missing":    func([]byte) []byte { return nil },
	"zeros":      func(data []byte) []byte { return make([]byte, len(data)) },
	"one bit":    func(data []byte) []byte { data[len(data)/2] ^= 2; return data },
	"of version": func(data []byte) []byte { return bytes.Replace(data, []byte(`"version":5`), []byte(`"version":99`), 1) },
	"of another": func(data []byte) []byte { return bytes.Replace(data, []byte(`"tenants"`), []byte(`"strangers"`), 1) },
}

// inhabit gives the node tenants of every kind, one after another.
func (n *node) inhabit(r *running) {
	n.t.Helper()
	long := strings.Repeat("a-name-that-no-page-holds-", 4)
	burst := askOn(firstID, 3*gib)
	burst.Request.Cores, burst.Request.MaxCores, burst.Request.Policy = 20, 60, v1alpha1.PolicyBurst
	burst.Layer = control.LayerNamespace
	weighted := askOn(firstID, 40*gib)
	weighted.Request.Name, weighted.Request.Weight, weighted.Request.Overcommit = long[:60], 7, true
	weighted.Request.Class = v1alpha1.ClassOffline
	both := ask(gib + 700)
	both.Request.GPUs = 2
	for i, p := range []control.CreateParams{burst, weighted, both} {
		created := n.grant(r, n.asker(os.Getuid()), p)
		n.enter(created.Tenant.Dir, 0, os.Getpid(), uint64(i+1)*gib/2)
	}
	root := control.NewPeer(self(), 0, nil, nil)
	weight := 9
	if _, err := r.set(n.t.Context(), root, control.SetParams{Tenant: weighted.Request.Name, Weight: &weight}); err != nil {
		n.t.Fatal(err)
	}
	one := claimed("a", 4*gib+700, 30)
	one.Name, one.Claim, one.Pods = "team/"+long, long, []string{"train-0", "train-1"}
	n.prepared(r, one)
	one.Pods = []string{"train-0", "train-1", "train-2"}
	n.prepared(r, one)
	n.prepared(r, claimed("pod/b/main", 2*gib, 0))
}

// tenants are what a listing says of them, as text, but for the GPU time, which goes on.
func (n *node) tenants(r *running) string {
	n.t.Helper()
	listed := n.list(r).Tenants
	for i := range listed {
		for j := range listed[i].Shares {
			listed[i].Shares[j].Time = nil
		}
	}
	text, err := json.MarshalIndent(listed, "", " ")
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

// However the checkpoint is lost, the next agent lists every tenant as the last one did,
// to the byte, and grants nothing twice.
func TestLostCheckpointCostsNothing(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := n.start()
			n.inhabit(r)
			before, keys := n.tenants(r), r.Tenancies()
			r.stopAgent()
			n.spoil(damage)

			r = n.start()
			r.sweep(t.Context())
			if after := n.tenants(r); after != before {
				t.Errorf("listed are\n%s\nbefore it was\n%s", after, before)
			}
			if after := r.Tenancies(); len(after) != 2 || !slices.EqualFunc(after, keys, func(x, y Tenancy) bool { return x.Key == y.Key }) {
				t.Errorf("tenancies %+v, before %+v", after, keys)
			}
			if l := n.list(r); !slices.ContainsFunc(l.Events, func(e control.Event) bool { return strings.Contains(e.Text, "5 tenants of the last agent were found") }) {
				t.Errorf("events %+v", l.Events)
			}
			if _, err := r.Prepare(t.Context(), claimed("c", 79*gib, 0)); err == nil {
				t.Error("what they hold was granted again")
			}
			if _, err := r.Prepare(t.Context(), claimed("pod/b/main", 5*gib, 30)); !errors.Is(err, ErrChanged) {
				t.Errorf("other shares under one key: %v", err)
			}
			if err := r.Release(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			r.stopAgent() // and all of it is saved
			r = n.start()
			if all := r.Tenancies(); len(all) != 1 || all[0].Key != "pod/b/main" || len(n.list(r).Events) != 0 {
				t.Errorf("then left: %+v", all)
			}
		})
	}
}

// What stands in the checkpoint's place and is none costs nothing either.
func TestNoFileForACheckpoint(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a folder": func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link":   func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := n.start()
			n.inhabit(r)
			before := n.tenants(r)
			r.stopAgent()
			n.spoil(damages["missing"])
			if err := put(filepath.Join(n.dir, "tenants.json")); err != nil {
				t.Fatal(err)
			}
			r = n.start()
			r.sweep(t.Context())
			if after := n.tenants(r); after != before {
				t.Errorf("listed are\n%s\nbefore it was\n%s", after, before)
			}
			r.stopAgent() // and all of it is saved
			if l := n.list(n.start()); len(l.Events) != 0 {
				t.Errorf("events %+v", l.Events)
			}
		})
	}
}

// A whole GPU stays whole.
func TestLostCheckpointKeepsWholeGPUs(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.prepared(r, wholeGPU("b", otherID))
	before := n.tenants(r)
	r.stopAgent()
	n.spoil(half)
	r = n.start()
	if after := n.tenants(r); after != before {
		t.Errorf("listed are\n%s\nbefore it was\n%s", after, before)
	}
	p := askOn(otherID, gib)
	p.Request.Overcommit = true
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, p); err == nil {
		t.Error("a share was granted on a whole GPU")
	}
}

// Tenants of a GPU that is lost together with the checkpoint stay too, and end as
// others do.
func TestLostCheckpointAndGPU(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.prepared(r, wholeGPU("b", otherID))
	r.stopAgent()
	n.spoil(half)
	n.backend.lost = otherID
	r = n.start()
	r.sweep(t.Context())
	l := n.list(r)
	if held, _ := r.Absent(); len(l.Tenants) != 1 || !l.Tenants[0].Shares[0].Whole || held[otherID] != 24*gib {
		t.Errorf("listed %+v, absent %v", l.Tenants, held)
	}
	if err := r.Release(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	n.mustBeEmpty(r)

	n.backend.lost = ""
	r.stopAgent()
	r = n.start()
	owner := n.asker(os.Getuid())
	created := n.grant(r, owner, askOn(otherID, gib))
	r.stopAgent()
	n.spoil(half)
	n.backend.lost = otherID
	r = n.start()
	r.sweep(t.Context())
	if l := n.list(r); len(l.Tenants) != 1 || l.Tenants[0].Name != created.Tenant.Name {
		t.Errorf("listed %+v", l)
	}
	owner.kill()
	eventually(t, "the tenant ends", n.gone(r, created))
}

// If the record is lost as well, the pages tell what was granted, and the tenant is
// marked.
func TestLostRecordLeavesThePages(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"truncated": func(path string) error { return os.Truncate(path, 20) },
		"missing":   os.Remove,
		"a link":    func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)) },
		"endless":   func(path string) error { return os.Truncate(path, 1<<40) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := n.start()
			p := onFirst(30)
			p.Request.Policy, p.Request.MaxCores = v1alpha1.PolicyBurst, 60
			created := n.grant(r, n.asker(os.Getuid()), p)
			n.enter(created.Tenant.Dir, 0, os.Getpid(), gib)
			wanted := claimed("a", 4*gib+700, 30)
			dir := n.prepared(r, wanted)
			r.stopAgent()
			n.spoil(half)
			for _, d := range n.directories() {
				if err := damage(tenantdir.Dir(d).Record()); err != nil {
					t.Fatal(err)
				}
			}
			r = n.start()
			r.sweep(t.Context())
			l := n.list(r)
			if len(l.Tenants) != 2 || !l.Tenants[0].Rebuilt || !l.Tenants[1].Rebuilt || l.GPUs[0].Granted != 5*gib+512 || l.GPUs[0].Cores != 60 {
				t.Fatalf("found %+v", l)
			}
			one := slices.IndexFunc(l.Tenants, func(v control.Tenant) bool { return v.Claim == "" })
			if s := l.Tenants[one].Shares[0]; s.Policy != v1alpha1.PolicyBurst || s.Cores != 30 || s.MaxCores != 60 {
				t.Errorf("found %+v, want policy burst, 30 cores, 60 max cores", s)
			}
			if _, err := r.Prepare(t.Context(), claimed("a", 5*gib, 30)); !errors.Is(err, ErrChanged) {
				t.Errorf("other shares under one key: %v", err)
			}
			if got := n.prepared(r, wanted); got != dir {
				t.Errorf("%s became %s", dir, got)
			}
			before := n.tenants(r)
			r.stopAgent() // and what is known now is kept
			n.spoil(half)
			if after := n.tenants(n.start()); after != before {
				t.Errorf("listed are\n%s\nbefore it was\n%s", after, before)
			}
		})
	}
}

// Tenants of another machine's agent lie in the same place, and so may what is left of
// a tenant that was never made.
func TestRebuildLeavesForeignTenants(t *testing.T) {
	n, other := newNode(t), newNode(t)
	other.backend.dir, other.backend.Tenants = n.backend.dir, n.backend.Tenants // on a machine of its own
	theirs := other.start()
	kept := other.prepared(theirs, claimed("theirs", gib, 0))
	theirs.stopAgent()
	foreign := record{ID: "feedbeef", Name: "theirs", Shares: []share{{UUID: "GPU-00000000-0000-4000-8000-00000000dead", Limit: gib}}}
	n.furnish(foreign)
	if err := os.Mkdir(filepath.Join(n.backend.dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	for events, content := range map[int]string{2: "{", 0: ""} {
		path := filepath.Join(n.dir, "tenants.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if content == "" {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		r := n.start()
		r.sweep(t.Context())
		if l := n.list(r); len(l.Tenants) != 0 || len(l.Events) != events {
			t.Errorf("found %+v", l)
		}
		r.stopAgent()
	}
	if _, err := page.ReadConfig(tenantdir.Of(n.backend.dir, "feedbeef").Config()); err != nil {
		t.Error(err)
	}
	if !tenantdir.Dir(kept).Complete() {
		t.Error("another agent's tenant was removed")
	}
}

// What an agent left that died while it made a tenant is taken up as what it is.
func TestLostCheckpointAndHalfATenant(t *testing.T) {
	wanted := claimed("a", 60*gib, 0)
	n := newNode(t)
	if !n.crashing("prepare-made", func(r *running) { n.prepared(r, wanted) }) {
		t.Fatal("there is no such step")
	}
	n.spoil(half)
	n.finishes(n.start(), wanted)
}

// FuzzLostCheckpoint changes the checkpoint at one place, or replaces it.
func FuzzLostCheckpoint(f *testing.F) {
	f.Add(0, byte(1), []byte(nil))
	f.Add(9, byte(0x20), []byte(nil))
	f.Add(40, byte(4), []byte(nil))
	f.Add(300, byte(0xff), []byte(nil))
	f.Add(0, byte(0), []byte(`{"kind":"tenants","version":5,"sha256":"","state":null}`))
	f.Add(0, byte(0), []byte(`{"kind":"tenants","version":5,"sha256":"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b","state":null}`))
	f.Fuzz(func(t *testing.T, at int, change byte, other []byte) {
		n := newNode(t)
		r := n.start()
		created := n.grant(r, n.asker(os.Getuid()), onFirst(30))
		n.enter(created.Tenant.Dir, 0, os.Getpid(), gib)
		n.prepared(r, claimed("a", 4*gib, 0))
		before := n.tenants(r)
		r.stopAgent()
		n.spoil(func(data []byte) []byte {
			if other != nil {
				return other
			}
			data[uint(at)%uint(len(data))] ^= change
			return data
		})
		if after := n.tenants(n.start()); after != before {
			t.Errorf("listed are\n%s\nbefore it was\n%s", after, before)
		}
	})
}
