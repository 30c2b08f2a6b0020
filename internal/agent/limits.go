package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	// unsized is true for a request that names no memory.
	unsized bool
	// open is true for a request that leaves its backend to the agent: nobody is told then to leave out what they did not ask for.
	open bool
	// ahead is the host memory that is kept for requests that came before.
	ahead uint64
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

// deniedBackend returns an error if a user asks for a backend that is not theirs to choose:
// it would keep the shares of all others away from a GPU to which the administrator gave no
// backend. The user of an own agent has the GPUs to themselves.
func (a *Agent) deniedBackend(who requester, b v1alpha1.Backend, profile string) error {
	if b == v1alpha1.BackendMIG || profile != "" {
		return nil // nobody is kept away who could be on a GPU in MIG mode
	}
	if b == "" || b.Form() == v1alpha1.BackendSlice || b == v1alpha1.BackendAuto || who.uid == a.config.Info.UID || a.given() {
		return nil
	}
	remedy := ": leave out --backend, or have root give"
	if who.open {
		remedy = ", who can give"
	}
	return control.Errorf(control.CodeDenied, "backend %s keeps other users' shares away from its GPU, and is the right of root%s a GPU that backend (`divvy gpu set GPU --form %[1]s`)", b, remedy)
}

// held is what a user has of all GPUs.
type held struct {
	memory uint64
	cores  int
	host   uint64
	gpus   []int // indexes, sorted
	names  []string
}

// heldBy adds up the shares of a user but those of except. Agent.mu is held.
func (a *Agent) heldBy(uid int, except *tenant) (h held) {
	made := a.madeFor(uid, except)
	for _, t := range a.sorted() {
		if t == except || t.UID != uid || t.isTenancy() {
			continue
		}
		h.names = append(h.names, t.Name)
		for i, s := range t.Shares {
			if s.Instance == nil || s.Made || made[keyOf(s)] == "" { // else another share counts the whole instance
				memory, cores := a.charge(s, t.granted(i), s.Made)
				h.memory, h.cores = h.memory+memory, h.cores+cores
			}
			h.host += t.onHost(i)
			if index := a.gpu(s.UUID).Index; !slices.Contains(h.gpus, index) {
				h.gpus = append(h.gpus, index)
			}
		}
	}
	slices.Sort(h.gpus)
	return h
}

// memoryFor is what a request gets that names no memory: a part of GPUs that are given replicas, the configured default, or
// what the user may have at most if that is less.
func (a *Agent) memoryFor(who requester, r v1alpha1.ShareRequest) v1alpha1.Memory {
	memory := a.config.Rules.DefaultMemory()
	if r.Profile != "" && (r.Backend == "" || r.Backend == v1alpha1.BackendMIG || r.Backend == v1alpha1.BackendAuto) {
		return v1alpha1.Memory{} // the profile says it
	}
	if replicas := a.replicas(r); replicas > 0 {
		memory = v1alpha1.PartOf(1, uint64(replicas))
	}
	if who.limits.Memory == 0 {
		return memory
	}
	each := who.limits.Memory / uint64(max(1, r.GPUs, len(r.Among)))
	if memory.Of(a.capacityFor(r)) > each {
		return v1alpha1.Bytes(max(1, blocks(each)))
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

// lets begins what an administrator's limit allows.
const lets = "the administrator lets you have at most"

// never returns an error for a request that exceeds what its user may have even with
// no other share.
func (a *Agent) never(who requester, r v1alpha1.ShareRequest) error {
	l := who.limits
	refuse := func(format string, args ...any) error {
		return control.Errorf(control.CodeInvalid, "%s %s", lets, fmt.Sprintf(format, args...))
	}
	cores := r.Guaranteed(r.Cores)
	if r.Profile != "" {
		cores = a.percentWithin(r.Profile, r.Backend == v1alpha1.BackendMIG, cores)
	}
	switch memory := r.Memory.Of(a.capacityFor(r)); {
	case l.Weight > 0 && r.Weight > l.Weight:
		return refuse("weight %d, and the request has %d: ask for at most %[1]d", l.Weight, r.Weight)
	case l.GPUs > 0 && r.GPUs > l.GPUs:
		return refuse("%s, and the request needs %d: ask for at most %d", gpusOf(l.GPUs), r.GPUs, l.GPUs)
	case l.Memory > 0 && memory > l.Memory/uint64(r.GPUs):
		return refuse("%s of memory in all, and the request needs %s%s%s", amount(l.Memory), amount(memory), onEach(r.GPUs),
			a.atMost(who, func(had held) string { return some(who.left(had, r.GPUs), amount) }))
	case r.Swap && l.SwapMemory > 0 && memory > l.SwapMemory/uint64(r.GPUs):
		return refuse("%s for swapped and suspended shares, and the request needs %s%s: ask for at most %s", amount(l.SwapMemory), amount(memory), onEach(r.GPUs), amount(blocks(l.SwapMemory/uint64(r.GPUs))))
	case l.Cores > 0 && cores > l.Cores/r.GPUs:
		return refuse("%d cores in all, and the request needs %d%s%s", l.Cores, cores, onEach(r.GPUs),
			a.atMost(who, func(had held) string { return some((l.Cores-min(had.cores, l.Cores))/r.GPUs, strconv.Itoa) }))
	}
	return nil
}

// atMost is the advice to ask for what is left beside what the requester has, "" for
// nothing. Agent.mu is not held.
func (a *Agent) atMost(who requester, left func(had held) string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	had := a.heldBy(who.uid, nil)
	switch most := left(had); {
	case most != "":
		return ": ask for at most " + most
	case len(had.names) > 0:
		return fmt.Sprintf(": end one of your shares (`divvy stop %s`) and ask for less", had.names[0])
	}
	return ": ask for fewer GPUs"
}

// some writes an amount, "" for none.
func some[N int | uint64](n N, written func(N) string) string {
	if n == 0 {
		return ""
	}
	return written(n)
}

// blocks rounds down to what a limit can be.
func blocks(bytes uint64) uint64 { return bytes / v1alpha1.BlockBytes * v1alpha1.BlockBytes }

func gpusOf(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}

func onEach(gpus int) string {
	if gpus == 1 {
		return ""
	}
	return fmt.Sprintf(" on each of %d GPUs", gpus)
}

func amount(n uint64) string { return v1alpha1.FormatBytes(n) }

// errLimited is a request that exceeds what its user may have beside the shares that
// they have. It fits once one of these ends.
type errLimited struct {
	*alloc.Refusal
	// memory or cores are what each share may have at most, 0 where less of it does not
	// help.
	memory uint64
	cores  int
	// beyond is the profile of an instance that would be made for the request and is more than its user may ever have, ""
	// where the request fits once the user's shares end.
	beyond string
}

// Unwrap makes it a refusal that waits.
func (e errLimited) Unwrap() error { return e.Refusal }

func isLimited(err error) bool {
	var byLimit errLimited
	return errors.As(err, &byLimit)
}

func limited(format string, args ...any) errLimited {
	return errLimited{Refusal: &alloc.Refusal{Reason: alloc.ReasonFull, Text: fmt.Sprintf(format, args...)}}
}

// room returns an error if so many shares of so much memory and so many cores would
// exceed what a user may have beside what they have.
func (w requester) room(had held, shares int, memory uint64, cores int) error {
	switch l := w.limits; {
	case l.Memory > 0 && had.memory+memory > l.Memory:
		e := limited("you have %s of memory, the request needs %s more, and %s %s in all", amount(had.memory), amount(memory), lets, amount(l.Memory))
		e.memory = w.left(had, shares)
		return e
	case l.Cores > 0 && cores > 0 && had.cores+cores > l.Cores:
		e := limited("you have %d cores, the request needs %d more, and %s %d in all", had.cores, cores, lets, l.Cores)
		e.cores = (l.Cores - min(had.cores, l.Cores)) / shares
		return e
	}
	return nil
}

// roomOnHost returns an error if so much host memory would exceed what a user may have beside what they have.
func (w requester) roomOnHost(had held, need uint64) error {
	if l := w.limits.SwapMemory; l > 0 && need > 0 && had.host+need > l {
		e := limited("you have %s in swapped and suspended shares, this needs %s more, and %s %s of these", amount(had.host), amount(need), lets, amount(l))
		return e
	}
	return nil
}

// left is the memory that each of so many shares can have beside what a user has.
func (w requester) left(had held, shares int) uint64 {
	return blocks((w.limits.Memory - min(had.memory, w.limits.Memory)) / uint64(shares))
}

// placeFor finds GPUs for a request within what its user may have. Agent.mu is held.
func (a *Agent) placeFor(ctx context.Context, who requester, r alloc.Request) ([]alloc.Share, error) {
	had := a.heldBy(who.uid, nil)
	if err := a.roomFor(who, had, r.Count, a.leastNeed(who.uid, r)); err != nil {
		return nil, err
	}
	grants, err := a.within(ctx, who, had, r)
	if err != nil {
		return nil, err
	}
	if err := a.roomFor(who, had, r.Count, a.needOf(who.uid, r, grants)); err != nil {
		return nil, err
	}
	return grants, nil
}

// roomFor returns an error if a need would exceed what a user may have beside what they have, or the host memory that is
// left. Agent.mu is held.
func (a *Agent) roomFor(who requester, had held, shares int, n need) error {
	if err := who.roomFor(had, shares, n); err != nil {
		return err
	}
	if err := who.roomOnHost(had, n.host); err != nil {
		return err
	}
	return a.hostRoom(who.except, shares, n.host, who.ahead)
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
	var avoid gpuSet
	for i, gpu := range a.gpus {
		if !slices.Contains(allowed, gpu.Index) {
			avoid |= 1 << i
		}
	}
	r.AvoidGPUs = a.uuidsOf(avoid | a.setOf(strings.Split(string(r.AvoidGPUs), "|")))
	grants, err := a.place(ctx, r)
	var refusal *alloc.Refusal
	if errors.As(err, &refusal) {
		return nil, limited("you have shares on %s, %s, and %s %s", a.listed(had.gpus), a.whyNotThere(had, r), lets, gpusOf(most))
	}
	return grants, err
}

// whyNotThere says why a request is not served on the GPUs on which its user has shares.
func (a *Agent) whyNotThere(had held, r alloc.Request) string {
	var named []int
	for _, gpu := range a.gpus {
		if r.Among.Has(gpu.UUID) || r.Among.Has(strconv.Itoa(gpu.Index)) {
			named = append(named, gpu.Index)
		}
	}
	if len(named) == 0 || slices.ContainsFunc(named, func(index int) bool { return slices.Contains(had.gpus, index) }) {
		return "where there is no room for this one"
	}
	return "the request is for " + a.listed(named)
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
	had, made := a.heldBy(who.uid, t), a.madeFor(who.uid, nil)
	var before, after held
	weight, weightBefore, to := 0, 0, tenant{record: changed}
	for i, s := range changed.Shares {
		before.host, after.host = before.host+t.onHost(i), after.host+to.onHost(i)
		whole := s.Instance != nil && made[keyOf(s)] != "" // which counts as before
		memory, cores := a.charge(t.Shares[i], t.Shares[i].Limit, whole)
		before.memory, before.cores = before.memory+memory, before.cores+cores
		memory, cores = a.charge(s, s.Limit, whole)
		after.memory, after.cores = after.memory+memory, after.cores+cores
		weight, weightBefore = max(weight, s.Weight), max(weightBefore, t.Shares[i].Weight)
	}
	l, n := who.limits, len(changed.Shares)
	if after.host > before.host {
		if err := who.roomOnHost(had, after.host); err != nil {
			return err
		}
	}
	switch {
	case l.Weight > 0 && weight > l.Weight && weight > weightBefore:
		return control.Errorf(control.CodeInvalid, "the share has weight %d, this change asks for %d, and %s %d: ask for at most %[4]d", weightBefore, weight, lets, l.Weight)
	case l.Memory > 0 && after.memory > before.memory && had.memory+after.memory > l.Memory:
		e := limited("you have %s of memory, would have %s with this change, and %s %s in all",
			amount(had.memory+before.memory), amount(had.memory+after.memory), lets, amount(l.Memory))
		e.memory = who.left(had, n)
		return e
	case l.Cores > 0 && after.cores > before.cores && had.cores+after.cores > l.Cores:
		e := limited("you have %d cores, would have %d with this change, and %s %d in all", had.cores+before.cores, had.cores+after.cores, lets, l.Cores)
		e.cores = (l.Cores - min(had.cores, l.Cores)) / n
		return e
	}
	return nil
}
