package alloc

import "slices"

// hostRefusal explains a refusal on one host, GPU by GPU.
func (inv *Inventory) hostRefusal(c *shape) *Refusal {
	n, r := &inv.nodes[0], &c.request
	_, cause := inv.arrange(c, 0)
	var candidates []int
	for i := range n.GPUs {
		if r.names(&n.GPUs[i]) {
			candidates = append(candidates, i)
		}
	}
	switch {
	case len(candidates) == 0 && r.Among != "":
		return refuse(ReasonUnknown, "GPU %s does not exist: this machine has GPUs 0 to %d; `divvy ls` shows their UUIDs",
			r.Among, len(n.GPUs)-1)
	case r.Among != "" && r.Count > len(candidates) && !r.Same:
		return refuse(ReasonNever, "the request needs %d GPUs and may choose among %d", r.Count, len(candidates))
	case r.Count > len(candidates) && !r.Same || len(candidates) == 0:
		return refuse(ReasonNever, "the request needs %d GPUs and this machine has %d", r.Count, len(candidates))
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
	less, fewer := ": ask for less, or add --wait or --overcommit", ": ask for fewer, or add --wait or --overcommit"
	if r.Placed {
		less, fewer = "", ""
	}
	switch cause {
	case CauseCapacity:
		return refuse(ReasonNever, "memory %s is more than GPU %d has for tenants: ask for at most %s",
			amount(limit), g.Index, amount(g.Capacity))
	case CauseContext:
		return refuse(ReasonNever, "memory %s leaves nothing to allocate: the context of one process takes %s of GPU %d; ask for more",
			amount(limit), amount(g.ContextBytes), g.Index)
	case CauseMemory:
		return refuse(ReasonFull, "GPU %d has %s of %s free and the share needs %s%s",
			g.Index, amount(g.FreeMemory()), amount(g.Capacity), amount(limit), less)
	case CauseCores:
		return refuse(ReasonFull, "GPU %d has %d of 100 cores left to guarantee and the share needs %d%s",
			g.Index, g.FreeCores(), r.Cores, fewer)
	case CauseBusy:
		return refuse(ReasonFull, "GPU %d has %d tenants and the request needs a whole GPU", g.Index, g.Tenants)
	case CauseFault:
		return refuse(ReasonFull, "GPU %d takes no new shares: %s", g.Index, g.Fault)
	}
	if cause.never() {
		return refuse(ReasonNever, "GPU %d: %s", g.Index, cause)
	}
	return refuse(ReasonFull, "GPU %d: %s", g.Index, cause)
}

// summarise explains a refusal by the GPUs that are the nearest miss: those that
// others keep full, unless too few GPUs could ever serve.
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
