package tenantdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
)

// Recover implements [backend.Observer]. Agents alone write the config pages, so
// they tell what was granted and to whom. Simulated machines share the root:
// what is found may be another agent's.
func (ts *Tenants) Recover(context.Context) ([]backend.Found, error) {
	own, err := recoverAll(ts.config.Root, false)
	contained, containedErr := recoverAll(Containers(ts.config.Root), true)
	return append(own, contained...), errors.Join(err, containedErr)
}

// recoverAll finds the tenants in one directory of tenant directories.
func recoverAll(tenants string, containers bool) (found []backend.Found, err error) {
	entries, err := os.ReadDir(tenants)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for tenants: %w", err)
	}
	for _, entry := range entries {
		d := Of(tenants, entry.Name())
		if string(d) == Containers(tenants) {
			continue // it holds tenants of its own
		}
		f, err := d.recover()
		if containers {
			f.Tenant.Layer = backend.LayerContainer
		}
		f.Tenant.ID, f.Tenant.Dir, f.Err = entry.Name(), string(d), err
		found = append(found, f)
	}
	return found, nil
}

func (d Dir) recover() (backend.Found, error) {
	c, err := page.ReadConfig(d.Config())
	if err != nil {
		return backend.Found{}, err
	}
	t, err := Decode(&c)
	if err != nil {
		return backend.Found{}, fmt.Errorf("%s: %w", d.Config(), err)
	}
	info, err := os.Lstat(d.State())
	if err != nil {
		return backend.Found{}, fmt.Errorf("look at the owner of %s: %w", filepath.Base(d.State()), err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return backend.Found{}, fmt.Errorf("look at the owner of %s: the system does not tell", filepath.Base(d.State()))
	}
	t.UID = int(stat.Uid)
	return backend.Found{Tenant: t, Created: info.ModTime(), NameCut: len(t.Name) >= len(c.Name)-1}, nil
}
