package alloc

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Search returns an assignment or a *Refusal.
func Search(inventory Inventory, r Request) (Assignment, error) {
	named, err := candidates(inventory, r)
	if err != nil {
		return nil, err
	}
	if r.Count > len(named) {
		return nil, refuse(ReasonNever, "%d GPUs are asked for and this machine has %d", r.Count, len(named))
	}
	var fitting []GPU
	var refusals []*Refusal
	for _, gpu := range named {
		if refusal := check(gpu, r); refusal != nil {
			refusals = append(refusals, refusal)
			continue
		}
		fitting = append(fitting, gpu)
	}
	if len(fitting) < r.Count {
		return nil, summarise(refusals, len(fitting), r)
	}
	slices.SortStableFunc(fitting, func(a, b GPU) int {
		return cmp.Or(
			cmp.Compare(a.FreeMemory(), b.FreeMemory()),
			cmp.Compare(a.FreeCores(), b.FreeCores()),
			cmp.Compare(a.Index, b.Index))
	})
	assignment := make(Assignment, 0, r.Count)
	for _, gpu := range fitting[:r.Count] {
		assignment = append(assignment, Grant{UUID: gpu.UUID, Limit: r.Memory(gpu.Capacity)})
	}
	return assignment, nil
}

// candidates are the GPUs that the request names, or all.
func candidates(inventory Inventory, r Request) ([]GPU, error) {
	if r.GPU == "" {
		return inventory, nil
	}
	for _, gpu := range inventory {
		if gpu.UUID == r.GPU || strconv.Itoa(gpu.Index) == r.GPU {
			return []GPU{gpu}, nil
		}
	}
	return nil, refuse(ReasonUnknown, "GPU %s does not exist: this machine has indexes 0 to %d; `divvy ls` shows their UUIDs",
		r.GPU, len(inventory)-1)
}

// check returns why a share does not fit on a GPU, or nil.
func check(gpu GPU, r Request) *Refusal {
	limit := r.Memory(gpu.Capacity)
	switch {
	case limit > gpu.Capacity:
		return refuse(ReasonNever, "memory %s is more than GPU %d has for tenants: ask for at most %s",
			amount(limit), gpu.Index, amount(gpu.Capacity))
	case limit <= gpu.ContextBytes:
		return refuse(ReasonNever, "memory %s leaves nothing to allocate: one process's context takes %s of GPU %d; ask for more than that",
			amount(limit), amount(gpu.ContextBytes), gpu.Index)
	case !r.Overcommit && limit > gpu.FreeMemory():
		return refuse(ReasonFull, "GPU %d has %s of %s free and %s is asked for: ask for less, add --wait to queue, or --overcommit",
			gpu.Index, amount(gpu.FreeMemory()), amount(gpu.Capacity), amount(limit))
	case r.Cores > gpu.FreeCores():
		return refuse(ReasonFull, "GPU %d has %d of 100 cores left to guarantee and %d are asked for: ask for fewer, or add --wait to queue",
			gpu.Index, gpu.FreeCores(), r.Cores)
	}
	return nil
}

// summarise explains a refusal by the GPU that comes nearest: one that others
// keep full rather than one that can never serve.
func summarise(refusals []*Refusal, fitting int, r Request) *Refusal {
	full := slices.DeleteFunc(slices.Clone(refusals), func(f *Refusal) bool { return f.Reason != ReasonFull })
	if fitting+len(full) < r.Count {
		return refusals[slices.IndexFunc(refusals, func(f *Refusal) bool { return f.Reason == ReasonNever })]
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

// Waits reports whether a request that was refused may fit later.
func Waits(err error) bool {
	var refusal *Refusal
	return errors.As(err, &refusal) && refusal.Reason == ReasonFull
}

func amount(n uint64) string {
	return v1alpha1.FormatBytes(n)
}
