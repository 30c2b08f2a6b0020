package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// requester is who asks for shares or changes them, and what they may have.
type requester struct {
	uid int
	// limits are none for root, who may also give a user more than the user may take.
	limits agentconfig.Limits
	// overcommit is the right to let the shares of a GPU add up to more than it has.
	overcommit bool
	// waits is true for a request that can wait for room.
	waits bool
	// request is what is asked of the allocator, and except the tenant whose share it is
	// to be, nil for a new one.
	request alloc.Request
	except  *tenant
}

// requester describes a user. The user of an own agent may overcommit: nobody else is
// concerned.
func (a *Agent) requester(uid int, waits bool) requester {
	rules := a.config.Rules
	return requester{uid: uid, limits: rules.Limits(uid), overcommit: uid == a.config.Info.UID || rules.MayOvercommit(uid), waits: waits}
}

// denied returns an error if a user asks for what is not theirs to ask.
func (w requester) denied(overcommit bool) error {
	if overcommit && !w.overcommit {
		return control.Errorf(control.CodeDenied, "--overcommit is the right of root and of those whom the administrator names: leave it out")
	}
	return nil
}

// held is what a user has of all GPUs.
type held struct {
	memory uint64
	cores  int
	gpus   []int // indexes, sorted
	names  []string
}

// heldBy adds up the shares of a user but those of except. Agent.mu is held.
func (a *Agent) heldBy(uid int, except *tenant) (h held) {
	for _, t := range a.sorted() {
		if t == except || t.UID != uid || t.isTenancy() {
			continue
		}
		h.names = append(h.names, t.Name)
		for i, s := range t.Shares {
			h.memory += t.counted(i)
			h.cores += s.Guaranteed(s.Cores)
			if index := a.gpu(s.UUID).Index; !slices.Contains(h.gpus, index) {
				h.gpus = append(h.gpus, index)
			}
		}
	}
	slices.Sort(h.gpus)
	return h
}

// memoryFor is what a request gets that names no memory: the configured default, or
// what the user may have at most if that is less.
func (a *Agent) memoryFor(who requester, r v1alpha1.ShareRequest) v1alpha1.Memory {
	memory := a.config.Rules.DefaultMemory()
	if who.limits.Memory == 0 {
		return memory
	}
	each := who.limits.Memory / uint64(max(1, r.GPUs, len(r.Among)))
	if memory.Of(a.smallest()) > each {
		return v1alpha1.Bytes(max(1, each/v1alpha1.BlockBytes*v1alpha1.BlockBytes))
	}
	return memory
}

// smallest is the least that a GPU of this machine has for tenants.
func (a *Agent) smallest() uint64 {
	if len(a.gpus) == 0 {
		return 0
	}
	least := a.gpus[0].Capacity()
	for _, gpu := range a.gpus {
		least = min(least, gpu.Capacity())
	}
	return least
}

// never returns an error for a request that exceeds what its user may have even with
// no other share.
func (a *Agent) never(who requester, r v1alpha1.ShareRequest) error {
	l := who.limits
	refuse := func(format string, args ...any) error {
		return control.Errorf(control.CodeInvalid, "the administrator's limit for you is %s", fmt.Sprintf(format, args...))
	}
	count := uint64(r.GPUs)
	switch memory := r.Memory.Of(a.smallest()); {
	case l.Weight > 0 && r.Weight > l.Weight:
		return refuse("weight %d, and the request has %d: ask for less", l.Weight, r.Weight)
	case l.GPUs > 0 && r.GPUs > l.GPUs:
		return refuse("%d GPUs, and the request needs %d: ask for fewer", l.GPUs, r.GPUs)
	case l.Memory > 0 && memory > l.Memory/count:
		return refuse("%s of memory in all, and the request needs %s%s: ask for less", amount(l.Memory), amount(memory), onEach(r.GPUs))
	case l.Cores > 0 && r.Guaranteed(r.Cores) > l.Cores/r.GPUs:
		return refuse("%d cores in all, and the request needs %d%s: ask for fewer", l.Cores, r.Guaranteed(r.Cores), onEach(r.GPUs))
	}
	return nil
}

func onEach(gpus int) string {
	if gpus == 1 {
		return ""
	}
	return fmt.Sprintf(" on each of %d GPUs", gpus)
}

func amount(n uint64) string { return v1alpha1.FormatBytes(n) }

// errLimited is a request that exceeds what its user may have beside the shares that
// they have. It fits once one of these ends, so it holds nobody else up, but where it may
// go and only room is missing.
type errLimited struct {
	*alloc.Refusal
	lack gpuSet
}

// Unwrap makes it a refusal that waits.
func (e errLimited) Unwrap() error { return e.Refusal }

func isLimited(err error) bool {
	var byLimit errLimited
	return errors.As(err, &byLimit)
}

func limited(format string, args ...any) error {
	return errLimited{Refusal: &alloc.Refusal{Reason: alloc.ReasonFull, Text: fmt.Sprintf(format, args...)}}
}

// room returns an error if more memory and cores would exceed what a user may have.
func (w requester) room(had held, memory uint64, cores int) error {
	switch l := w.limits; {
	case l.Memory > 0 && had.memory+memory > l.Memory:
		return limited("you have %s of the %s that you may have in all, and the request needs %s", amount(had.memory), amount(l.Memory), amount(memory))
	case l.Cores > 0 && cores > 0 && had.cores+cores > l.Cores:
		return limited("you have %d of the %d cores that you may have in all, and the request needs %d", had.cores, l.Cores, cores)
	}
	return nil
}

// placeFor finds GPUs for a request within what its user may have. Agent.mu is held.
func (a *Agent) placeFor(ctx context.Context, who requester, r alloc.Request) ([]alloc.Share, error) {
	had := a.heldBy(who.uid, nil)
	if err := who.room(had, uint64(r.Count)*r.Memory.Of(a.smallest()), r.Count*r.Cores); err != nil {
		return nil, err
	}
	grants, err := a.within(ctx, who, had, r)
	if err != nil {
		return nil, err
	}
	sum := uint64(0)
	for _, g := range grants {
		sum += g.Limit
	}
	if err := who.room(had, sum, r.Count*r.Cores); err != nil {
		return nil, err
	}
	return grants, nil
}

// within finds GPUs such that the user has shares on no more of them than they may.
// Agent.mu is held.
func (a *Agent) within(ctx context.Context, who requester, had held, r alloc.Request) ([]alloc.Share, error) {
	most := who.limits.GPUs
	if most == 0 || len(had.gpus)+r.Count <= most {
		return a.place(ctx, r)
	}
	// As many others as remain are those that would be chosen without the limit.
	allowed := slices.Clone(had.gpus)
	if remain := most - len(had.gpus); remain > 0 {
		grants, err := a.search(ctx, nil, r)
		if err != nil {
			return nil, err
		}
		for _, g := range grants {
			if index := a.gpu(g.UUID).Index; len(allowed) < most && !slices.Contains(allowed, index) {
				allowed = append(allowed, index)
			}
		}
	}
	var avoid, may gpuSet
	for i, gpu := range a.gpus {
		if slices.Contains(allowed, gpu.Index) {
			may |= 1 << i
		} else {
			avoid |= 1 << i
		}
	}
	r.AvoidGPUs = a.uuidsOf(avoid | a.setOf(strings.Split(string(r.AvoidGPUs), "|")))
	grants, err := a.place(ctx, r)
	var refusal *alloc.Refusal
	if errors.As(err, &refusal) {
		why := fmt.Sprintf("you may have shares on %d GPUs and have them on %s, which have no room for this one", most, a.listed(had.gpus))
		return nil, errLimited{Refusal: &alloc.Refusal{Reason: alloc.ReasonFull, Text: why}, lack: may}
	}
	return grants, err
}

// listed names GPUs by their indexes.
func (a *Agent) listed(indexes []int) string {
	texts := make([]string, 0, len(indexes))
	for _, index := range indexes {
		texts = append(texts, fmt.Sprintf("GPU %d", index))
	}
	return strings.Join(texts, ", ")
}

// grown returns an error if a change gives a share more than its user may have. What
// does not grow stays allowed. Agent.mu is held.
func (a *Agent) grown(who requester, t *tenant, changed record) error {
	had := a.heldBy(who.uid, t)
	var before, after held
	weight, weightBefore := 0, 0
	for i, s := range changed.Shares {
		before.memory, after.memory = before.memory+t.Shares[i].Limit, after.memory+s.Limit
		before.cores, after.cores = before.cores+t.Shares[i].Guaranteed(t.Shares[i].Cores), after.cores+s.Guaranteed(s.Cores)
		weight, weightBefore = max(weight, s.Weight), max(weightBefore, t.Shares[i].Weight)
	}
	memory, cores := after.memory, after.cores
	if memory <= before.memory {
		memory = 0
		had.memory = 0
	}
	if cores <= before.cores {
		cores = 0
	}
	if l := who.limits; l.Weight > 0 && weight > l.Weight && weight > weightBefore {
		return control.Errorf(control.CodeInvalid, "the administrator's limit for you is weight %d: ask for less", l.Weight)
	}
	return who.room(had, memory, cores)
}
