package agent

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// onGPU is a process on a GPU, as the driver lists it.
type onGPU struct {
	id   process.ID
	uuid string
	used uint64
}

// onGPUs asks the driver who uses the GPUs. It is asked before tenants' pages
// are read: a process takes its slot before it touches the GPU, so one that has
// a slot is in the pages that are read after.
func (a *Agent) onGPUs(ctx context.Context) []onGPU {
	var found []onGPU
	for _, gpu := range a.gpus {
		processes, err := a.config.Driver.Processes(gpu.Index)
		a.complain(ctx, "cannot list a GPU's processes", gpu.Index, err)
		if err != nil {
			continue
		}
		for _, p := range processes {
			if id, err := process.Find(p.PID); err == nil {
				found = append(found, onGPU{id: id, uuid: gpu.UUID, used: p.Used})
			}
		}
	}
	return found
}

// findOutside tells of processes on a GPU that are in no share of it.
func (a *Agent) findOutside(ctx context.Context, present []onGPU) {
	var outside []control.Outside
	var confirmed []onGPU
	for _, p := range present {
		if a.accounted(p) {
			continue
		}
		// One that ended while we looked, and was reaped, is nobody's fault.
		if confirmed == nil {
			confirmed = a.onGPUs(ctx)
		}
		if !slices.ContainsFunc(confirmed, func(c onGPU) bool { return c.id == p.id && c.uuid == p.uuid }) || !p.id.Alive() {
			continue
		}
		outside = append(outside, control.Outside{PID: p.id.PID, UUID: p.uuid, Used: p.used, Tenant: a.familyOf(p.id.PID)})
	}
	a.strangers.forget(present)
	a.mu.Lock()
	before := a.outside
	a.outside = outside
	a.mu.Unlock()
	for _, o := range outside {
		known := slices.ContainsFunc(before, func(b control.Outside) bool { return b.PID == o.PID && b.UUID == o.UUID })
		if known {
			continue
		}
		text := fmt.Sprintf("process %d uses a GPU without a share", o.PID)
		if o.Tenant != "" {
			text = fmt.Sprintf("process %d of %s uses a GPU beside its share: it found another way to the driver", o.PID, o.Tenant)
		}
		a.config.Log.WarnContext(ctx, text, "gpu", o.UUID)
		a.events.add(control.Event{Kind: control.EventOutside, Tenant: o.Tenant, UUID: o.UUID, PID: o.PID, Text: text})
	}
}

// accounted reports whether a process is in a slot of a tenant with a share of
// that GPU. In a container whoever has the tenant's page mapped is.
func (a *Agent) accounted(p onGPU) bool {
	a.mu.Lock()
	var asked []*tenant
	for _, t := range a.tenants {
		if !slices.ContainsFunc(t.Shares, func(s share) bool { return s.UUID == p.uuid }) {
			continue
		}
		for _, slot := range t.seen.processes {
			if !slot.Live {
				continue
			}
			host := a.hostPID(slot)
			if host == p.id.PID && t.Layer != backend.LayerContainer {
				a.mu.Unlock()
				return true
			}
			if host == p.id.PID || host == 0 {
				asked = append(asked, t)
				break
			}
		}
	}
	a.mu.Unlock()
	return slices.ContainsFunc(asked, func(t *tenant) bool { return a.strangers.maps(p.id, &t.record) })
}

// familyOf names the tenant whose process a pid descends from, or in whose
// container it is.
func (a *Agent) familyOf(pid int) string {
	family := append([]int{pid}, process.Ancestors(pid)...)
	mount, _ := process.MountAt(pid, edits.ShareDir)
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.containing(mount); t != nil {
		return t.Name
	}
	for _, t := range a.tenants {
		if t.process && slices.Contains(family, t.Holder.PID) {
			return t.Name
		}
		for _, slot := range t.seen.processes {
			if slot.Live && slices.Contains(family, a.hostPID(slot)) {
				return t.Name
			}
		}
	}
	return ""
}

// ownerOf is the id of the tenant to which a process belongs, as the kernel
// tells, "" if none.
func (a *Agent) ownerOf(pid int) string {
	family := append([]int{pid}, process.Ancestors(pid)...)
	mount, _ := process.MountAt(pid, edits.ShareDir)
	a.mu.Lock()
	if t := a.containing(mount); t != nil {
		a.mu.Unlock()
		return t.ID
	}
	var asked []*tenant
	for _, t := range a.tenants {
		if t.process && slices.Contains(family, t.Holder.PID) {
			a.mu.Unlock()
			return t.ID
		}
		asked = append(asked, t)
	}
	a.mu.Unlock()
	for _, t := range asked {
		if t.Layer != backend.LayerContainer && pid != os.Getpid() && t.has(pid) {
			return t.ID
		}
	}
	return ""
}

// containing finds the tenant of a container by what is mounted at the share's
// place, where the runtime alone can mount from the host. Agent.mu is held.
func (a *Agent) containing(mount process.Mount) *tenant {
	t := a.tenants[filepath.Base(mount.Root)]
	if t == nil || t.Layer != backend.LayerContainer {
		return nil
	}
	dir, err := process.FileAt(t.Dir)
	if err != nil || dir.Major != mount.Major || dir.Minor != mount.Minor {
		return nil
	}
	return t
}

// has reports whether the kernel takes a process for the tenant's: a container's
// has the share mounted, any other is the tenant's user's and uses the pages.
func (t *record) has(pid int) bool {
	if t.Layer == backend.LayerContainer {
		mount, ok := process.MountAt(pid, edits.ShareDir)
		return ok && filepath.Base(mount.Root) == t.ID
	}
	return process.Owner(pid) == t.UID && t.maps(pid)
}

// maps reports whether a process has the tenant's pages mapped. A container
// knows them by paths of its own.
func (t *record) maps(pid int) bool {
	if t.Layer != backend.LayerContainer {
		return process.MapsBelow(pid, t.Dir)
	}
	page, err := process.FileAt(tenantdir.Dir(t.Dir).State())
	return err == nil && process.Maps(pid, page)
}

// hostPID is a slot's pid as the agent sees it, 0 where it cannot be known.
func (a *Agent) hostPID(p page.Process) int {
	if p.Namespace == a.config.PIDNamespace && p.PID > 0 {
		return p.PID
	}
	return max(p.HostPID, 0)
}

// strangers knows processes of other pid namespaces by the numbers that they
// have in the agent's. The zero value is ready.
type strangers struct {
	mu     sync.Mutex
	known  map[process.Inner]process.ID
	looked time.Time
	// mapped is the id of the tenant whose pages a process has mapped: it keeps
	// them for life, and a program's maps take long to read.
	mapped map[process.ID]string
}

// lookInterval is the least time between two looks at all processes: what a page
// says of its processes is the tenant's word and may be different every time.
const lookInterval = 200 * time.Millisecond

// name fills in the host's numbers of processes in other pid namespaces, which
// only the kernel tells.
func (s *strangers) name(processes []page.Process, own uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fill(processes, own) || time.Since(s.looked) < lookInterval {
		return
	}
	s.known = process.Outer(own)
	s.looked = time.Now()
	s.fill(processes, own)
}

// maps reports whether a process has a tenant's pages mapped.
func (s *strangers) maps(id process.ID, t *record) bool {
	s.mu.Lock()
	known := s.mapped[id] == t.ID
	s.mu.Unlock()
	if known || !t.maps(id.PID) {
		return known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mapped == nil {
		s.mapped = map[process.ID]string{}
	}
	s.mapped[id] = t.ID
	return true
}

// forget drops what is known of processes that are on no GPU any more.
func (s *strangers) forget(present []onGPU) {
	alive := map[process.ID]bool{}
	for _, p := range present {
		alive[p.id] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.mapped, func(id process.ID, _ string) bool { return !alive[id] })
}

// fill reports whether all that live are known.
func (s *strangers) fill(processes []page.Process, own uint64) bool {
	all := true
	for i := range processes {
		p := &processes[i]
		if p.Namespace == own {
			continue
		}
		p.HostPID = 0
		if id := s.known[process.Inner{Namespace: p.Namespace, PID: p.PID}]; id.Alive() {
			p.HostPID = id.PID
		} else if p.Live {
			all = false
		}
	}
	return all
}
