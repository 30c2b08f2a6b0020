package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
)

// prepareClaim makes everything of one claim: its shares, its cards, its shares on other hosts, what it has admin access to, and its
// devices for virtual machines. If it fails, it takes back what it made. It returns the pods that it could read with an error too.
func (d *driver) prepareClaim(ctx context.Context, claim *resourcev1.ResourceClaim) ([]*corev1.Pod, []kubeletplugin.Device, error) {
	defer d.claims.lock(claim.UID)()
	_, before := d.openings.get(claim.UID)
	_, handedBefore := d.handed.get(claim.UID)
	_, had := d.attached.get(claim.UID)
	_, remoteBefore := d.remote.get(claim.UID)
	open, err := openingsOf(claim, d.node)
	var doors []kubeletplugin.Device
	if err == nil {
		doors, err = d.openTo(ctx, claim, open)
	}
	var machines, cards, remote, devices []kubeletplugin.Device
	var pods []*corev1.Pod
	if err == nil {
		machines, err = d.handOver(ctx, claim)
	}
	if err == nil {
		cards, err = d.attach(ctx, claim)
	}
	if err == nil {
		remote, err = d.takeRemote(ctx, claim)
	}
	if err == nil {
		pods, devices, err = d.prepareShares(ctx, claim, open)
	} else {
		pods, _ = d.podsOf(ctx, claim) // they are told as far as they are known
	}
	if err != nil {
		for _, part := range []struct {
			before bool
			made   []kubeletplugin.Device
			undo   func() error
		}{
			{before, doors, func() error { return d.shut(claim.UID) }},
			{handedBefore, machines, func() error { return d.giveBack(ctx, claim.UID) }},
			{had, cards, func() error { return d.detach(claim.UID) }},
			{remoteBefore, remote, func() error { return d.endRemote(ctx, claim.UID) }},
		} {
			if !part.before && len(part.made) > 0 {
				err = errors.Join(err, part.undo())
			}
		}
		return pods, nil, err
	}
	if len(open) > 0 {
		d.teller.opens(claim, pods, open)
	}
	return pods, slices.Concat(devices, doors, machines, cards, remote), nil
}

// prepareShares makes the tenants of one claim and their CDI specification. If it
// fails, it releases the tenants that it made. It returns the pods that it could
// read with an error too.
func (d *driver) prepareShares(ctx context.Context, claim *resourcev1.ResourceClaim, open []opening) ([]*corev1.Pod, []kubeletplugin.Device, error) {
	known := d.tenanciesOf(claim.UID)
	pods := d.startReading(ctx, claim)
	allocations, fault := allocationsOf(claim, d.node, func(requests []string, g *allocation) (v1alpha1.NodeDefaults, error) {
		return d.defaultsFor(known, requests, g)
	})
	if len(allocations) > 0 {
		fault = d.runtime.check(ctx)
	}
	var begun plan
	if len(allocations) > 0 && fault == nil {
		begun = d.begin(ctx, claim, allocations, known)
	}
	found, err := pods()
	err = cmp.Or(err, fault)
	if err != nil || len(allocations) == 0 {
		return found, nil, errors.Join(err, d.takeBack(ctx, begun.tenancies, known))
	}
	p, err := d.plan(ctx, claim, allocations, open, found, known)
	if err == nil {
		err = d.carryOut(ctx, claim.UID, p.tenancies, known)
	}
	if err != nil {
		return found, nil, errors.Join(err, d.takeBack(ctx, append(p.tenancies, begun.tenancies...), known))
	}
	return found, p.devices, nil
}

// defaultsFor returns the defaults of a share that names no policy. A share that is
// prepared already, in one of the known tenancies, keeps the policy that it got,
// whatever the node's defaults are now.
func (d *driver) defaultsFor(known []agent.Tenancy, requests []string, g *allocation) (v1alpha1.NodeDefaults, error) {
	for _, t := range known {
		if !slices.Contains(viewIn(t.Key, requests), g.base) {
			continue
		}
		for _, s := range t.Shares {
			if s.UUID == g.uuid && !s.Whole {
				return v1alpha1.NodeDefaults{Policy: s.Config.Policy}, nil
			}
		}
	}
	if d.defaults == nil {
		return v1alpha1.NodeDefaults{}, nil
	}
	return d.defaults()
}

// begin makes the tenant of a claim with one request while the pods are still being
// read, because that tenant does not depend on them. A fault of the pods is found
// before the specification is written, and no container starts without that.
func (d *driver) begin(ctx context.Context, claim *resourcev1.ResourceClaim, allocations []allocation, known []agent.Tenancy) plan {
	requests := requestsOf(allocations)
	if len(requests) != 1 || len(known) > 0 {
		return plan{}
	}
	var pods []string
	for _, r := range claim.Status.ReservedFor {
		pods = append(pods, r.Name)
	}
	p, err := planOf(claim, d.node, allocations, []view{requests}, pods)
	if err != nil {
		return plan{} // and so will be the plan for the pods
	}
	for _, t := range p.tenancies {
		// An error comes again in carryOut, which returns it.
		_, _ = d.tenants.Prepare(ctx, t)
	}
	return p
}

// plan returns what is to be made for a claim of these pods.
func (d *driver) plan(ctx context.Context, claim *resourcev1.ResourceClaim, allocations []allocation, open []opening, pods []*corev1.Pod, known []agent.Tenancy) (plan, error) {
	views, uses, err := d.views(ctx, claim, allocations, open, pods, known)
	if err != nil {
		return plan{}, err
	}
	p, err := planOf(claim, d.node, allocations, views, namesOf(pods))
	for i := range p.tenancies { // of each view one
		p.tenancies[i].Container = containerOf(views[i], requestsOf(allocations), uses)
	}
	return p, err
}

// views divides a claim by the containers that use it, and returns these too.
func (d *driver) views(ctx context.Context, claim *resourcev1.ResourceClaim, allocations []allocation, open []opening, pods []*corev1.Pod, known []agent.Tenancy) ([]view, []use, error) {
	requests := requestsOf(allocations)
	if err := divisible(requests, pods); err != nil {
		return nil, nil, err
	}
	var uses []use
	for _, pod := range pods {
		found, err := usesOf(pod, claim)
		if err != nil {
			return nil, nil, err
		}
		for i := range found {
			if len(known) == 0 {
				if err := d.checkKernel(ctx, &found[i], allocations); err != nil {
					return nil, nil, err
				}
			}
			if err := found[i].mixes(open, allocations); err != nil {
				return nil, nil, err
			}
			if err := d.alone(ctx, claim, &found[i]); err != nil {
				return nil, nil, err
			}
		}
		uses = append(uses, found...)
	}
	views, err := viewsOf(requests, uses, divided(known, requests))
	return views, uses, err
}

// alone checks that a container's other claims belong to other drivers, because a
// container has one tenant.
func (d *driver) alone(ctx context.Context, claim *resourcev1.ResourceClaim, u *use) error {
	for _, name := range u.others {
		other, err := d.claim(ctx, claim.Namespace, name)
		if err != nil {
			return fmt.Errorf("read claim %s of container %s: %w", name, u.container, err)
		}
		if other.Status.Allocation == nil {
			continue
		}
		ours := func(r resourcev1.DeviceRequestAllocationResult) bool { return isShare(&r) }
		if slices.ContainsFunc(other.Status.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool { return isAdmins(&r) }) {
			return fault("container %s of pod %s has a share by claim %s and admin access by claim %s, and no limit of the share would hold there: give each a container of its own", u.container, u.pod, claim.Name, name)
		}
		if slices.ContainsFunc(other.Status.Allocation.Devices.Results, ours) {
			return fault("container %s of pod %s has GPUs by two claims, %s and %s: put both requests in one claim", u.container, u.pod, claim.Name, name)
		}
	}
	return nil
}

// divided returns how these tenancies divide their claim, or nothing if they do not
// cover all of it.
func divided(tenancies []agent.Tenancy, requests []string) []view {
	var made []view
	for _, t := range tenancies {
		made = append(made, viewIn(t.Key, requests))
	}
	if len(unused(requests, made)) > 0 {
		return nil // an agent died over it, before the kubelet was told anything
	}
	return made
}

// carryOut makes the tenancies and writes the specification by which container
// runtimes find them.
func (d *driver) carryOut(ctx context.Context, claim types.UID, tenancies, known []agent.Tenancy) error {
	for _, t := range known {
		if has(tenancies, t.Key) {
			continue
		}
		// An agent that died left it after dividing the claim differently.
		if err := d.tenants.Release(ctx, t.Key); err != nil {
			return err
		}
	}
	devices := map[string]edits.Edits{}
	for _, t := range tenancies {
		e, err := d.tenants.Prepare(ctx, t)
		if err != nil {
			return err
		}
		devices[deviceName(t.Key)] = e
	}
	if err := d.writeSpec(claim, devices); err != nil {
		return err
	}
	d.step("prepare-spec")
	return nil
}

func (d *driver) writeSpec(claim types.UID, devices map[string]edits.Edits) error {
	spec, err := cdi.Spec(v1alpha1.CDIKind, devices)
	if err != nil {
		return err
	}
	return cdi.Write(d.cdiDir, specName(claim), spec)
}

// takeBack releases the tenancies that were not known before. Some of them may never
// have been made.
func (d *driver) takeBack(ctx context.Context, tenancies, known []agent.Tenancy) error {
	var faults []error
	for _, t := range tenancies {
		if !has(known, t.Key) {
			faults = append(faults, d.tenants.Release(ctx, t.Key))
		}
	}
	return errors.Join(faults...)
}
