package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// rebuild finds the tenants of a checkpoint that cannot be read by the pages in
// their directories, which agents alone write: what is granted, and to whom.
// What it cannot find is who asked, and the key of a tenancy; its id follows
// from the key, so that whoever asks again or releases it finds it.
func (a *Agent) rebuild(ctx context.Context) []record {
	var found []record
	for _, place := range a.config.Tenants {
		entries, err := os.ReadDir(place)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			a.config.Log.ErrorContext(ctx, "cannot look for tenants", "error", err)
		}
		for _, entry := range entries {
			dir := filepath.Join(place, entry.Name())
			if slices.Contains(a.config.Tenants, dir) {
				continue // one place may be in another
			}
			r, err := a.rebuildOne(dir)
			if err != nil {
				a.config.Log.ErrorContext(ctx, "cannot take up a tenant again", "dir", dir, "error", err)
				a.events.add(control.Event{Kind: control.EventFault, Tenant: entry.Name(), Text: "it is not counted: " + err.Error()})
			} else if r != nil {
				found = append(found, *r)
			}
		}
	}
	return found
}

// rebuildOne returns nil for a tenant of another machine's agent: simulated
// machines share the place.
func (a *Agent) rebuildOne(dir string) (*record, error) {
	c, err := page.ReadConfig(tenantdir.Dir(dir).Config())
	if err != nil {
		return nil, err
	}
	kept, err := tenantdir.Decode(&c)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(tenantdir.Dir(dir).State())
	if err != nil {
		return nil, fmt.Errorf("look at state page: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("look at state page: its owner cannot be told")
	}
	r := &record{
		ID: filepath.Base(dir), Name: kept.Name, UID: int(stat.Uid), Dir: dir, Created: info.ModTime(),
		Overcommit: kept.Overcommit, Layer: kept.Layer, Rebuilt: true,
	}
	r.User = userName(r.UID)
	for _, k := range kept.Shares {
		s := share{
			UUID: k.GPU.UUID, Limit: k.Limit, Cores: k.Cores,
			ShareConfig: v1alpha1.ShareConfig{Policy: k.Policy, MaxCores: k.MaxCores, Weight: k.Weight, Class: k.Class},
		}
		s.Default(s.Cores)
		if a.gpu(s.UUID).Index < 0 {
			return nil, nil
		}
		r.Shares = append(r.Shares, s)
	}
	if strings.HasPrefix(r.ID, tenancyPrefix) {
		r.Layer, r.Tenancy = backend.LayerContainer, rebuiltTenancy(r)
		r.User = r.Tenancy.Namespace
		return r, nil
	}
	r.Holder = findHolder(dir, true)
	return r, nil
}

// rebuiltTenancy has no key, and a name that the page may have cut.
func rebuiltTenancy(r *record) *Tenancy {
	t := &Tenancy{Name: r.Name}
	if parts := strings.Split(r.Name, "/"); len(parts) > 1 && len(r.Name) < len(page.Config{}.Name)-1 {
		t.Namespace, t.Claim = parts[0], parts[1]
	}
	for _, s := range r.Shares {
		t.Shares = append(t.Shares, TenancyShare{UUID: s.UUID, Memory: s.Limit, Cores: s.Cores, Config: s.ShareConfig})
	}
	return t
}

// findHolder is the oldest process that has a tenant directory mounted or, where
// that counts, named in its environment; zero if there is none.
func findHolder(dir string, named bool) process.ID {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return process.ID{}
	}
	var oldest process.ID
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || !has(entry.Name(), dir, named) {
			continue
		}
		id, err := process.Find(pid)
		if err == nil && (oldest == process.ID{} || id.Start < oldest.Start) {
			oldest = id
		}
	}
	return oldest
}

// has reports whether a process has a directory. A process that ended meanwhile,
// or is not ours to read, has none.
func has(pid, dir string, named bool) bool {
	// What is mounted is told by its path below the root of its file system.
	id := "/" + filepath.Base(dir)
	mounts, _ := os.ReadFile(filepath.Join("/proc", pid, "mountinfo"))
	if bytes.Contains(mounts, []byte(id+"/")) || bytes.Contains(mounts, []byte(id+" ")) {
		return true
	}
	if !named {
		return false
	}
	environment, _ := os.ReadFile(filepath.Join("/proc", pid, "environ"))
	return bytes.Contains(environment, []byte(dir))
}
