package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// hostOf is the inventory of this machine, which places MIG instances by what was learnt. Agent.mu is held.
func (a *Agent) hostOf(gpus []alloc.GPU) (*alloc.Inventory, error) {
	return alloc.HostWith(gpus, &a.mixes)
}

// learn tells the policy that places instances of a request. Agent.mu is not held.
func (a *Agent) learn(ctx context.Context, r alloc.Request) error {
	if r.Profile == "" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	inventory, err := a.hostOf(a.granted(ctx, nil))
	if err != nil {
		return err
	}
	inventory.Observe(ofGPU(r))
	return nil
}

// ofGPU is what a request for an instance, or for a part of one, asks of the GPUs: an instance of that profile.
func ofGPU(r alloc.Request) alloc.Request {
	return alloc.Request{Count: 1, Among: r.Among, AvoidGPUs: r.AvoidGPUs, Profile: r.Profile, Form: string(v1alpha1.BackendMIG)}
}

// ofInstance is what it asks of an instance, which is like a GPU.
func ofInstance(r alloc.Request) alloc.Request {
	r.Profile, r.Among, r.AvoidGPUs, r.Count = "", "", "", 1
	return r
}

// mayServe reports whether a request leaves a GPU to choose.
func mayServe(r alloc.Request, g *alloc.GPU) bool {
	named := r.Among == "" || r.Among.Has(g.UUID) || r.Among.Has(strconv.Itoa(g.Index))
	return named && !r.AvoidGPUs.Has(g.UUID) && g.Fault == ""
}

// instanceRank is how well an instance that is there serves a request. Less is better.
type instanceRank int

const (
	rankShared  instanceRank = iota // it is divided in the same way, and has room
	rankLayout                      // it is free, and stays
	rankForeign                     // it is another tool's, and free
	rankNone
)

// searchInstances finds an instance for a request: one that is divided in the same way and has room, else one that is
// free, else a place for a new one. gpus are those of the machine. Agent.mu is held.
func (a *Agent) searchInstances(gpus []alloc.GPU, except *tenant, r alloc.Request) ([]alloc.Share, error) {
	best, least, left := alloc.Share{}, rankNone, uint64(0)
	var full []*alloc.Refusal
	for i := range gpus {
		g := &gpus[i]
		if !mayServe(r, g) {
			continue
		}
		d := a.divisions.get(g.UUID)
		for _, p := range append(a.reservedOn(g.UUID, &d), d.Parts...) {
			rank, free, limit, why := a.roomOn(p, g, except, r)
			if why != nil {
				full = append(full, why)
			}
			if rank > least || rank == rankNone || rank == least && free >= left {
				continue
			}
			least, left = rank, free
			best.UUID, best.GPU, best.Limit, best.Cores, best.Profile, best.Start = g.UUID, i, limit, r.Cores, p.Profile, p.Start
		}
	}
	if least < rankNone {
		return []alloc.Share{best}, nil
	}
	found, err := a.searchPlace(gpus, r)
	return found, besides(err, full)
}

// fullShown bounds the instances of which a refusal says why they have no room.
const fullShown = 3

// besides is the refusal of a place for a new instance, with why the instances that are divided as the request asks have no
// room for it.
func besides(err error, full []*alloc.Refusal) error {
	var refusal *alloc.Refusal
	if len(full) == 0 || !errors.As(err, &refusal) || refusal.Reason != alloc.ReasonFull {
		return err
	}
	all := *refusal
	for _, why := range full[:min(len(full), fullShown)] {
		all.Text += "; " + why.Error()
		all.Misses = append(slices.Clone(all.Misses), why.Misses...)
	}
	if more := len(full) - fullShown; more > 0 {
		all.Text += fmt.Sprintf("; nor has it room on %d more", more)
	}
	return &all
}

// reservedOn are the instances of a GPU that are about to be made and that a further share may join. One for MPS is left
// out: whose server it has is not known before. Agent.mu is held.
func (a *Agent) reservedOn(uuid string, d *division) (all []backend.Part) {
	for _, t := range a.tenants {
		for _, s := range t.Shares {
			if s.UUID != uuid || s.Instance == nil || s.Instance.UUID != "" || s.Backend == v1alpha1.BackendMPS {
				continue
			}
			if _, there := d.at(s.Instance.Profile, s.Instance.Start); !there {
				all = append(all, backend.Part{Instance: *s.Instance, Origin: backend.OriginShare})
			}
		}
	}
	return all
}

// roomOn is how well an instance serves a request, what is free there and what limit the share would have. Why says what
// one has too little of that others divide as the request asks. Agent.mu is held.
func (a *Agent) roomOn(p backend.Part, g *alloc.GPU, except *tenant, r alloc.Request) (rank instanceRank, free, limit uint64, why *alloc.Refusal) {
	if p.Profile != r.Profile || p.Half != "" {
		return rankNone, 0, 0, nil
	}
	one := a.grantedOn(p.Instance, g, except)
	whole := r.Form == string(v1alpha1.BackendMIG)
	switch {
	case one.Tenants > 0 && (whole || one.Form != r.Form):
		return rankNone, 0, 0, nil
	case one.Tenants > 0:
		rank = rankShared
	case p.Origin == backend.OriginShare, a.intruded(p.Instance): // the first ends with the share that it was made for
		return rankNone, 0, 0, nil
	case p.Origin == backend.OriginLayout:
		rank = rankLayout
	default:
		rank = rankForeign
	}
	if whole {
		return rank, 0, p.Bytes, nil
	}
	found, err := searchIn([]alloc.GPU{one}, ofInstance(r))
	if err != nil {
		if rank == rankShared {
			errors.As(err, &why)
		}
		return rankNone, 0, 0, why
	}
	return rank, one.FreeMemory(), found[0].Limit, nil
}

// grantedOn is an instance as the allocator knows a GPU, with what tenants other than except hold of it. Agent.mu is
// held.
func (a *Agent) grantedOn(i backend.Instance, parent *alloc.GPU, except *tenant) alloc.GPU {
	one := alloc.GPU{UUID: i.UUID, Index: parent.Index, Name: instanceOn(i, parent.Index), Capacity: i.Capacity(), ContextBytes: cmp.Or(i.ContextBytes, parent.ContextBytes)}
	for _, t := range a.tenants {
		for n, s := range t.Shares {
			if t == except || s.Instance == nil || s.UUID != i.Parent || s.Instance.Profile != i.Profile || s.Instance.Start != i.Start {
				continue
			}
			one.Form = string(s.Backend.Form())
			one.Granted += t.counted(n)
			one.Cores += s.Guaranteed(s.Cores)
			one.Tenants++
		}
	}
	a.serverOf(&one, a.clientsOn(i), except)
	return one
}

// intruded reports whether a process without a share is on an instance, as far as the driver tells. Agent.mu is held.
func (a *Agent) intruded(i backend.Instance) bool {
	return slices.ContainsFunc(a.intruders, func(p intruder) bool { return p.on(i) })
}

// intruder is a process without a share on a GPU in MIG mode, and the numbers of the GPU instances on which the driver
// lists it, none where it does not tell.
type intruder struct {
	pid       int
	uuid      string
	instances []int
}

// on reports whether it may be on an instance.
func (p intruder) on(i backend.Instance) bool {
	return p.uuid == i.Parent && (len(p.instances) == 0 || slices.Contains(p.instances, i.GPUInstance))
}

// on reports whether a process may be on a MIG instance. Every process of a GPU may be on the GPU, which nil stands for.
func (p onGPU) on(i *backend.Instance) bool {
	return i == nil || len(p.instances) == 0 || slices.Contains(p.instances, i.GPUInstance)
}

// onAnothers reports whether a process is on instances alone that another tool made and no share is on. Who gave it those
// answers for it.
func (a *Agent) onAnothers(p onGPU) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.divisions.get(p.uuid)
	ours := func(instance int) bool {
		at := slices.IndexFunc(d.Parts, func(part backend.Part) bool { return part.GPUInstance == instance })
		if at < 0 || d.Parts[at].Origin != backend.OriginForeign {
			return true
		}
		uuid := d.Parts[at].UUID
		for _, t := range a.tenants {
			if uuid != "" && t.has(uuid) {
				return true
			}
		}
		return false
	}
	return len(p.instances) > 0 && !slices.ContainsFunc(p.instances, ours)
}

// searchPlace finds a place for a new instance. Agent.mu is held.
func (a *Agent) searchPlace(gpus []alloc.GPU, r alloc.Request) ([]alloc.Share, error) {
	gpus = slices.Clone(gpus)
	for i := range gpus {
		g := &gpus[i]
		if form, _ := a.formGiven(a.gpu(g.UUID)); form.Layout == agentconfig.LayoutFixed {
			g.Fault = cmp.Or(g.Fault, "the administrator keeps its layout fixed, and none of its instances "+r.Profile+" has room")
		} else if !a.makesInstances() && len(g.Profiles) > 0 {
			g.Fault = cmp.Or(g.Fault, "making MIG instances is root's, by a system agent, and none of its instances "+r.Profile+" has room")
		}
	}
	inventory, err := a.hostOf(gpus)
	if err != nil {
		return nil, err
	}
	found, err := alloc.Search(inventory, ofGPU(r))
	if err != nil {
		return nil, err
	}
	share := found.Shares[0]
	d := a.divisions.get(share.UUID)
	size, _ := d.size(r.Profile)
	limit, err := fitsInside(size, &gpus[share.GPU], r)
	if err != nil {
		return nil, err
	}
	share.Limit, share.Cores = limit, r.Cores
	return []alloc.Share{share}, nil
}

// fitsInside is the limit of a request's share of an empty instance, or why it is too large for one.
func fitsInside(size backend.Instance, parent *alloc.GPU, r alloc.Request) (limit uint64, err error) {
	if r.Form == string(v1alpha1.BackendMIG) {
		return size.Bytes, nil
	}
	one := alloc.GPU{UUID: parent.UUID, Index: parent.Index, Name: "a MIG instance " + r.Profile, Capacity: size.Capacity(), ContextBytes: cmp.Or(size.ContextBytes, parent.ContextBytes)}
	found, err := searchIn([]alloc.GPU{one}, ofInstance(r))
	if err != nil {
		return 0, err
	}
	return found[0].Limit, nil
}

// instanceFor is the instance of a grant: one that is there, or one without a UUID that is to be made. It is nil for a
// share of a whole GPU. Agent.mu is held.
func (a *Agent) instanceFor(grant alloc.Share) *backend.Instance {
	if grant.Profile == "" {
		return nil
	}
	d := a.divisions.get(grant.UUID)
	if p, ok := d.at(grant.Profile, grant.Start); ok {
		return &p.Instance
	}
	i, _ := d.size(grant.Profile)
	i.Parent, i.Start, i.UUID = grant.UUID, grant.Start, ""
	return &i
}
