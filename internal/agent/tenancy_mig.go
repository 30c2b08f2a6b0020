package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// misdivided says what is wrong with a share's MIG instance, of a tenancy with so many shares; "" if nothing is.
func (s *TenancyShare) misdivided(shares int) string {
	switch {
	case s.Instance == nil && s.Config.Backend == v1alpha1.BackendMIG:
		return "backend mig without a MIG instance"
	case s.Instance == nil:
		return ""
	case shares > 1:
		return "it has several shares and a MIG instance, and a process can use one instance only: give each container a claim of its own"
	case s.alone():
		return "a MIG instance of a whole GPU"
	case s.Interval != "":
		return fmt.Sprintf("time slices of length %s in a MIG instance: the driver takes the length, and it has no effect", s.Interval)
	}
	return ""
}

// bare reports whether nothing was made for a tenancy yet but a MIG instance: it has no directory then, and its backend is
// not asked about it.
func (r *record) bare() bool { return r.Unmade && r.Dir == "" && r.Shares[0].Instance != nil }

// sameInstance reports whether a share has the instance that the cluster's scheduler chose.
func sameInstance(has *backend.Instance, wanted *TenancyInstance) bool {
	if has == nil || wanted == nil {
		return has == nil && wanted == nil
	}
	return has.Profile == wanted.Profile && has.Start == wanted.Start
}

// fitInstance is what a tenancy gets of the MIG instance that the scheduler chose, which is there or can be made. Agent.mu
// is held.
func (a *Agent) fitInstance(ctx context.Context, s TenancyShare) (share, error) {
	gpu, wanted := a.gpu(s.UUID), s.Instance
	refuse := func(reason alloc.Reason, format string, args ...any) (share, error) {
		return share{}, &alloc.Refusal{Reason: reason, Text: fmt.Sprintf("GPU %d ", gpu.Index) + fmt.Sprintf(format, args...)}
	}
	d := a.divisions.get(s.UUID)
	size, known := d.size(wanted.Profile)
	switch {
	case !d.On:
		return refuse(alloc.ReasonFull, "is not in MIG mode")
	case !known:
		return share{}, a.knownProfile([]backend.GPU{gpu}, wanted.Profile)
	case d.model.Placed(d.model.Profile(wanted.Profile), wanted.Start) == 0:
		return refuse(alloc.ReasonNever, "can have no MIG instance %s at memory slice %d", wanted.Profile, wanted.Start)
	}
	r := alloc.Request{Count: 1, Memory: v1alpha1.Bytes(max(1, s.Memory)), Cores: s.Config.Guaranteed(s.Cores), Form: string(s.Config.Backend), Profile: wanted.Profile}
	g := a.parentWithout(ctx, gpu)
	if g.Fault != "" {
		return refuse(alloc.ReasonFull, "takes no new shares: %s", g.Fault)
	}
	if p, there := d.at(wanted.Profile, wanted.Start); there && p.Half == "" {
		return a.fitThere(p, &g, s, r)
	}
	placed := d.model.Placed(d.model.Profile(wanted.Profile), wanted.Start)
	if g.Slices&d.model.Slices(placed) != 0 || !d.model.Valid(g.Instances|placed) {
		return refuse(alloc.ReasonFull, "has no room for a MIG instance %s at memory slice %d", wanted.Profile, wanted.Start)
	}
	limit, err := fitsInside(size, &g, r)
	if err != nil {
		return share{}, err
	}
	size.Parent, size.Start, size.UUID = s.UUID, wanted.Start, ""
	return share{UUID: s.UUID, Limit: limit, Cores: s.Cores, ShareConfig: s.Config, Instance: &size}, nil
}

// fitThere is what a tenancy gets of an instance that is there.
func (a *Agent) fitThere(p backend.Part, g *alloc.GPU, s TenancyShare, r alloc.Request) (share, error) {
	one := a.grantedOn(p.Instance, g, nil)
	if p.Origin == backend.OriginShare && !a.claimed(p.Instance) {
		p.UUID = "" // it is about to be taken away: see makeInstance
	}
	granted := share{UUID: s.UUID, Limit: p.Bytes, Cores: s.Cores, ShareConfig: s.Config, Instance: &p.Instance}
	whole := s.Config.Backend == v1alpha1.BackendMIG
	if one.Tenants > 0 && (whole || one.Form != r.Form) {
		return share{}, &alloc.Refusal{Reason: alloc.ReasonFull, Text: fmt.Sprintf("GPU %d: %s has shares of backend %s", g.Index, instanceText(p.Instance), one.Form)}
	}
	if one.Tenants == 0 && a.intruded(p.Instance) {
		return share{}, &alloc.Refusal{Reason: alloc.ReasonFull, Text: fmt.Sprintf("GPU %d: a process without a share is on %s", g.Index, instanceText(p.Instance))}
	}
	if whole {
		return granted, nil
	}
	found, err := searchIn([]alloc.GPU{one}, ofInstance(r))
	if err != nil {
		return share{}, err
	}
	granted.Limit = found[0].Limit
	return granted, nil
}

// parentWithout is a GPU without the instances that are about to be taken away because no share has them. Agent.mu is
// held.
func (a *Agent) parentWithout(ctx context.Context, gpu backend.GPU) alloc.GPU {
	g := alloc.GPU{UUID: gpu.UUID, Index: gpu.Index, Capacity: gpu.Capacity(), ContextBytes: gpu.ContextBytes}
	for _, one := range a.grantedBy(ctx, nil, a.ofTenants) {
		if one.UUID == gpu.UUID {
			g = one
		}
	}
	d := a.divisions.get(gpu.UUID)
	for _, p := range d.Parts {
		if p.Origin != backend.OriginShare || a.claimed(p.Instance) {
			continue
		}
		g.Slices &^= (uint32(1)<<p.Size - 1) << p.Start
		g.Instances &^= d.model.Placed(d.model.Profile(p.Profile), p.Start)
	}
	return g
}

// divideFor has the MIG instance of a tenancy made that is in the ledger. One that cannot be made leaves nothing.
func (a *Agent) divideFor(ctx context.Context, t *tenant) error {
	a.mu.Lock()
	s := t.Shares[0]
	a.mu.Unlock()
	if s.Instance == nil {
		return nil
	}
	err := error(nil)
	if s.Instance.UUID == "" {
		a.step("instance-reserved")
		a.settleInstancesOf(ctx, a.gpu(s.UUID)) // what has ended may be in the way
		err = a.makeInstances(ctx, t)
	}
	if err == nil {
		err = a.enterForms(ctx, t)
	}
	if err == nil {
		return nil
	}
	a.mu.Lock()
	made := t.ready
	a.mu.Unlock()
	if made {
		return err
	}
	a.mu.Lock()
	err = errors.Join(err, a.forget(t))
	a.mu.Unlock()
	a.settleInstances(ctx)
	return err
}
