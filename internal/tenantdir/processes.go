package tenantdir

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Container implements [backend.Processes]: a process belongs to the tenant whose
// directory is mounted at edits.ShareDir, where only the runtime can mount
// something from the host. What a container mounts over it changes nothing. In a user
// namespace everybody can mount there what they can reach, so the whole path below the
// root of the file system counts: only root reaches the directories of containers. A process
// that has left those mounts for others is still in the cgroup of its container.
func (ts *Tenants) Container(pid int) string {
	for _, mount := range process.MountsAt(pid, edits.ShareDir) {
		id := filepath.Base(mount.Root)
		if own, err := process.MountOf(string(Of(Containers(ts.config.Root), id))); err == nil && own == mount {
			return id
		}
	}
	return ts.cgroups.owner(Containers(ts.config.Root), pid)
}

// Has implements [backend.Processes].
func (ts *Tenants) Has(t backend.Tenant, pid int) bool {
	if t.Layer == backend.LayerContainer {
		return ts.Container(pid) == t.ID
	}
	owner, _ := ts.Owner([]backend.Tenant{t}, pid)
	return owner == t.ID || t.UID == 0 && encloses(t, pid)
}

// Owner implements [backend.Processes]. A tenant that is no container has all processes of its worker's user, and those
// processes of its user that have its pages mapped or locked, or in whose mount namespace
// its directory is mounted: processes that it starts inherit that, also in namespaces of
// their own, where they cannot undo it.
func (ts *Tenants) Owner(tenants []backend.Tenant, pid int) (tenant string, unread bool) {
	user := process.Owner(pid)
	if at := slices.IndexFunc(tenants, func(t backend.Tenant) bool { return t.Worker != 0 && t.Worker == user }); at >= 0 {
		return tenants[at].ID, false
	}
	tenants = slices.DeleteFunc(slices.Clone(tenants), func(t backend.Tenant) bool { return t.UID != user })
	if len(tenants) == 0 {
		return "", false
	}
	return ownerBy(process.UsesOf(pid), tenants)
}

// ownerBy is the tenant to which a process belongs by what it uses. What takes longer to
// read is asked last.
func ownerBy(uses *process.Uses, tenants []backend.Tenant) (tenant string, unread bool) {
	for _, belongs := range []func(backend.Tenant) bool{
		func(t backend.Tenant) bool { return mounts(uses.Mounts(), t) },
		func(t backend.Tenant) bool { return uses.Mapped()[stateOf(t)] },
		func(t backend.Tenant) bool { return uses.Locked()[stateOf(t)] },
	} {
		if i := slices.IndexFunc(tenants, belongs); i >= 0 {
			return tenants[i].ID, false
		}
	}
	return "", uses.Unread()
}

// stateOf is the tenant's state as a file: paths say nothing. A process has other ones in
// a container, and any it likes in a mount namespace of its own. It is no file at all if
// the tenant has none.
func stateOf(t backend.Tenant) process.File {
	state, err := process.FileAt(Dir(t.Dir).State())
	if err != nil {
		return process.File{}
	}
	return state
}

// Counts implements [backend.Processes]: a process that has a tenant's pages
// mapped is counted in them.
func (ts *Tenants) Counts(tenants []backend.Tenant, id process.ID) bool {
	return ts.strangers.uses(id, tenants)
}

// Holder implements [backend.Processes]: the oldest process that has the tenant's
// directory mounted or, unless it is in a container, named in its environment. Only a
// container's may be another user's.
func (ts *Tenants) Holder(t backend.Tenant) process.ID {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return process.ID{}
	}
	var oldest process.ID
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || !startedWith(pid, t) {
			continue
		}
		id, err := process.Find(pid)
		own := t.Layer == backend.LayerContainer || id.BelongsTo(t.UID)
		if err == nil && own && (oldest == process.ID{} || id.Start < oldest.Start) {
			oldest = id
		}
	}
	return oldest
}

// startedWith reports whether a process was started with the tenant's directory.
// It is false of a process that ended meanwhile or is not ours to read.
func startedWith(pid int, t backend.Tenant) bool {
	if mounts(process.UsesOf(pid).Mounts(), t) {
		return true
	}
	if t.Layer == backend.LayerContainer {
		return false
	}
	environment, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	return bytes.Contains(environment, []byte(origin(t)))
}

// origin is the directory that the tenant was made in, which its processes know.
func origin(t backend.Tenant) string {
	if from, err := os.Readlink(Dir(t.Dir).Origin()); err == nil {
		return from
	}
	return t.Dir
}

// mounts reports whether something of the tenant's directory is in a table of mounts.
func mounts(table []byte, t backend.Tenant) bool {
	return process.Mounts(table, filepath.Base(origin(t)))
}

// hostPID is a process's pid as the agent sees it, 0 where it cannot be known.
func (ts *Tenants) hostPID(p page.Process) int {
	if p.Namespace == ts.config.PIDNamespace && p.PID > 0 {
		return p.PID
	}
	return max(p.HostPID, 0)
}
