package tenantdir

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
)

const stranger = 4321

// left is a tenant that an own agent of a user left below dir, in a place that is the
// user's.
func left(t *testing.T) (place string, found backend.Tenant) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root takes over from other users")
	}
	dir := t.TempDir()
	for path := dir; path != "/" && path != os.TempDir(); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	place = filepath.Join(dir, "divvy-4321", "tenants")
	found = backend.Tenant{ID: "0a1b2c3d", Name: "job", UID: stranger, Layer: backend.LayerNamespace, Shares: []backend.Share{{
		GPU:   backend.GPU{UUID: "GPU-00000000-0000-4000-8000-000000000001"},
		Limit: 1 << 30, Weight: 1, Policy: "weighted", Class: "online",
	}}}
	c, err := Encode(found, 1)
	if err != nil {
		t.Fatal(err)
	}
	found.Dir = string(Of(place, found.ID))
	if err := Dir(found.Dir).Make(&c, nil, AccessOwner, stranger); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Dir(place), place, found.Dir, Dir(found.Dir).Config()} {
		if err := errors.Join(os.Chown(path, stranger, stranger)); err != nil {
			t.Fatal(err)
		}
	}
	return place, found
}

func adopting(t *testing.T) (*Tenants, backend.Tenant) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "tenants")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return NewTenants(Config{Root: root}), backend.Tenant{Dir: string(Of(root, "0a1b2c3d"))}
}

// An adopted tenant's limit is in a page of the agent's; the one that its processes
// read follows it, and cannot change it.
func TestAdopt(t *testing.T) {
	place, found := left(t)
	ts, ours := adopting(t)
	strangers, err := ts.Strangers(t.Context(), place, stranger)
	if err != nil || len(strangers) != 1 || strangers[0].Err != nil || strangers[0].Live || strangers[0].Tenant.Dir != found.Dir {
		t.Fatalf("found %+v, %v", strangers, err)
	}
	from := found.Dir
	found.Dir, found.Shares[0].Limit = ours.Dir, 512<<20
	for range 2 {
		if err := ts.Adopt(t.Context(), from, found); err != nil {
			t.Fatal(err)
		}
	}
	limit := func(path string) uint64 {
		t.Helper()
		c, err := page.ReadConfig(path)
		if err != nil {
			t.Fatal(err)
		}
		return c.Device[0].Limit
	}
	d, old := Dir(ours.Dir), Dir(from)
	if !d.Adopted() || limit(d.Config()) != 512<<20 || limit(old.Config()) != 512<<20 {
		t.Errorf("the agent's page says %d, the processes' %d", limit(d.Config()), limit(old.Config()))
	}
	if err := page.UpdateConfig(old.Config(), func(c *page.Config) { c.Device[0].Limit = 80 << 30 }); err != nil {
		t.Fatal(err)
	}
	if limit(d.Config()) != 512<<20 {
		t.Error("the user changed the agent's page")
	}
	if err := ts.Change(t.Context(), found); err != nil || limit(old.Config()) != 512<<20 {
		t.Errorf("%v, the processes read %d", err, limit(old.Config()))
	}
	for _, name := range []string{d.State(), d.Theirs()} {
		if info, err := os.Lstat(name); err != nil || info.Sys().(*syscall.Stat_t).Nlink != 2 {
			t.Errorf("%s is not the user's page: %v", name, err)
		}
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
	for _, path := range []string{string(d), from} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
}

// Whatever a user puts in the way, nothing of anybody else's is adopted or removed.
func TestAdoptFollowsNobody(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, place string, found backend.Tenant) error{
		"link to a directory": func(t *testing.T, _ string, found backend.Tenant) error {
			other := t.TempDir()
			return errors.Join(os.RemoveAll(found.Dir), os.Symlink(other, found.Dir))
		},
		"link to a page": func(_ *testing.T, _ string, found backend.Tenant) error {
			state := Dir(found.Dir).State()
			return errors.Join(os.Rename(state, state+"x"), os.Symlink(state+"x", state))
		},
		"another user's directory": func(_ *testing.T, place string, _ backend.Tenant) error { return os.Chown(place, 4322, -1) },
		"another user's page": func(_ *testing.T, _ string, found backend.Tenant) error {
			return os.Chown(Dir(found.Dir).Config(), 4322, -1)
		},
		"a page for all": func(_ *testing.T, _ string, found backend.Tenant) error {
			return os.Chmod(Dir(found.Dir).State(), 0o666)
		},
		"a pipe": func(_ *testing.T, _ string, found backend.Tenant) error {
			state := Dir(found.Dir).State()
			return errors.Join(os.Remove(state), syscall.Mkfifo(state, 0o600), os.Chown(state, stranger, -1))
		},
		"nothing": func(_ *testing.T, _ string, found backend.Tenant) error { return os.RemoveAll(found.Dir) },
	} {
		t.Run(name, func(t *testing.T) {
			place, found := left(t)
			ts, ours := adopting(t)
			if err := spoil(t, place, found); err != nil {
				t.Fatal(err)
			}
			strangers, err := ts.Strangers(t.Context(), place, stranger)
			for _, s := range strangers {
				if s.Err == nil {
					t.Errorf("found %+v", s)
				}
			}
			if name == "another user's directory" && err == nil {
				t.Error("a place of another user was entered")
			}
			from := found.Dir
			found.Dir = ours.Dir
			if err := ts.Adopt(t.Context(), from, found); err == nil {
				t.Error("it was adopted")
			}
			if left, err := os.ReadDir(filepath.Dir(ours.Dir)); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// When the tenant ends, a link in the place of its old directory leads nowhere.
func TestRemoveFollowsNobody(t *testing.T) {
	place, found := left(t)
	ts, ours := adopting(t)
	from := found.Dir
	found.Dir = ours.Dir
	if err := ts.Adopt(t.Context(), from, found); err != nil {
		t.Fatal(err)
	}
	victim := t.TempDir()
	kept := filepath.Join(victim, filepath.Base(from), "kept")
	err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o755), os.WriteFile(kept, nil, 0o600),
		os.Rename(place, place+"x"), os.Symlink(victim, place))
	if err != nil {
		t.Fatal(err)
	}
	if err := Dir(ours.Dir).Remove(); err == nil {
		t.Error("nothing is said of the old directory")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a file of another user was removed: %v", err)
	}
	if _, err := os.Stat(ours.Dir); err == nil {
		t.Error("the agent's directory is still there")
	}
}
