package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
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
		if err != nil {
			a.config.Log.WarnContext(ctx, "cannot list a GPU's processes", "gpu", gpu.Index, "error", err)
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
// that GPU, or in another pid namespace and has such a tenant's page mapped.
func (a *Agent) accounted(p onGPU) bool {
	a.mu.Lock()
	var dirs []string
	for _, t := range a.tenants {
		if !slices.ContainsFunc(t.Shares, func(s share) bool { return s.UUID == p.uuid }) {
			continue
		}
		for _, slot := range t.seen.processes {
			if slot.Live && a.hostPID(slot) == p.id.PID {
				a.mu.Unlock()
				return true
			}
			if slot.Live && a.hostPID(slot) == 0 {
				dirs = append(dirs, t.Dir)
			}
		}
	}
	a.mu.Unlock()
	return slices.ContainsFunc(dirs, func(dir string) bool { return process.Maps(p.id.PID, dir) })
}

// familyOf names the tenant whose process a pid descends from.
func (a *Agent) familyOf(pid int) string {
	family := append([]int{pid}, process.Ancestors(pid)...)
	a.mu.Lock()
	defer a.mu.Unlock()
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

// hostPID is a slot's pid as the agent sees it, 0 where it cannot be known.
func (a *Agent) hostPID(p page.Process) int {
	if p.Namespace == a.config.PIDNamespace && p.PID > 0 {
		return p.PID
	}
	return max(p.HostPID, 0)
}
