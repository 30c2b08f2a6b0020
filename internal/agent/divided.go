package agent

import (
	"context"
	"reflect"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// InstanceUse is a MIG instance that a share has, or is about to have.
type InstanceUse struct {
	// GPU is the UUID of the GPU, Profile the driver's name of the profile, and Start the first memory slice.
	GPU, Profile string
	Start        int
	// Claim is true for a share of a claim of the cluster's. Tenancies without one, of pods with slots, are no claims: the
	// scheduler knows nothing of what they have.
	Claim bool
	// Gone is true for an instance that somebody else took away.
	Gone bool
}

// InstanceUses are the instances that shares have, once for each share.
func (a *Agent) InstanceUses() []InstanceUse {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []InstanceUse
	for _, t := range a.sorted() {
		for _, s := range t.Shares {
			if s.Instance != nil {
				all = append(all, InstanceUse{GPU: s.UUID, Profile: s.Instance.Profile, Start: s.Instance.Start, Claim: t.Tenancy != nil && t.Tenancy.Claim != "", Gone: t.gone != ""})
			}
		}
	}
	return all
}

// Preferred lists the places of GPUs in MIG mode in the order in which the learnt policy would take them now, beside the
// instances that are there. A choice's GPU is its position among the UUIDs. GPUs that are not in MIG mode, or have other
// profiles than the first one that is, are left out.
func (a *Agent) Preferred(uuids []string) []layouts.Choice {
	a.mu.Lock()
	defer a.mu.Unlock()
	var profiles []alloc.Profile
	var positions []int
	var held []layouts.Layout
	for i, uuid := range uuids {
		d := a.divisions.get(uuid)
		if profiles == nil {
			profiles = d.Profiles
		}
		if !d.On || !reflect.DeepEqual(d.Profiles, profiles) {
			continue
		}
		g := alloc.GPU{UUID: uuid}
		a.addDivision(&g, nil)
		positions, held = append(positions, i), append(held, g.Instances)
	}
	if len(held) == 0 {
		return nil
	}
	order, err := a.mixes.Order(profiles, held...)
	if err != nil {
		return nil // profiles of which there is no model are not in MIG mode to us
	}
	for i := range order {
		order[i].GPU = positions[order[i].GPU]
	}
	return order
}

// learnPlaced tells the policy that places instances that one of a profile was asked for, which the cluster's scheduler placed.
// Agent.mu is held.
func (a *Agent) learnPlaced(ctx context.Context, profile string) {
	inventory, err := a.hostOf(a.granted(ctx, nil))
	if err != nil {
		return // the policy goes on with what it learnt
	}
	inventory.Observe(ofGPU(alloc.Request{Profile: profile}))
}
