package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// set changes a tenant's shares while it runs.
func (a *Agent) set(ctx context.Context, peer *control.Peer, p control.SetParams) (*control.Tenant, error) {
	t, err := a.find(peer, p.Tenant)
	if err != nil {
		return nil, err
	}
	maker := a.wanted(t).Backend
	changer, ok := a.config.Backends.Of(maker).(backend.Changer)
	if maker == v1alpha1.BackendMIG {
		if p.Memory == nil && p.Cores == nil {
			return nil, control.Errorf(control.CodeInvalid, "%s has a MIG instance of its own, all the time: there is nobody with whom it could be shared in another way", t.Name)
		}
		return nil, control.Errorf(control.CodeInvalid, "%s has a MIG instance of its own, whose size cannot be changed: start its command again with another profile", t.Name)
	}
	if maker == v1alpha1.BackendRemote && !peer.Outside() {
		// The command itself reaches the agent, and could have any limit.
		return nil, control.Errorf(control.CodeDenied, "%s keeps its command from changing the share, so it is changed from no user namespace: run `divvy set` outside of shares and containers", t.Name)
	}
	if !ok {
		return nil, control.Errorf(control.CodeInvalid, "shares of backend %s cannot be changed while they run", maker)
	}
	who := a.requester(peer.UID, false)
	if err := who.denied(p.Overcommit); err != nil {
		return nil, err
	}
	if t.isTenancy() && (p.Memory != nil || p.Cores != nil) {
		return nil, control.Errorf(control.CodeInvalid, "the cluster decides the memory and cores of %s: make its pod again with another request", t.Name)
	}
	a.lookAt(ctx, t)
	t.look.Lock() // the tenant does not end meanwhile
	defer t.look.Unlock()
	before := a.describe(t)
	if err := a.lower(ctx, who, changer, t, p); err != nil {
		return nil, err
	}
	wanted, err := a.enter(ctx, who, t, p)
	if err != nil {
		return nil, errors.Join(err, changer.Change(ctx, a.wanted(t)))
	}
	if err := changer.Change(ctx, wanted); err != nil {
		return nil, err
	}
	changed := a.describe(t)
	a.tellChange(ctx, peer, &before, &changed)
	return &changed, nil
}

// lower makes the tenant hold less before the ledger says so: what the ledger has free is
// granted at once to whoever waits for it. If the agent dies in between, the next one
// makes the tenant agree with the ledger again.
func (a *Agent) lower(ctx context.Context, who requester, changer backend.Changer, t *tenant, p control.SetParams) error {
	a.mu.Lock()
	changed, err := a.revise(ctx, who, t, p)
	lowered := t.record
	lowered.Shares = slices.Clone(t.Shares)
	less := false
	for i := range changed.Shares {
		if limit := changed.Shares[i].Limit; limit < lowered.Shares[i].Limit {
			lowered.Shares[i].Limit, less = limit, true
		}
	}
	wanted := a.tenantOf(&lowered)
	a.mu.Unlock()
	if err != nil || !less {
		return err
	}
	return changer.Change(ctx, wanted)
}

// enter puts a change into the ledger and the checkpoint before it is made. If the
// agent dies in between, the next one makes it.
func (a *Agent) enter(ctx context.Context, who requester, t *tenant, p control.SetParams) (backend.Tenant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.ended || !t.ready {
		return backend.Tenant{}, control.Errorf(control.CodeNotFound, "%s has ended", t.Name)
	}
	if err := a.permit(); err != nil {
		return backend.Tenant{}, err
	}
	before := t.record
	changed, err := a.revise(ctx, who, t, p)
	if err != nil {
		return backend.Tenant{}, err
	}
	t.record = changed
	t.giveBack() // of what it had before it may have used little
	t.stamp(a.config.Now())
	if err := a.save(); err != nil {
		t.record = before
		return backend.Tenant{}, err
	}
	a.keep(ctx, t)
	a.announce()
	return a.tenantOf(&t.record), nil
}

// revise returns the tenant's record with the change, or why it cannot be made.
// Agent.mu is held.
func (a *Agent) revise(ctx context.Context, who requester, t *tenant, p control.SetParams) (record, error) {
	r := t.record
	r.Shares = slices.Clone(t.Shares)
	r.Overcommit = r.Overcommit || p.Overcommit
	for i := range r.Shares {
		s := &r.Shares[i]
		gpu := a.device(*s)
		if err := a.changeOn(gpu, t.Name, s, p); err != nil {
			return record{}, err
		}
		before, wanted := t.Shares[i].Guaranteed(t.Shares[i].Cores), s.Guaranteed(s.Cores)
		who.except, who.request = t, alloc.Request{
			Count: 1, Among: alloc.Names(s.UUID), Memory: v1alpha1.Bytes(s.Limit), Cores: wanted, Form: string(s.Backend.Form()),
			// What was overcommitted once may stay, and not grow.
			Overcommit: p.Overcommit || s.Limit <= t.Shares[i].Limit, OvercommitCores: p.Overcommit || wanted <= before,
			Swap: s.Swap, Kept: s.Kept,
		}
		if err := a.changeMemory(ctx, who, t, i, s); err != nil {
			return record{}, a.refused(ctx, err, who)
		}
		if ahead := (a.awaitedInQueue(ctx, nil) | a.awaitedBySuspended(t)) & a.setOf([]string{s.UUID}); ahead != 0 && (s.Limit > t.Shares[i].Limit || wanted > before) {
			return record{}, control.Errorf(control.CodeRefused, "requests wait for %s and came before: a share there cannot grow until they are served", a.namesOf(ahead))
		}
		if text := t.lowered(i, s); text != "" && !p.BelowUsed {
			return record{}, control.Errorf(control.CodeRefused,
				"%s uses %s: free some of it first, or add --below-used, after which nothing can be allocated until enough is freed", t.Name, fmt.Sprintf(text, gpu.Index))
		}
	}
	if err := a.changeOnHost(t, &r); err != nil {
		return record{}, a.refused(ctx, err, who)
	}
	if err := a.grown(who, t, r); err != nil {
		return record{}, a.refused(ctx, err, who)
	}
	return r, nil
}

// changeMemory finds out whether a share of a tenant can be as it is in a changed record, and for how large a turn there is
// room. A swap share whose memory stays keeps its turn. Agent.mu is held.
func (a *Agent) changeMemory(ctx context.Context, who requester, t *tenant, number int, s *share) error {
	if t.Away.off() { // its room is looked for when it comes back
		return a.neverOn(a.gpu(s.UUID), who.request)
	}
	grants, err := a.searchFor(ctx, t, s, who.request)
	if err == nil && s.Swap && (s.Limit != t.Shares[number].Limit || s.kept() != t.Shares[number].kept()) {
		s.Turn = grants[0].Turn
	}
	return err
}

// neverOn returns an error for a request that would not fit on a GPU without tenants.
func (a *Agent) neverOn(gpu backend.GPU, r alloc.Request) error {
	_, err := searchIn([]alloc.GPU{{UUID: gpu.UUID, Index: gpu.Index, Capacity: gpu.Capacity(), ContextBytes: gpu.ContextBytes}}, r)
	return err
}

// lowered notes in a share of a changed record what the tenant may still have in use of what it had. It returns what it uses
// beyond a part that is lower now, with a verb for the index of the GPU, "" for nothing. Agent.mu is held.
func (t *tenant) lowered(number int, s *share) (beyond string) {
	had, used := t.Shares[number], t.used(number)
	s.Before = 0
	if s.Limit < t.inUse(number) {
		s.Before = max(had.Limit, had.Before)
	}
	if s.Limit < used && s.Limit < had.Limit {
		beyond = fmt.Sprintf("%d MiB of GPU %%d, more than the new limit of %d MiB", used>>20, s.Limit>>20)
	}
	if !s.Swap {
		return beyond
	}
	s.BeforeKept = 0
	kept := t.keeps(number)
	if s.kept() < kept {
		s.BeforeKept = max(had.kept(), had.BeforeKept)
	}
	switch swapped := used - min(used, kept); {
	case s.kept() < kept && s.kept() < had.kept():
		return fmt.Sprintf("%d MiB of what stays on GPU %%d, more than the new %d MiB of that", kept>>20, s.kept()>>20)
	case s.swapped() < swapped && s.swapped() < had.swapped():
		return fmt.Sprintf("%d MiB of what can leave GPU %%d, more than the new %d MiB of that", swapped>>20, s.swapped()>>20)
	}
	return beyond
}

// changeOnHost returns an error if a changed tenant takes more host memory than before and than there is. Agent.mu is held.
func (a *Agent) changeOnHost(t *tenant, changed *record) error {
	var before, need uint64
	to := tenant{record: *changed}
	for i := range changed.Shares {
		before, need = before+t.onHost(i), need+to.onHost(i)
	}
	if need <= before {
		return nil
	}
	return a.hostRoom(t, len(changed.Shares), need, a.hostAhead(nil))
}

// changeOn applies a change to a share on a GPU that is served. Agent.mu is held.
func (a *Agent) changeOn(gpu backend.GPU, name string, s *share, p control.SetParams) error {
	if gpu.Index < 0 {
		return control.Errorf(control.CodeRefused, "%s has a share of %s, which this agent does not serve: %s", name, s.UUID, a.whyUnserved())
	}
	return s.change(p, gpu.Capacity())
}

// searchFor asks the allocator whether a share of a tenant can become a request. Agent.mu is held.
func (a *Agent) searchFor(ctx context.Context, t *tenant, s *share, r alloc.Request) ([]alloc.Share, error) {
	if s.Instance == nil {
		return a.search(ctx, t, r)
	}
	gpu := a.gpu(s.UUID)
	parent := alloc.GPU{UUID: gpu.UUID, Index: gpu.Index, Capacity: gpu.Capacity(), ContextBytes: gpu.ContextBytes}
	return searchIn([]alloc.GPU{a.grantedOn(*s.Instance, &parent, t)}, ofInstance(r))
}

// keeps is how many bytes of what never leaves the GPU a swap share was last seen to use.
func (t *tenant) keeps(share int) uint64 {
	if share >= len(t.seen.Usage) {
		return 0
	}
	return t.seen.Usage[share].Kept
}

// used is how many bytes of a share the tenant was last seen to use or to be about
// to use.
func (t *tenant) used(share int) uint64 {
	if share >= len(t.seen.Usage) {
		return 0
	}
	return t.seen.Usage[share].Used + t.seen.Usage[share].Pending
}

// change applies what is not nil and validates the result as a request.
func (s *share) change(p control.SetParams, capacity uint64) error {
	request := s.requested(p)
	// A new policy drops what belonged to the old one.
	if request.Policy != s.Policy && p.MaxCores == nil {
		request.MaxCores = 0
	}
	if request.Policy != s.Policy && p.Weight == nil {
		request.Weight = 1
	}
	request.Default()
	if err := request.Validate(); err != nil {
		return &control.Error{Code: control.CodeInvalid, Message: err.Error()}
	}
	s.Limit, s.Cores, s.ShareConfig = request.Memory.Of(capacity), request.Cores, request.ShareConfig
	return nil
}

// requested is the share as a request, with the changes that are not nil.
func (s *share) requested(p control.SetParams) v1alpha1.ShareRequest {
	request := v1alpha1.ShareRequest{GPUs: 1, Memory: v1alpha1.Bytes(s.Limit), Cores: s.Cores, ShareConfig: s.ShareConfig}
	if p.Memory != nil {
		request.Memory = *p.Memory
	}
	if p.Cores != nil {
		request.Cores = *p.Cores
	}
	if p.MaxCores != nil {
		request.MaxCores = *p.MaxCores
	}
	if p.Weight != nil {
		request.Weight = *p.Weight
	}
	if p.Class != nil {
		request.Class = *p.Class
	}
	switch {
	case p.Policy != nil:
		request.Policy = *p.Policy
	case p.Cores != nil && s.Cores == 0 && s.Policy == v1alpha1.PolicyWeighted && p.Weight == nil && s.Weight == 1:
		request.Policy = "" // as in a request, the default policy follows from the cores
	}
	return request
}
