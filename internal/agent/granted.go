package agent

import (
	"cmp"
	"context"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// granted is the host's GPUs with what tenants other than except hold of them.
// Agent.mu is held.
func (a *Agent) granted(ctx context.Context, except *tenant) []alloc.GPU {
	return a.grantedBy(ctx, except, a.form)
}

// grantedBy is granted with a function that adds to each GPU what the administrator says of its form.
func (a *Agent) grantedBy(ctx context.Context, except *tenant, form func(backend.GPU, *alloc.GPU)) []alloc.GPU {
	gpus := make([]alloc.GPU, 0, len(a.gpus))
	for _, gpu := range a.gpus {
		g := alloc.GPU{UUID: gpu.UUID, Index: gpu.Index, Capacity: gpu.Capacity(), ContextBytes: gpu.ContextBytes}
		held, _ := a.elsewhere(ctx, gpu.UUID)
		if except == nil || !except.has(gpu.UUID) {
			// A fault keeps new shares away, and no share that is there from being changed.
			g.Fault = cmp.Or(held, a.keptForClaim(gpu.UUID), a.faultOf(gpu.UUID))
		}
		for _, t := range a.tenants {
			if t != except {
				a.addHeld(&g, t)
			}
		}
		a.addDivision(&g, except)
		if held != "" && except != nil {
			except.fill(&g)
		}
		if except == nil || !except.has(gpu.UUID) {
			a.addForming(gpu, &g)
			form(gpu, &g)
		}
		a.serverOf(&g, a.clients(), except)
		gpus = append(gpus, g)
	}
	return gpus
}

// addHeld adds to a GPU what a tenant holds of it. Agent.mu is held.
func (a *Agent) addHeld(g *alloc.GPU, t *tenant) {
	for i, s := range t.Shares {
		if s.UUID != g.UUID {
			continue
		}
		g.Form = string(s.Backend.Form())
		if s.Instance != nil {
			g.Form = string(v1alpha1.BackendMIG)
		}
		g.Granted += t.counted(i)
		g.Turn = max(g.Turn, t.turn(i))
		if s.Swap {
			g.Swapped += t.granted(i) - min(t.granted(i), t.counted(i))
		}
		if !t.Away.off() {
			g.Cores += a.coresOnGPU(s)
		}
		g.Tenants++
		if s.Whole {
			// Overcommit would get past full memory.
			g.Fault = t.Name + " has the whole GPU"
		}
	}
}

// coresOnGPU is the percentage of a GPU that a share is guaranteed. That of a part of a MIG instance is relative to the
// instance.
func (a *Agent) coresOnGPU(s share) int {
	cores := s.Guaranteed(s.Cores)
	if s.Instance == nil || s.Backend == v1alpha1.BackendMIG {
		return cores
	}
	d := a.divisions.get(s.UUID)
	if len(d.Sizes) == 0 {
		return 0
	}
	return cores * s.Instance.Multiprocessors / max(1, slices.MaxFunc(d.Sizes, bySize).Multiprocessors)
}

// fill leaves a GPU room for what the tenant has there and for no more: how much others
// have is not known.
func (t *tenant) fill(g *alloc.GPU) {
	for i, s := range t.Shares {
		if s.UUID == g.UUID {
			g.Granted = max(g.Granted, g.Capacity-min(g.Capacity, t.counted(i)+t.turn(i)))
			g.Cores = max(g.Cores, v1alpha1.MaxCores-s.Guaranteed(s.Cores))
		}
	}
}
