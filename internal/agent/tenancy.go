package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/process"
)

// The errors of Prepare and Release. What does not fit is an [alloc.Refusal].
var (
	// ErrTenancy marks a tenancy that cannot be made.
	ErrTenancy = errors.New("invalid tenancy")
	// ErrChanged marks a key that was prepared with other shares.
	ErrChanged = errors.New("prepared with other shares")
	// ErrInUse marks a tenancy whose processes live.
	ErrInUse = errors.New("still in use")
)

// Tenancy is a tenant whose GPUs the cluster's scheduler chose. It lives until
// Release, whether or not processes run in it.
type Tenancy struct {
	// Key is the stable identity: the UID of the claim, with the view where a
	// claim has several, or that of the pod with the container's name.
	Key string `json:"key"`
	// Name is for people: namespace/pod or namespace/claim.
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Claim     string `json:"claim,omitempty"`
	// Pods are the names of the pods that it is for, as far as they are known.
	Pods []string `json:"pods,omitempty"`
	// Container is the name of the one container that it is for; empty where several are, or none is known.
	Container string `json:"container,omitempty"`

	Shares []TenancyShare `json:"shares"`
}

// TenancyShare is what a tenancy gets of one GPU. Each is of another GPU.
type TenancyShare struct {
	UUID string `json:"uuid"`
	// Memory is in bytes. A whole GPU has all that there is for tenants.
	Memory uint64 `json:"memory"`
	// Cores is in percent, 0 to 100.
	Cores  int                  `json:"cores,omitempty"`
	Config v1alpha1.ShareConfig `json:"config"`
	// Whole excludes every other tenant from the GPU, of which the scheduler counts no
	// amounts.
	Whole bool `json:"whole,omitempty"`
	// Exclusive is Whole for a GPU that the scheduler counts as a share with all of its
	// memory. It is saved as Whole of what was granted alone: to agents of earlier
	// versions the claim is such a share, and they compare it with what they saved.
	Exclusive bool `json:"-"`
	// ProcessMemory bounds the memory of each process of backend mps, in bytes; 0 leaves it at Memory.
	ProcessMemory uint64 `json:"processMemory,omitempty"`
	// Interval is the length of time slices of a whole GPU with backend timeslice: short, medium or long. Left out it is
	// the GPU's own.
	Interval string `json:"interval,omitempty"`
	// Instance is the MIG instance on which the share is, nil for none. Memory and cores are relative to it; with
	// backend mig the share has all of it.
	Instance *TenancyInstance `json:"instance,omitempty"`
}

// TenancyInstance is a MIG instance that the scheduler chose. It is made if it is not there.
type TenancyInstance struct {
	// Profile is the driver's name, such as 1g.10gb, and Start the memory slice at which the instance begins.
	Profile string `json:"profile"`
	Start   int    `json:"start"`
}

// alone reports whether the share excludes every other tenant from its GPU.
func (s *TenancyShare) alone() bool { return s.Whole || s.Exclusive }

// tenancyPrefix begins the ids of tenancies.
const tenancyPrefix = "c-"

// Prepare makes a tenancy and returns what its containers need. The same tenancy
// again gets the same answer and is counted once; the same key with other shares
// is refused. The tenancy is saved before anything is made for it.
func (a *Agent) Prepare(ctx context.Context, wanted Tenancy) (edits.Edits, error) {
	a.preparing.Lock()
	defer a.preparing.Unlock()
	wanted, err := wanted.normal()
	if err != nil {
		return edits.Edits{}, err
	}
	a.mu.Lock()
	t := a.tenancy(wanted.Key)
	a.mu.Unlock()
	if t == nil {
		t, err = a.enterTenancy(ctx, wanted)
	} else {
		err = a.renewTenancy(ctx, t, wanted)
	}
	if err == nil {
		err = a.divideFor(ctx, t)
	}
	if err != nil {
		return edits.Edits{}, fmt.Errorf("prepare %s: %w", wanted.Name, err)
	}
	a.step("prepare-entered")
	e, err := a.makeTenancy(ctx, t)
	if err != nil {
		return edits.Edits{}, fmt.Errorf("prepare %s: %w", wanted.Name, err)
	}
	return e, nil
}

// normal fills in defaults and checks what does not depend on the machine.
func (t Tenancy) normal() (Tenancy, error) {
	fault := func(format string, args ...any) (Tenancy, error) {
		return t, fmt.Errorf("%w %s: %w", ErrTenancy, cmp.Or(t.Name, t.Key), fmt.Errorf(format, args...))
	}
	t.Shares = slices.Clone(t.Shares)
	switch {
	case t.Key == "" || t.Name == "":
		return fault("it has no key or no name")
	case len(t.Shares) < 1:
		return fault("it has no shares")
	}
	for i := range t.Shares {
		s := &t.Shares[i]
		s.Config.Default(s.Cores)
		if text := cmp.Or(s.misdivided(len(t.Shares)), s.misbacked()); text != "" {
			return fault("%s", text)
		}
		switch {
		case slices.ContainsFunc(t.Shares[:i], func(o TenancyShare) bool { return o.UUID == s.UUID }):
			return fault("it has two shares of GPU %s", s.UUID)
		case s.Memory == 0 && !s.Whole && s.Config.Backend != v1alpha1.BackendMIG:
			return fault("memory must be greater than zero")
		case s.Cores < 0 || s.Cores > v1alpha1.MaxCores:
			return fault("cores %d: give 0 to %d percent of the GPU's time", s.Cores, v1alpha1.MaxCores)
		}
		if err := s.Config.Validate(s.Cores); err != nil {
			return fault("%w", err)
		}
	}
	return t, nil
}

// misbacked says what of a share its backend does not have, "" if nothing.
func (s *TenancyShare) misbacked() string {
	switch {
	case s.Interval != "" && s.Config.Backend != v1alpha1.BackendTimeslice:
		return fmt.Sprintf("time slices of length %s with backend %s", s.Interval, s.Config.Backend)
	case s.ProcessMemory > 0 && s.Config.Backend != v1alpha1.BackendMPS:
		return fmt.Sprintf("a bound of each process's memory with backend %s", s.Config.Backend)
	}
	return ""
}

// renewTenancy updates what is known of a tenancy whose shares are the same.
func (a *Agent) renewTenancy(ctx context.Context, t *tenant, wanted Tenancy) error {
	t.look.Lock() // nobody reads the record meanwhile
	defer t.look.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted.Shares = t.asPrepared(wanted.Shares)
	if !a.same(t, wanted.Shares) {
		return fmt.Errorf("%w: %s has %s and now requests %s: release it first",
			ErrChanged, t.Name, describeShares(t.Tenancy.Shares), describeShares(wanted.Shares))
	}
	before := t.record
	t.adopt(wanted)
	if reflect.DeepEqual(*before.Tenancy, wanted) {
		return nil
	}
	if err := a.save(); err != nil {
		t.record = before
		return err
	}
	if !t.Unmade {
		a.keep(ctx, t)
	}
	return nil
}

// enterTenancy puts a tenancy into the ledger and the checkpoint.
func (a *Agent) enterTenancy(ctx context.Context, wanted Tenancy) (*tenant, error) {
	done, err := a.enterFormsOf(ctx, wanted)
	defer done()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := a.expected
	a.expected = a.expectedBesides(wanted.Key)
	granted, err := a.fit(ctx, wanted)
	if err != nil {
		a.expected = kept
		return nil, err
	}
	t := &tenant{record: record{
		ID: tenancyID(wanted.Key), Name: wanted.Name, UID: os.Getuid(), User: wanted.Namespace, Layer: backend.LayerContainer,
		Created: a.config.Now(), Shares: granted, Tenancy: &wanted, Unmade: true,
	}}
	if t.UID == 0 {
		t.UID = process.Nobody
	}
	a.takeDebts(t)
	if err := a.planEntered(t); err != nil {
		a.leaveDebts(t)
		return nil, err
	}
	a.tenants[t.ID] = t
	a.tell() // the pacer learns of it when it is made
	if err := a.save(); err != nil {
		return nil, errors.Join(err, a.forget(t))
	}
	return t, nil
}

// planEntered has the backend plan a tenancy that is about to be in the ledger. One whose MIG instance is to be made is
// planned when that is there. Agent.mu is held.
func (a *Agent) planEntered(t *tenant) (err error) {
	if i := t.Shares[0].Instance; i != nil && i.UUID == "" {
		return nil
	}
	t.plan, err = a.planWithRecord(a.tenantOf(&t.record), &t.record)
	if errors.Is(err, backend.ErrTenant) {
		err = fmt.Errorf("%w: %w", ErrTenancy, err)
	}
	if err == nil {
		t.Dir = t.plan.Dir
	}
	return err
}

// fit checks the sums on every GPU. Agent.mu is held.
func (a *Agent) fit(ctx context.Context, wanted Tenancy) ([]share, error) {
	if err := a.fitOnHost(wanted); err != nil {
		return nil, err
	}
	var granted []share
	for _, s := range wanted.Shares {
		if a.gpu(s.UUID).Index < 0 {
			return nil, &alloc.Refusal{Reason: alloc.ReasonUnknown, Text: fmt.Sprintf("GPU %s is not on this machine", s.UUID)}
		}
		if s.Instance != nil {
			one, err := a.fitInstance(ctx, s)
			if err != nil {
				return nil, err
			}
			a.learnPlaced(ctx, s.Instance.Profile)
			granted = append(granted, one)
			continue
		}
		r := alloc.Request{Count: 1, Among: alloc.Names(s.UUID), Whole: s.alone(), Form: string(s.Config.Backend)}
		if !r.Whole {
			r.Memory, r.Cores = v1alpha1.Bytes(s.Memory), s.Config.Guaranteed(s.Cores)
			r.Swap, r.Kept = s.Config.Swap, s.Config.Kept
		}
		// What is published follows what the administrator says, and a claim may have been allocated before that changed.
		grants, err := searchIn(a.grantedBy(ctx, nil, a.ofTenants), r)
		if err != nil {
			return nil, err
		}
		granted = append(granted, share{UUID: s.UUID, Limit: grants[0].Limit, Turn: grants[0].Turn, Cores: s.Cores, Whole: r.Whole, ShareConfig: s.Config})
	}
	return granted, nil
}

// makeTenancy has the backend make a tenancy that was saved, unless it is complete.
// A tenancy that cannot be made is undone and forgotten.
func (a *Agent) makeTenancy(ctx context.Context, t *tenant) (edits.Edits, error) {
	plan, err := a.planTenancy(t)
	if err != nil {
		return edits.Edits{}, err
	}
	a.mu.Lock()
	made, saved, wanted := t.ready, !t.Unmade, a.tenantOf(&t.record)
	a.mu.Unlock()
	there := made && a.makerOf(wanted).Complete(wanted)
	if there && saved {
		return plan.Edits, nil
	}
	if !there {
		if err := a.applyTenancy(ctx, t, plan, made); err != nil {
			return edits.Edits{}, err
		}
	}
	a.step("prepare-made")
	a.mu.Lock()
	defer a.mu.Unlock()
	t.ready, t.Unmade = true, false
	a.follow(ctx, t)
	a.announce()
	if err := a.save(); err != nil {
		// It is made and counted. A repeated request only saves it again.
		t.Unmade = true
		return edits.Edits{}, err
	}
	a.tenancyMade(ctx, t, made)
	return plan.Edits, nil
}

// applyTenancy carries the plan out. A tenancy that was made before stays in the
// ledger even if that fails, because containers may run in it.
func (a *Agent) applyTenancy(ctx context.Context, t *tenant, plan *backend.Plan, made bool) error {
	wanted := a.wanted(t)
	maker := a.makerOf(wanted)
	err := maker.Apply(ctx, plan)
	if err == nil {
		return nil
	}
	// A fault of the machine explains more than the step that failed because of it.
	err = errors.Join(cmp.Or(maker.Health(ctx), err), maker.Undo(ctx, wanted))
	if made {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(err, a.forget(t))
}

// planTenancy is the plan with which the tenancy was entered, or a new one for a
// tenancy of an earlier agent. It is kept, so that a repeated request gets the same
// answer.
func (a *Agent) planTenancy(t *tenant) (*backend.Plan, error) {
	a.mu.Lock()
	plan, r := t.plan, t.record
	r.Shares = slices.Clone(t.Shares) // looks write to the tenant's own
	a.mu.Unlock()
	if plan != nil {
		return plan, nil
	}
	plan, err := a.planWithRecord(a.tenantOf(&r), &r)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	t.plan = plan
	if t.Dir == "" && plan.Dir != "" { // before anything is made there
		t.Dir = plan.Dir
		return plan, a.save()
	}
	return plan, nil
}

// Tenancies returns all tenancies, the oldest first.
func (a *Agent) Tenancies() []Tenancy {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []Tenancy
	for _, t := range a.sorted() {
		if t.Tenancy != nil {
			all = append(all, *t.Tenancy)
		}
	}
	return all
}

// tenancy returns the tenant of a key, nil if there is none. Agent.mu is held.
func (a *Agent) tenancy(key string) *tenant {
	if t := a.tenants[tenancyID(key)]; t != nil && t.Tenancy != nil {
		return t
	}
	return nil
}

// tenancyID is the tenant's id. It follows from the key, so that the tenancy of a
// key is found also without a checkpoint.
func tenancyID(key string) string {
	sum := sha256.Sum256([]byte(key))
	return tenancyPrefix + hex.EncodeToString(sum[:8])
}

// step tells a test how far the agent is.
func (a *Agent) step(name string) {
	if a.config.Step != nil {
		a.config.Step(name)
	}
}
