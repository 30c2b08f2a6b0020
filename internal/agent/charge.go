package agent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// instanceKey tells MIG instances apart, also those that are not made yet.
type instanceKey struct {
	uuid  string
	start int
}

// keyOf is that of a share's instance.
func keyOf(s share) instanceKey { return instanceKey{s.UUID, s.Instance.Start} }

// madeFor are the instances that were made for a user's shares, or are about to be. Agent.mu is held.
func (a *Agent) madeFor(uid int, except *tenant) map[instanceKey]string {
	made := map[instanceKey]string{}
	for _, t := range a.tenants {
		for _, s := range t.Shares {
			if t != except && t.UID == uid && !t.isTenancy() && s.Made {
				made[keyOf(s)] = s.Instance.Profile
			}
		}
	}
	return made
}

// charge is what a share that takes so much memory counts against its user's limits, in bytes and in percent of a GPU. An
// instance that was made for the user counts as a whole, however small a part of it the share has: nobody else is sure to
// use the rest. One that the share joined counts with the share's part.
func (a *Agent) charge(s share, memory uint64, made bool) (bytes uint64, cores int) {
	switch {
	case s.Instance == nil:
		return memory, s.Guaranteed(s.Cores)
	case made:
		return s.Instance.Bytes, a.percentOf(*s.Instance)
	case s.Backend == v1alpha1.BackendMIG:
		return memory, a.percentOf(*s.Instance)
	}
	return memory, a.coresOnGPU(s)
}

// percentOf is the percentage of its GPU's SMs that an instance has.
func (a *Agent) percentOf(i backend.Instance) int {
	d := a.divisions.get(i.Parent)
	if len(d.Sizes) == 0 {
		return 0
	}
	return v1alpha1.MaxCores * i.Multiprocessors / max(1, slices.MaxFunc(d.Sizes, bySize).Multiprocessors)
}

// need is what a request takes of its user's limits.
type need struct {
	memory uint64
	cores  int
	// host is host memory.
	host uint64
	// made is the profile of an instance that is made for it, "" where none is.
	made string
}

// leastNeed is what a request takes at least, wherever it is placed. Agent.mu is held.
func (a *Agent) leastNeed(uid int, r alloc.Request) need {
	n := need{memory: uint64(r.Count) * r.Memory.Of(a.smallest()), cores: r.Count * r.Cores}
	if r.Swap {
		n.host = n.memory
	}
	if r.Profile == "" {
		return n
	}
	for _, profile := range a.madeFor(uid, nil) {
		if profile == r.Profile && r.Form != string(v1alpha1.BackendMIG) {
			return need{} // it may join one that counts already
		}
	}
	n.cores = a.percentWithin(r.Profile, r.Form == string(v1alpha1.BackendMIG), r.Cores)
	return n
}

// needOn is what a request takes at least if a GPU serves it. A part of an instance that would have to be made there takes
// all of that instance. Agent.mu is held.
func (a *Agent) needOn(uuid string, uid int, r alloc.Request) need {
	d := a.divisions.get(uuid)
	size, ok := d.size(r.Profile)
	there := slices.ContainsFunc(d.Parts, func(p backend.Part) bool { return p.Profile == r.Profile })
	if !ok || there || r.Form == string(v1alpha1.BackendMIG) {
		return a.leastNeed(uid, r)
	}
	size.Parent = uuid
	return need{memory: size.Bytes, cores: a.percentOf(size), made: r.Profile}
}

// percentWithin is the least that a share with these cores counts in an instance of a profile, or the whole instance.
func (a *Agent) percentWithin(profile string, whole bool, cores int) int {
	least := -1
	for _, gpu := range a.gpus {
		d := a.divisions.get(gpu.UUID)
		size, ok := d.size(profile)
		if !ok {
			continue
		}
		size.Parent = gpu.UUID
		percent := a.percentOf(size)
		if !whole {
			percent = percent * cores / v1alpha1.MaxCores
		}
		if least < 0 || percent < least {
			least = percent
		}
	}
	return max(0, least)
}

// needOf is what a request takes of its user's limits where it was placed. Agent.mu is held.
func (a *Agent) needOf(uid int, r alloc.Request, grants []alloc.Share) (n need) {
	had := a.madeFor(uid, nil)
	n.host = hostNeed(r, grants)
	for _, g := range grants {
		s := share{UUID: g.UUID, Limit: g.Limit, Cores: r.Cores, Instance: a.instanceFor(g)}
		s.Backend = v1alpha1.Backend(r.Form)
		made := a.makes(s)
		if s.Instance != nil && had[keyOf(s)] != "" {
			continue
		}
		if made {
			n.made = g.Profile
		}
		memory, cores := a.charge(s, g.Limit, made)
		n.memory, n.cores = n.memory+memory, n.cores+cores
	}
	return n
}

// makes reports whether an instance is made for a share of a part of it that is not in the ledger yet. Agent.mu is held.
func (a *Agent) makes(s share) bool {
	if s.Instance == nil || s.Instance.UUID != "" || s.Backend == v1alpha1.BackendMIG {
		return false
	}
	for _, t := range a.tenants {
		for _, o := range t.Shares {
			if o.Instance != nil && keyOf(o) == keyOf(s) {
				return false
			}
		}
	}
	return true
}

// passOn lets another share of the same user count an instance that was made for a tenant which ends. Agent.mu is held.
func (a *Agent) passOn(ended *tenant) {
	for _, s := range ended.Shares {
		if !s.Made {
			continue
		}
		for _, t := range a.sorted() {
			at := slices.IndexFunc(t.Shares, func(o share) bool { return o.Instance != nil && keyOf(o) == keyOf(s) })
			if t == ended || t.UID != ended.UID || t.isTenancy() || at < 0 {
				continue
			}
			t.Shares = slices.Clone(t.Shares)
			t.Shares[at].Made = true
			break
		}
	}
}

// roomFor returns an error if a need would exceed what a user may have beside what they have.
func (w requester) roomFor(had held, shares int, n need) error {
	err := w.room(had, shares, n.memory, n.cores)
	var e errLimited
	if n.made == "" || !errors.As(err, &e) {
		return err
	}
	e.memory, e.cores = 0, 0 // less of an instance does not make it smaller
	if w.room(held{}, shares, n.memory, n.cores) != nil {
		e.beyond = n.made
	}
	whole := *e.Refusal
	whole.Text += fmt.Sprintf(" (a MIG instance %s is made for it and counts whole)", n.made)
	e.Refusal = &whole
	return e
}
