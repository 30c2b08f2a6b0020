package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/process"
)

// sorted returns the tenants, the oldest first. Agent.mu is held.
func (a *Agent) sorted() []*tenant {
	return slices.SortedFunc(maps.Values(a.tenants), func(x, y *tenant) int {
		return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.ID, y.ID))
	})
}

// search asks the allocator for a place among all tenants but except. Agent.mu is
// held.
func (a *Agent) search(ctx context.Context, except *tenant, r alloc.Request) ([]alloc.Share, error) {
	gpus := a.granted(ctx, except)
	if r.Profile != "" {
		return a.searchInstances(gpus, except, r)
	}
	inventory, err := a.hostOf(gpus)
	if err != nil {
		return nil, err
	}
	assignment, err := alloc.Search(inventory, r)
	return assignment.Shares, err
}

func searchIn(gpus []alloc.GPU, r alloc.Request) ([]alloc.Share, error) {
	inventory, err := alloc.Host(gpus)
	if err != nil {
		return nil, err
	}
	assignment, err := alloc.Search(inventory, r)
	return assignment.Shares, err
}

// gpu returns the GPU with a UUID.
func (a *Agent) gpu(uuid string) backend.GPU {
	for _, gpu := range a.gpus {
		if gpu.UUID == uuid {
			return gpu
		}
	}
	// A GPU that was taken out while a tenant held a share of it.
	return backend.GPU{Index: -1, UUID: uuid}
}

// save writes the tenants through to the checkpoint. Agent.mu is held.
func (a *Agent) save() error {
	state := saved{Debts: a.debts.left(a.config.Now()), Learnt: a.mixes.Learnt(), Laying: a.laying}
	learnt := len(state.Learnt) > 0 && !a.config.Info.Ephemeral // where nothing else is left, no agent is needed
	if len(a.tenants) == 0 && len(a.queue) == 0 && len(state.Debts) == 0 && len(state.Laying) == 0 && !learnt {
		return a.checkpoint.Remove()
	}
	for _, t := range a.queue {
		state.Queue = append(state.Queue, t.waiting)
	}
	for _, t := range a.sorted() {
		if t.planned() {
			state.Tenants = append(state.Tenants, t.record)
		}
	}
	return a.checkpoint.Save(state)
}

// Save writes the checkpoint again, if its directory was removed.
func (a *Agent) Save() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.save()
}

// NoteFault tells everybody of a fault of the agent's surroundings.
func (a *Agent) NoteFault(text string) {
	a.events.add(control.Event{Kind: control.EventFault, Text: text})
}

// NoteTaken tells that another program has the address at which this agent should tell metrics, and with "" that it is free again.
func (a *Agent) NoteTaken(address string) {
	a.mu.Lock()
	before := a.metricsTaken
	a.metricsTaken = address
	a.mu.Unlock()
	switch {
	case address != "":
		a.NoteFault(fmt.Sprintf("another program has %s, so that this agent serves neither metrics nor the web page, and what answers there is not Divvy; it tries again", address))
	case before != "":
		a.NoteFault(before + " is free again: metrics and the web page are served")
	}
}

// planned reports whether something may be there of a tenant: if not, the next agent has
// nothing to take up.
func (t *tenant) planned() bool { return t.plan != nil || t.ready || t.isTenancy() }

// restore takes up the tenants that an earlier agent left. A damaged checkpoint is
// set aside, and the backend finds its tenants, as it does those of a checkpoint that is
// missing. A checkpoint that exists and cannot be read now is an error: an agent that
// started without it would overwrite it and grant again what its tenants have.
func (a *Agent) restore(ctx context.Context) error {
	state, err := a.checkpoint.Load()
	damaged := errors.Is(err, checkpoint.ErrDamaged) || errors.Is(err, checkpoint.ErrVersion)
	if err != nil && !damaged {
		return fmt.Errorf("find the last agent's tenants: %w", err)
	}
	lost := len(state.Tenants) == 0 // then there is no checkpoint, or it has nothing but a queue
	if lost {
		state.Tenants = a.rebuild(ctx, !damaged)
	}
	if damaged || lost && len(state.Tenants) > 0 {
		a.tellLoss(ctx, len(state.Tenants), err)
		if len(state.Queue) == 0 { // else it is known who waited
			a.gather()
		}
	}
	for _, r := range state.Tenants {
		a.takeUp(r)
	}
	a.debts, a.mixes, a.laying = state.Debts, alloc.MixesOf(state.Learnt), state.Laying
	a.agree(ctx)
	a.restoreQueue(state.Queue)
	a.keepAll(ctx) // an older agent may not have
	// Only now may tenants end: what is written to one that ends meanwhile stays.
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.sorted() {
		if t.ready {
			a.follow(ctx, t)
		}
	}
	return nil
}

// tellLoss says that tenants were found without a checkpoint, and sets one aside that
// cannot be read.
func (a *Agent) tellLoss(ctx context.Context, found int, err error) {
	aside := ""
	if err == nil {
		err = errors.New("there is no checkpoint")
	} else {
		var asideErr error
		aside, asideErr = a.checkpoint.SetAside()
		err = errors.Join(err, asideErr)
	}
	a.config.Log.ErrorContext(ctx, "cannot read what the last agent left", "error", err, "kept", aside, "rebuilt", found)
	a.events.add(control.Event{
		Kind: control.EventFault, Text: fmt.Sprintf("%d tenants of the last agent were found by what was made for them: %v", found, err),
	})
}

// takeUp continues with a tenant of an earlier agent.
func (a *Agent) takeUp(r record) {
	for i := range r.Shares {
		r.Shares[i].Default(r.Shares[i].Cores) // an older agent did not save all of it
	}
	r.markExclusive()
	r.nameUser()
	// Who asked for one that is not made asks again, or releases it.
	a.tenants[r.ID] = &tenant{record: r, ready: !r.Unmade}
}

// markExclusive restores what is not saved of the tenancy's shares.
func (r *record) markExclusive() {
	if r.Tenancy == nil || len(r.Tenancy.Shares) != len(r.Shares) {
		return
	}
	for i := range r.Tenancy.Shares {
		s := &r.Tenancy.Shares[i]
		s.Exclusive = !s.Whole && s.UUID == r.Shares[i].UUID && r.Shares[i].Whole
	}
}

// agree makes what tenants are told agree with their records. A change is written to the
// record before it is made, so they are told it once more; what another agent has told
// them since becomes the record. Agent.mu is held.
func (a *Agent) agree(ctx context.Context) {
	for _, t := range a.sorted() {
		if t.ready && !t.Rebuilt {
			a.hear(t)
			a.resync(ctx, t)
		}
	}
}

// resync makes a tenant's shares agree with its record, which is written first.
func (a *Agent) resync(ctx context.Context, t *tenant) {
	wanted := a.tenantOf(&t.record)
	changer, ok := a.makerOf(wanted).(backend.Changer)
	if !ok {
		return
	}
	if err := changer.Change(ctx, wanted); err != nil {
		// The next look finds out what is left of the tenant.
		a.config.Log.WarnContext(ctx, "cannot make a tenant's shares agree with its record", "tenant", t.Name, "error", err)
	}
}

// follow watches what the tenant does, and its holder. Agent.mu is held.
func (a *Agent) follow(ctx context.Context, t *tenant) {
	if err := a.notices.Add(a.tenantOf(&t.record)); err != nil {
		a.config.Log.WarnContext(ctx, "cannot watch a tenant: its end is noticed late", "tenant", t.Name, "error", err)
	}
	if t.Holder == (process.ID{}) {
		return
	}
	ended, stop, err := t.Holder.Watch()
	if err != nil {
		a.config.Log.WarnContext(ctx, "cannot watch a tenant's process", "tenant", t.Name, "error", err)
		return
	}
	t.process = true
	life := context.WithoutCancel(ctx) // the tenant outlives the request
	a.running.Go(func() {
		defer stop()
		select {
		case <-ended:
			a.dropHold(life, t, func(t *tenant) { t.process = false })
		case <-a.stopped:
		}
	})
}

// dropHold drops one hold on a tenant and looks whether the tenant has ended. An
// agent that ends drops no holds: tenants outlive it.
func (a *Agent) dropHold(ctx context.Context, t *tenant, drop func(*tenant)) {
	select {
	case <-a.stopped:
		return
	default:
	}
	a.mu.Lock()
	drop(t)
	a.mu.Unlock()
	a.lookAt(ctx, t)
}

// wanted is a tenant as the backend wants it. Agent.mu is not held.
func (a *Agent) wanted(t *tenant) backend.Tenant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tenantOf(&t.record)
}

// tenantOf is a record as the backend wants it, but for the LibraryPath, which is
// not kept, and the record itself.
func (a *Agent) tenantOf(r *record) backend.Tenant {
	t := backend.Tenant{ID: r.ID, Name: r.Name, Dir: r.Dir, UID: r.UID, Worker: r.Worker, Layer: r.Layer, Overcommit: r.Overcommit, Changed: r.Changed}
	for _, s := range r.Shares {
		t.Backend, t.Swap, t.Suspends = s.Backend, s.Swap, s.SuspendAfter != 0
		t.Shares = append(t.Shares, backend.Share{
			GPU: a.device(s), Limit: s.Limit, Kept: s.kept(), Cores: s.Cores, MaxCores: s.MaxCores, Weight: s.Weight, Policy: s.Policy, Class: s.Class, Owed: s.Owed,
			ProcessLimit: r.processLimit(s.UUID),
		})
	}
	return t
}

// NoteFaults tells the agent which GPUs take no new tenants, and why, by UUID.
// Tenants that are on these GPUs stay.
func (a *Agent) NoteFaults(faults map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if maps.Equal(a.faults, faults) {
		return
	}
	for _, gpu := range a.gpus {
		was, is := a.faults[gpu.UUID], faults[gpu.UUID]
		switch is {
		case was:
		case "":
			a.events.add(control.Event{Kind: control.EventGPU, UUID: gpu.UUID, Text: fmt.Sprintf("GPU %d is healthy again and takes new shares", gpu.Index)})
		default:
			a.events.add(control.Event{Kind: control.EventGPU, UUID: gpu.UUID, Text: fmt.Sprintf("GPU %d takes no new shares: %s", gpu.Index, is)})
		}
	}
	a.faults = faults
	a.announce()
}

// NoteMIGModes notes which GPUs the driver's figures say to be in MIG mode, each with what to do where nobody can tell how
// it is divided: such a GPU takes no shares.
func (a *Agent) NoteMIGModes(texts map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if maps.Equal(a.migModes, texts) {
		return
	}
	a.migModes = texts
	a.announce()
}

// faultOf says why a GPU takes no new shares, "" for one that does. Agent.mu is held.
func (a *Agent) faultOf(uuid string) string {
	if text := a.faults[uuid]; text != "" {
		return text
	}
	if d := a.divisions.get(uuid); d.unknown != "" && a.migModes[uuid] != "" {
		return fmt.Sprintf("%s (%s)", a.migModes[uuid], d.unknown)
	}
	return ""
}

// GPUs are those that the agent serves.
func (a *Agent) GPUs() []backend.GPU {
	return slices.Clone(a.gpus)
}

// has reports whether the tenant has a share of a GPU, or of the MIG instance with that UUID.
func (t *tenant) has(uuid string) bool {
	return slices.ContainsFunc(t.Shares, func(s share) bool { return s.UUID == uuid || s.Instance != nil && s.Instance.UUID == uuid })
}
