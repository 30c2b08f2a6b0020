package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// onGPU is a process on a GPU, as the driver lists it.
type onGPU struct {
	id   process.ID
	uuid string
	used uint64
}

// onGPUs asks the driver who uses the GPUs. It is called before the looks at
// tenants: a process enters its tenant's account before it touches the GPU, so a
// look that comes after finds it there.
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

// findOutside reports processes on a GPU that have no share of it, and has those of
// listed users answered.
func (a *Agent) findOutside(ctx context.Context, present []onGPU) {
	var outside []control.Outside
	var confirmed []onGPU
	for _, p := range present {
		if a.accounted(p) {
			continue
		}
		// A process that ended while we looked, and was reaped, did nothing wrong.
		if confirmed == nil {
			confirmed = a.onGPUs(ctx)
		}
		if !slices.ContainsFunc(confirmed, func(c onGPU) bool { return c.id == p.id && c.uuid == p.uuid }) || !p.id.Alive() {
			continue
		}
		outside = append(outside, control.Outside{PID: p.id.PID, UUID: p.uuid, Used: p.used, Tenant: a.nameOf(a.memberOf(p.id))})
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
	for _, gpu := range a.gpus {
		if a.config.Listed != nil && slices.ContainsFunc(outside, func(o control.Outside) bool { return o.UUID == gpu.UUID && o.Tenant == "" }) {
			a.answerOutside(ctx, gpu.UUID)
		}
	}
}

// accounted reports whether what a process uses is in the figures of a tenant with
// a share of that GPU. The backend is asked about a process of a container, and
// where a tenant has processes of unknown pid.
func (a *Agent) accounted(p onGPU) bool {
	a.mu.Lock()
	var asked []backend.Tenant
	for _, t := range a.tenants {
		if !slices.ContainsFunc(t.Shares, func(s share) bool { return s.UUID == p.uuid }) {
			continue
		}
		for _, seen := range t.seen.Processes {
			if !seen.Live {
				continue
			}
			if seen.PID == p.id.PID && t.Layer != backend.LayerContainer {
				a.mu.Unlock()
				return true
			}
			if seen.PID == p.id.PID || seen.PID == 0 {
				asked = append(asked, a.tenantOf(&t.record))
				break
			}
		}
	}
	a.mu.Unlock()
	return slices.ContainsFunc(asked, func(t backend.Tenant) bool { return a.config.Backend.Counts(t, p.id) })
}
