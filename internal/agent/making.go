package agent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// errStale marks an instance that could not be made because its GPU was divided in another way than was known.
var errStale = errors.New("somebody else changed how the GPU is divided")

// staleError is a refusal for that reason. A second search may find another place.
type staleError struct{ error }

func (e staleError) Unwrap() []error { return []error{e.error, errStale} }

// makeInstances has the MIG instances made on which a tenant in the ledger is to have shares, before it is planned. They
// are saved with the tenant.
func (a *Agent) makeInstances(ctx context.Context, t *tenant) error {
	for i := range t.Shares {
		a.mu.Lock()
		s := t.Shares[i]
		a.mu.Unlock()
		if s.Instance == nil || s.Instance.UUID != "" {
			continue
		}
		gpu := a.gpu(s.UUID)
		made, err := a.makeInstance(context.WithoutCancel(ctx), gpu, *s.Instance)
		if err != nil {
			refused := control.Errorf(control.CodeRefused, "GPU %d: make a MIG instance %s at memory slice %d: %v", gpu.Index, s.Instance.Profile, s.Instance.Start, err)
			if errors.Is(err, errStale) {
				return staleError{refused}
			}
			return refused
		}
		a.mu.Lock()
		t.Shares = slices.Clone(t.Shares)
		t.Shares[i].Instance = &made
		err = errors.Join(t.fit(i, gpu), a.save())
		a.mu.Unlock()
		if err != nil {
			return err
		}
		a.step("instance-saved")
	}
	return nil
}

// fit makes the limit of a part of an instance that was made one of what the instance has for shares, which the driver tells
// of instances that are there alone. Agent.mu is held.
func (t *tenant) fit(share int, gpu backend.GPU) error {
	s := &t.Shares[share]
	if s.Backend == v1alpha1.BackendMIG {
		return nil
	}
	if t.request == nil {
		s.Limit = min(s.Limit, s.Instance.Capacity())
		return nil
	}
	limit, err := fitsInside(*s.Instance, &alloc.GPU{UUID: gpu.UUID, Index: gpu.Index, ContextBytes: gpu.ContextBytes}, *t.request)
	if err != nil {
		return fmt.Errorf("fit the share into the instance: %w", err)
	}
	s.Limit = limit
	return nil
}

// makeInstance makes an instance whose place is reserved in the ledger. One that an earlier agent made for the same share
// is taken over.
func (a *Agent) makeInstance(ctx context.Context, gpu backend.GPU, wanted backend.Instance) (backend.Instance, error) {
	f, divider := a.formings[gpu.UUID], a.divider()
	if f == nil || divider == nil {
		return wanted, errors.New("the GPU is gone")
	}
	f.turn.Lock()
	defer f.turn.Unlock()
	d := a.divisions.get(gpu.UUID)
	if p, ok := d.at(wanted.Profile, wanted.Start); ok && p.Half == "" {
		return p.Instance, nil
	}
	a.step("instance-begun")
	made, err := divider.Create(ctx, gpu, wanted.Profile, wanted.Start, backend.OriginShare)
	if err != nil {
		a.readInTurn(ctx, gpu) // somebody else may be there
		if now := a.divisions.get(gpu.UUID); !reflect.DeepEqual(d.Division, now.Division) {
			err = fmt.Errorf("%w: %w", errStale, err)
		}
		return wanted, err
	}
	a.step("instance-made")
	a.addPart(gpu, backend.Part{Instance: made, Origin: backend.OriginShare})
	return made, nil
}

// addPart notes an instance that was made.
func (a *Agent) addPart(gpu backend.GPU, p backend.Part) {
	d := a.divisions.get(gpu.UUID)
	d.Parts = append(slices.Clone(d.Parts), p)
	slices.SortFunc(d.Parts, func(x, y backend.Part) int { return x.Start - y.Start })
	d.Sizes = slices.Clone(d.Sizes)
	for i := range d.Sizes {
		if d.Sizes[i].Profile == p.Profile && p.Reserved > 0 {
			d.Sizes[i].Reserved = p.Reserved // which was not known before the first of them
		}
	}
	_ = a.divisions.set(gpu.UUID, d) // it was a model before
	a.mu.Lock()
	defer a.mu.Unlock()
	a.announce()
}

// dropPart notes that an instance was taken away.
func (a *Agent) dropPart(gpu backend.GPU, uuid string) {
	d := a.divisions.get(gpu.UUID)
	d.Parts = slices.DeleteFunc(slices.Clone(d.Parts), func(p backend.Part) bool { return p.UUID == uuid })
	_ = a.divisions.set(gpu.UUID, d)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.inside, uuid)
	a.announce()
}

// enterInstance has a backend prepare a MIG instance on which it has a share in the ledger.
func (a *Agent) enterInstance(ctx context.Context, gpu backend.GPU, b v1alpha1.Backend) error {
	f := a.formings[gpu.Instance.Parent]
	former, ok := a.config.Backends.Of(b).(backend.Former)
	if f == nil || !ok {
		return nil
	}
	f.turn.Lock()
	defer f.turn.Unlock()
	a.mu.Lock()
	had := a.inside[gpu.UUID]
	a.inside[gpu.UUID] = b
	a.mu.Unlock()
	if had != "" && had != b {
		if err := a.leaveInstance(ctx, gpu, had); err != nil {
			return err
		}
	}
	if err := former.Enter(ctx, gpu); err != nil {
		if had != b {
			err = errors.Join(err, a.leaveInstance(context.WithoutCancel(ctx), gpu, b))
		}
		return err
	}
	return nil
}

// leaveInstance has a backend undo what it did to an instance. Who calls it has the turn at the GPU's form.
func (a *Agent) leaveInstance(ctx context.Context, gpu backend.GPU, had v1alpha1.Backend) error {
	if former, ok := a.config.Backends.Of(had).(backend.Former); ok {
		if err := former.Leave(ctx, gpu); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inside[gpu.UUID] == had {
		delete(a.inside, gpu.UUID)
	}
	return nil
}

// restoreInstances makes the instances of a GPU as they should be after an earlier agent: those of shares that are gone
// are taken away, and in those of others the backend enters that is needed.
func (a *Agent) restoreInstances(ctx context.Context, gpu backend.GPU) {
	d := a.divisions.get(gpu.UUID)
	for _, p := range d.Parts {
		if p.UUID == "" {
			continue
		}
		one := instanceGPU(gpu, p.Instance)
		should := a.backendOn(p.UUID)
		for _, k := range a.config.Backends.Kinds() {
			if former, ok := k.Backend.(backend.Former); ok && k.Name != should && p.Origin != backend.OriginForeign {
				a.tellUnsettled(ctx, gpu, p, former.Leave(ctx, one))
			}
		}
		if should != "" {
			a.tellUnsettled(ctx, gpu, p, a.enterInstance(ctx, one, should))
		}
	}
	a.settleInstancesOf(ctx, gpu)
}

// backendOn is how the shares of an instance divide it, "" where it has none.
func (a *Agent) backendOn(uuid string) v1alpha1.Backend {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tenants {
		for _, s := range t.Shares {
			if s.Instance != nil && s.Instance.UUID == uuid {
				return s.Backend
			}
		}
	}
	return ""
}

// claimed reports whether a tenant has a share on an instance or is about to have one. Agent.mu is held.
func (a *Agent) claimed(i backend.Instance) bool {
	for _, t := range a.tenants {
		for _, s := range t.Shares {
			if s.UUID != i.Parent || s.Instance == nil {
				continue
			}
			if s.Instance.UUID == i.UUID || s.Instance.UUID == "" && s.Instance.Profile == i.Profile && s.Instance.Start == i.Start {
				return true
			}
		}
	}
	return false
}

// settleInstances takes away what no share needs.
func (a *Agent) settleInstances(ctx context.Context) {
	for _, gpu := range a.gpus {
		a.settleInstancesOf(ctx, gpu)
	}
}

// settleInstancesOf takes the instances of a GPU away that were made for shares which have ended, and has backends leave
// the others. What is still in use is tried again.
func (a *Agent) settleInstancesOf(ctx context.Context, gpu backend.GPU) {
	f, divider := a.formings[gpu.UUID], a.divider()
	if d := a.divisions.get(gpu.UUID); f == nil || divider == nil || len(d.Parts) == 0 {
		return
	}
	f.turn.Lock()
	defer f.turn.Unlock()
	d := a.divisions.get(gpu.UUID)
	for _, p := range d.Parts {
		a.mu.Lock()
		needed, had := p.UUID == "" || a.claimed(p.Instance), a.inside[p.UUID]
		a.mu.Unlock()
		if needed {
			continue
		}
		var err error
		if had != "" {
			err = a.leaveInstance(ctx, instanceGPU(gpu, p.Instance), had)
		}
		if err == nil && p.Origin == backend.OriginShare && p.Half == "" {
			a.step("instance-ends")
			if err = divider.Destroy(ctx, gpu, p.UUID); err == nil {
				a.step("instance-ended")
				a.dropPart(gpu, p.UUID)
			}
		}
		a.tellUnsettled(ctx, gpu, p, err)
	}
}

// tellUnsettled tells once why an instance is not as it should be.
func (a *Agent) tellUnsettled(ctx context.Context, gpu backend.GPU, p backend.Part, err error) {
	text := ""
	if err != nil && ctx.Err() == nil {
		text = fmt.Sprintf("GPU %d: %s is left of a share, and tried again: %v", gpu.Index, instanceText(p.Instance), err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.unsettled[p.UUID]
	if text == "" {
		delete(a.unsettled, p.UUID)
		return
	}
	a.unsettled[p.UUID] = text
	if text != before {
		a.config.Log.WarnContext(ctx, "a MIG instance cannot be taken away", "gpu", gpu.Index, "instance", p.UUID, "error", err)
		a.events.add(control.Event{Kind: control.EventGPU, UUID: gpu.UUID, Text: text})
	}
}

const (
	// readAgain is the time between two readings of how a GPU in MIG mode is divided, and readRarely that for others:
	// other tools make and take away instances, and turn the mode on and off.
	readAgain  = 5 * time.Second
	readRarely = 30 * time.Second
)

// readSometimes reads how GPUs are divided whose last reading is old. One goroutine calls it.
func (a *Agent) readSometimes(ctx context.Context) {
	if a.divider() == nil {
		return
	}
	for _, gpu := range a.gpus {
		if !a.dividableGPU(gpu) {
			continue
		}
		often := readRarely
		a.mu.Lock()
		told := a.migModes[gpu.UUID] != ""
		a.mu.Unlock()
		if told || a.inMIGMode(gpu.UUID) {
			often = readAgain
		}
		a.readIfOlder(ctx, gpu, time.Now().Add(-often))
	}
}

// readIfOlder reads how a GPU is divided unless that was read since a time.
func (a *Agent) readIfOlder(ctx context.Context, gpu backend.GPU, since time.Time) {
	f := a.formings[gpu.UUID]
	f.turn.Lock()
	defer f.turn.Unlock()
	if !f.read.After(since) {
		a.readInTurn(ctx, gpu)
	}
}

// readSince reads again how the GPUs are divided that concern a refused request, unless they were read since it came: what
// other tools do is known seconds later else. It reports whether any GPU is divided otherwise than it was known to be in a
// version of what is known: a second search may find room.
func (a *Agent) readSince(ctx context.Context, asked time.Time, version int, r v1alpha1.ShareRequest) bool {
	named, err := a.resolve(r.Among)
	if a.divider() == nil || err != nil || ctx.Err() != nil {
		return false
	}
	for _, gpu := range a.gpus {
		concerned := len(named) == 0 || slices.Contains(named, gpu.UUID)
		if concerned && a.dividableGPU(gpu) && (divided(r) || a.inMIGMode(gpu.UUID)) {
			a.readIfOlder(ctx, gpu, asked)
		}
	}
	return a.divisions.version() != version
}

// lacksInstance is what a GPU has too little of for a request that waits for a MIG instance. Agent.mu is held.
func (a *Agent) lacksInstance(g *alloc.GPU, t *ticket) (l lack) {
	r := a.requestOf(t.UID, t.Request)
	r.Among = alloc.Names(g.UUID)
	if _, err := a.searchInstances([]alloc.GPU{*g}, nil, r); err != nil {
		l.memory = max(1, a.capacityFor(t.Request))
	}
	return l
}

// parentOf is the GPU on which an instance lies, and the instance.
func (a *Agent) parentOf(uuid string) (gpu backend.GPU, p backend.Part, ok bool) {
	for _, gpu := range a.gpus {
		d := a.divisions.get(gpu.UUID)
		if p, ok := d.part(uuid); ok {
			return gpu, p, true
		}
	}
	return gpu, p, false
}

// indexOf is that of a GPU, or of the one on which an instance lies.
func (a *Agent) indexOf(uuid string) int {
	if gpu, _, ok := a.parentOf(uuid); ok {
		return gpu.Index
	}
	return a.gpu(uuid).Index
}
