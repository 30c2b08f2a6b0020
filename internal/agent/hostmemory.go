package agent

import (
	"fmt"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// Host memory is given out as GPU memory is: swap shares take as much as they have in all, because all that they do not
// keep may be evicted at once and the driver takes pages for what it brings back, and suspended shares take their limits.

// kept is what a swap share keeps on its GPU, 0 for any other share.
func (s *share) kept() uint64 { return min(s.KeptOf(s.Limit), s.Limit) }

// swapped is what a swap share does not keep, 0 for any other share.
func (s *share) swapped() uint64 {
	if !s.Swap {
		return 0
	}
	return s.Limit - s.kept()
}

// onHost is how much host memory a share is granted. Agent.mu is held.
func (t *tenant) onHost(share int) uint64 {
	if t.Shares[share].Swap || t.Away.host() {
		return t.granted(share)
	}
	return 0
}

// granted is how many bytes a share has in all: its limit or, while it has more in use because the limit was lowered below
// that, what it may still have. Agent.mu is held.
func (t *tenant) granted(share int) uint64 {
	return max(t.Shares[share].Limit, t.Shares[share].Before)
}

// hostTaken is the host memory that all tenants but except are granted. Agent.mu is held.
func (a *Agent) hostTaken(except *tenant) (sum uint64) {
	for _, t := range a.tenants {
		if t == except {
			continue
		}
		for i := range t.Shares {
			sum += t.onHost(i)
		}
	}
	return sum
}

// hostRoom returns an error if there is too little host memory for so many equal shares that need so much together, beside
// what all tenants but except have and what is kept for those that wait. Agent.mu is held.
func (a *Agent) hostRoom(except *tenant, shares int, need, ahead uint64) error {
	if need == 0 {
		return nil
	}
	all := a.config.SwapMemory
	free := all - min(all, a.hostTaken(except)+ahead)
	if need <= free {
		return nil
	}
	e := limited("%s of the %s of host memory for swapped and suspended shares %s, and this needs %s",
		amount(free), amount(all), plural(shares, "is left", "are left"), amount(need))
	if ahead > 0 {
		e.Text += fmt.Sprintf("; requests that came before wait for %s", amount(ahead))
	}
	e.memory = blocks(free / uint64(max(1, shares)))
	return e
}

// neverOnHost returns an error for a request that needs more host memory than there is for all, or that asks for what this
// agent or this machine does not have.
func (a *Agent) neverOnHost(r v1alpha1.ShareRequest) error {
	what := "suspendAfter"
	switch {
	case r.Swap:
		what = "swap"
	case r.SuspendAfter == 0:
		return nil
	}
	if a.config.SwapMemory == 0 {
		return a.noHostMemory(what + " needs")
	}
	if r.SuspendAfter != 0 {
		if why := a.unsuspendable(); why != "" {
			return control.Errorf(control.CodeInvalid, "no share of this machine can be suspended: %s: leave out --suspend-after", why)
		}
	}
	if each, most := r.Memory.Of(a.capacityFor(r)), a.config.SwapMemory/uint64(max(1, r.GPUs)); each > most {
		return control.Errorf(control.CodeInvalid, "there are %s of host memory for all swapped and suspended shares, and the request needs %s%s: ask for at most %s",
			amount(a.config.SwapMemory), amount(each), onEach(r.GPUs), amount(blocks(most)))
	}
	return nil
}

// noHostMemory is the error of a request for what needs host memory, to an agent that gives none.
func (a *Agent) noHostMemory(needs string) error {
	if a.config.Info.Ephemeral {
		return control.Errorf(control.CodeInvalid, "the agent that divvy run starts gives shares no host memory, which %s: start one of your own with `divvy agent --swap-memory`, such as 8Gi, when this one has ended", needs)
	}
	return control.Errorf(control.CodeInvalid, "this agent gives shares no host memory, which %s: have it started with --swap-memory, or with swapMemory in agent.yaml", needs)
}

// fitOnHost checks what a tenancy takes of the host. Agent.mu is held.
func (a *Agent) fitOnHost(wanted Tenancy) error {
	need := uint64(0)
	for _, s := range wanted.Shares {
		r := v1alpha1.ShareRequest{GPUs: 1, Memory: v1alpha1.Bytes(s.Memory), ShareConfig: s.Config}
		if err := a.neverOnHost(r); err != nil {
			return &alloc.Refusal{Reason: alloc.ReasonNever, Text: err.Error()}
		}
		if !s.Config.Swap {
			continue
		}
		need += s.Memory
		if why, _ := a.unswappable(a.gpu(s.UUID)); why != "" {
			return &alloc.Refusal{Reason: alloc.ReasonNever, Text: fmt.Sprintf("GPU %s can have no swap shares: %s", s.UUID, why)}
		}
	}
	return a.hostRoom(nil, len(wanted.Shares), need, a.hostAhead(nil))
}

// hostNeed is what a request needs of host memory when it is granted. Agent.mu is held.
func hostNeed(r alloc.Request, grants []alloc.Share) (need uint64) {
	if !r.Swap {
		return 0
	}
	for _, g := range grants {
		need += g.Limit
	}
	return need
}

// hostAhead is the host memory that is kept for requests that came before mine; nil is for one that is not in the queue.
// Agent.mu is held.
func (a *Agent) hostAhead(mine *ticket) (sum uint64) {
	for _, t := range a.queue {
		if t == mine {
			break
		}
		sum += t.host
	}
	return sum
}

// Unswappable is why GPUs can never have swap shares, however much host memory there is, by their UUIDs, and a channel that is
// closed when the driver has told more. A GPU in MIG mode is among them until its division is another.
func (a *Agent) Unswappable() (why map[string]string, learned <-chan struct{}) {
	why = map[string]string{}
	for _, gpu := range a.gpus {
		text, more := a.unswappable(gpu)
		if text != "" {
			why[gpu.UUID] = text
		}
		if more != nil {
			learned = more
		}
	}
	return why, learned
}

// Unsuspendable is why no share of this machine can be suspended, however much host memory there is; "" where one can.
func (a *Agent) Unsuspendable() string { return a.unsuspendable() }

// unswappable is why a GPU can never have swap shares, "" where it can, and what is closed when that may be another, see Config.
func (a *Agent) unswappable(gpu backend.GPU) (why string, learned <-chan struct{}) {
	switch {
	case a.inMIGMode(gpu.UUID):
		return inMIGMode, nil
	case a.config.Unswappable == nil:
		return "", nil
	}
	return a.config.Unswappable(gpu)
}

// unsuspendable is why no share of this machine can be suspended, "" where one can.
func (a *Agent) unsuspendable() string {
	if a.config.Unsuspendable == nil {
		return ""
	}
	return a.config.Unsuspendable()
}
