package tenantdir

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
)

// made is a tenant's directory with everything in it.
func made(t *testing.T, place, id string) Dir {
	t.Helper()
	d := Of(place, id)
	c, err := Encode(randomTenant(t, rand.New(rand.NewPCG(3, 1))), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Make(&c, []byte("record of "+id), AccessOwner, -1); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSurvey(t *testing.T) {
	base := t.TempDir()
	if found, err := Survey(base, "a/b", os.Getuid()); len(found) != 0 || err != nil {
		t.Errorf("without a place: %+v, %v", found, err)
	}
	d := made(t, filepath.Join(base, "a", "b"), "one")
	made(t, Containers(filepath.Join(base, "a", "b")), "not-here")
	found, err := Survey(base, "a/b", os.Getuid())
	if err != nil || len(found) != 1 {
		t.Fatalf("found %+v, %v", found, err)
	}
	f := found[0]
	if f.Err != nil || f.Tenant.ID != "one" || f.Tenant.Dir != string(d) || f.Tenant.UID != os.Getuid() || string(f.Record) != "record of one" || len(f.Tenant.Shares) == 0 {
		t.Errorf("found %+v", f)
	}
	if err := (&Tenants{}).Keep(backend.Tenant{Dir: string(d), Record: []byte("later")}); err != nil {
		t.Fatal(err)
	}
	c, err := page.ReadConfig(d.Config())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Make(&c, []byte("earlier"), AccessOwner, -1); err != nil { // what is there stays
		t.Fatal(err)
	}
	if found, err := Survey(base, "a/b", os.Getuid()); err != nil || string(found[0].Record) != "later" {
		t.Errorf("found %+v, %v", found, err)
	}
	if err := (&Tenants{}).Keep(backend.Tenant{Dir: string(d), Record: make([]byte, mostRecord+1)}); err == nil {
		t.Error("a record was kept that is not read again")
	}
}

// A directory whose owner is hostile leads nowhere else and holds nobody up.
func TestSurveyBelievesNothing(t *testing.T) {
	file := func(path string, mode os.FileMode) error {
		return errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte("x"), mode), os.Chmod(path, mode))
	}
	for name, test := range map[string]struct {
		spoil func(d Dir) error
		// record tells whether the record is read all the same.
		record bool
	}{
		"the config is a link":    {func(d Dir) error { return relink(d.Config()) }, true},
		"the config is a pipe":    {func(d Dir) error { return errors.Join(os.Remove(d.Config()), unix.Mkfifo(d.Config(), 0o600)) }, true},
		"the config is anybody's": {func(d Dir) error { return os.Chmod(d.Config(), 0o666) }, true},
		"the config is short":     {func(d Dir) error { return os.Truncate(d.Config(), 100) }, true},
		"no config":               {func(d Dir) error { return os.Remove(d.Config()) }, true},
		"the state is a link":     {func(d Dir) error { return relink(d.State()) }, true},
		"the state is a pipe":     {func(d Dir) error { return errors.Join(os.Remove(d.State()), unix.Mkfifo(d.State(), 0o600)) }, true},
		"the record is a link":    {func(d Dir) error { return relink(d.Record()) }, false},
		"the record is a pipe":    {func(d Dir) error { return errors.Join(os.Remove(d.Record()), unix.Mkfifo(d.Record(), 0o600)) }, false},
		"the record is endless":   {func(d Dir) error { return os.Truncate(d.Record(), 1<<40) }, false},
		"the record is anybody's": {func(d Dir) error { return file(d.Record(), 0o622) }, false},
		"the record is a folder":  {func(d Dir) error { return errors.Join(os.Remove(d.Record()), os.Mkdir(d.Record(), 0o700)) }, false},
		"the folder is anybody's": {func(d Dir) error { return os.Chmod(string(d), 0o777) }, false},
		"the folder is a link":    {func(d Dir) error { return relink(string(d)) }, false},
		"the folder is a file":    {func(d Dir) error { return file(string(d), 0o600) }, false},
		"an empty folder":         {func(d Dir) error { return errors.Join(os.RemoveAll(string(d)), os.Mkdir(string(d), 0o700)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			place := filepath.Join(base, "tenants")
			if err := test.spoil(made(t, place, "spoilt")); err != nil {
				t.Fatal(err)
			}
			made(t, place, "sound")
			found, err := Survey(base, "tenants", os.Getuid())
			if err != nil || len(found) != 2 {
				t.Fatalf("found %+v, %v", found, err)
			}
			for _, f := range found {
				if f.Tenant.ID == "sound" && (f.Err != nil || f.RecordErr != nil || f.Record == nil) {
					t.Errorf("the sound one: %+v", f)
				}
				if f.Tenant.ID == "spoilt" && (errors.Join(f.Err, f.RecordErr) == nil || (f.Record != nil) != test.record) {
					t.Errorf("the spoilt one: %+v", f)
				}
			}
		})
	}
}

// relink moves a file and leaves a link to it.
func relink(path string) error {
	return errors.Join(os.Rename(path, path+".moved"), os.Symlink(path+".moved", path), hide(path+".moved"))
}

// hide keeps a directory from being found as a tenant's.
func hide(path string) error {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return err
	}
	hidden := filepath.Join(filepath.Dir(filepath.Dir(path)), "hidden")
	link := strings.TrimSuffix(path, ".moved")
	return errors.Join(os.Rename(path, hidden), os.Remove(link), os.Symlink(hidden, link))
}

// A place of another user's is not read, and no other file system is entered.
func TestSurveyStaysWithItsOwner(t *testing.T) {
	base := t.TempDir()
	made(t, filepath.Join(base, "tenants"), "one")
	if _, err := Survey(base, "tenants", os.Getuid()+1); !errors.Is(err, ErrForeign) {
		t.Errorf("another user's place: %v", err)
	}
	if err := os.Symlink("tenants", filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := Survey(base, "link", os.Getuid()); !errors.Is(err, ErrForeign) {
		t.Errorf("a link: %v", err)
	}
	if _, err := Survey("/", "proc", 0); !errors.Is(err, ErrForeign) {
		t.Errorf("another file system: %v", err)
	}
}
