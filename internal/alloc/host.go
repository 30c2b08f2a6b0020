package alloc

import "slices"

// hostRefusal explains a refusal on one host GPU by GPU, in the words of whoever asks
// for a share of it.
func (inv *Inventory) hostRefusal(c *class) *Refusal {
	n, r := &inv.nodes[0], &c.request
	_, cause := inv.arrange(c, 0)
	var candidates []int
	for i := range n.GPUs {
		if r.GPU == "" || r.GPU == n.GPUs[i].UUID || r.GPU == index10(n.GPUs[i].Index) {
			candidates = append(candidates, i)
		}
	}
	switch {
	case len(candidates) == 0 && r.GPU != "":
		return refuse(ReasonUnknown, "GPU %s does not exist: this machine has indexes 0 to %d; `divvy ls` shows their UUIDs",
			r.GPU, len(n.GPUs)-1)
	case r.Count > len(candidates) && !r.Same || len(candidates) == 0:
		return refuse(ReasonNever, "%d GPUs are asked for and this machine has %d", r.Count, len(candidates))
	case cause == CauseHost, cause == CauseHostCPU, cause == CauseHostMemory, cause == CauseNear:
		reason := ReasonFull
		if cause.never() {
			reason = ReasonNever
		}
		return refuse(reason, "this machine has %s", cause)
	}
	var refusals []*Refusal
	shares := 1
	if r.Same {
		shares = max(1, r.Count)
	}
	for _, i := range candidates {
		if why := c.fits(n, i, &c.needs[0][i], shares); why != CauseNone {
			refusals = append(refusals, r.explain(&n.GPUs[i], why))
		}
	}
	return summarise(refusals, len(candidates)-len(refusals), r)
}

// explain says why a share does not fit on a GPU.
func (r *Request) explain(g *GPU, cause Cause) *Refusal {
	limit := r.Memory.Of(g.Capacity)
	less, fewer := ": ask for less, add --wait to queue, or --overcommit", ": ask for fewer, add --wait to queue, or --overcommit"
	if r.Placed {
		less, fewer = "", ""
	}
	switch cause {
	case CauseCapacity:
		return refuse(ReasonNever, "memory %s is more than GPU %d has for tenants: ask for at most %s",
			amount(limit), g.Index, amount(g.Capacity))
	case CauseContext:
		return refuse(ReasonNever, "memory %s leaves nothing to allocate: one process's context takes %s of GPU %d; ask for more than that",
			amount(limit), amount(g.ContextBytes), g.Index)
	case CauseMemory:
		return refuse(ReasonFull, "GPU %d has %s of %s free and %s is asked for%s",
			g.Index, amount(g.FreeMemory()), amount(g.Capacity), amount(limit), less)
	case CauseCores:
		return refuse(ReasonFull, "GPU %d has %d of 100 cores left to guarantee and %d are asked for%s",
			g.Index, g.FreeCores(), r.Cores, fewer)
	case CauseBusy:
		return refuse(ReasonFull, "GPU %d has %d tenants and is asked for whole", g.Index, g.Tenants)
	case CauseFault:
		return refuse(ReasonFull, "GPU %d takes no new shares: %s", g.Index, g.Fault)
	}
	if cause.never() {
		return refuse(ReasonNever, "GPU %d: %s", g.Index, cause)
	}
	return refuse(ReasonFull, "GPU %d: %s", g.Index, cause)
}

// summarise explains a refusal by the GPU that comes nearest: one that others
// keep full rather than one that can never serve.
func summarise(refusals []*Refusal, fitting int, r *Request) *Refusal {
	full := slices.DeleteFunc(slices.Clone(refusals), func(f *Refusal) bool { return f.Reason != ReasonFull })
	if never := slices.IndexFunc(refusals, func(f *Refusal) bool { return f.Reason == ReasonNever }); never >= 0 && fitting+len(full) < r.Count {
		return refusals[never]
	}
	if r.Count == 1 && len(full) == 1 {
		return full[0]
	}
	text := ""
	for i, f := range full {
		if i > 0 {
			text += "\n"
		}
		text += f.Text
	}
	return refuse(ReasonFull, "%d of %d GPUs have room:\n%s", fitting, r.Count, text)
}
