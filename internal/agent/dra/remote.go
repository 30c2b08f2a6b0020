package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
)

// remoteSpecPrefix begins the names of the CDI specifications of shares on other hosts; the claim's UID follows.
const remoteSpecPrefix = "remote." + v1alpha1.Driver + "-"

// Remotes gives containers shares on other hosts. Its functions are idempotent.
type Remotes interface {
	// Take sees to it that there is such a share, and returns what a container needs to use it. After an error nothing is left
	// of what it made.
	Take(ctx context.Context, want RemoteShare) (edits.Edits, error)
	// End gives a claim's shares back, whether their hosts can be reached or not. That it has none is no error.
	End(ctx context.Context, claim types.UID) error
	// Follow has a function called for each share of these that has ended by itself, now or later, with the reason.
	Follow(shares []RemoteShare, told func(s RemoteShare, why string))
}

// takeRemote gives a claim its shares on other hosts. After an error it has what it had before.
func (d *driver) takeRemote(ctx context.Context, claim *resourcev1.ResourceClaim) ([]kubeletplugin.Device, error) {
	allocations, err := remotesOf(claim)
	if err != nil || len(allocations) == 0 {
		return nil, err
	}
	if d.remotes == nil {
		return nil, fault("it has a GPU of another host, and the agent of node %s reaches none: set pool.gpus in the chart's values, and restart the agent", d.node)
	}
	if err := d.runtime.check(ctx); err != nil {
		return nil, err
	}
	pods, err := d.podsOf(ctx, claim)
	if err != nil {
		return nil, err
	}
	before, had := d.remote.get(claim.UID)
	views, err := d.remoteViews(ctx, claim, allocations, pods, before.views())
	if err != nil {
		return nil, err
	}
	made, err := remotePlan(claim, allocations, views, namesOf(pods))
	if err != nil {
		return nil, err
	}
	// The record comes first: by it a share is given back that an agent took before it died.
	if err := d.remote.put(made); err != nil {
		return nil, err
	}
	d.step("remote-recorded")
	if err := d.makeRemote(ctx, made); err != nil {
		if !had {
			err = errors.Join(err, d.endRemote(ctx, claim.UID))
		}
		return nil, err
	}
	return remoteDevices(claim.UID, allocations, views), nil
}

// remoteViews divides a claim's GPUs of other hosts by the containers that use them.
func (d *driver) remoteViews(ctx context.Context, claim *resourcev1.ResourceClaim, allocations []allocation, pods []*corev1.Pod, made []view) ([]view, error) {
	requests := requestsOf(allocations)
	if err := divisible(requests, pods); err != nil && len(made) == 0 {
		return nil, err
	}
	own := ownRequests(claim)
	var uses []use
	for _, pod := range pods {
		found, err := usesOf(pod, claim)
		if err != nil {
			return nil, err
		}
		for i := range found {
			if len(made) == 0 {
				if err := d.checkKernel(ctx, &found[i], allocations); err != nil {
					return nil, err
				}
			}
			if err := found[i].apartFrom(own, requests); err != nil {
				return nil, err
			}
			if len(found[i].view(requests)) > 0 {
				if err := d.alone(ctx, claim, &found[i]); err != nil {
					return nil, err
				}
			}
		}
		uses = append(uses, found...)
	}
	return viewsOf(requests, uses, made)
}

// ownRequests are the requests by which a claim has GPUs of the pod's node, also by admin access.
func ownRequests(claim *resourcev1.ResourceClaim) (requests []string) {
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if !isRemote(r) && (isShare(r) || isAdmins(r) && !isCard(r)) {
			requests = append(requests, resourceclaim.BaseRequestRef(r.Request))
		}
	}
	slices.Sort(requests)
	return slices.Compact(requests)
}

// makeRemote takes all shares of a claim that are not there, and writes the specification by which container runtimes find them.
func (d *driver) makeRemote(ctx context.Context, c remoteClaim) error {
	devices := map[string]edits.Edits{}
	for _, v := range c.Views {
		e, err := d.remotes.Take(ctx, v.Share)
		if err != nil {
			return fmt.Errorf("take a share of %s: %w", v.Share.Host, err)
		}
		d.step("remote-taken")
		devices[deviceName(v.Share.Key)] = e
		d.remotes.Follow([]RemoteShare{v.Share}, d.remoteEnded)
	}
	spec, err := cdi.Spec(v1alpha1.CDIRemoteKind, devices)
	if err != nil {
		return err
	}
	if err := cdi.Write(d.cdiDir, remoteSpecPrefix+string(c.UID), spec); err != nil {
		return err
	}
	d.step("remote-spec")
	return nil
}

// endRemote gives back a claim's shares on other hosts; that it has none is no error. The record goes last: while it is there,
// there may be something to give back. Whoever asks for that may have gone: it is done all the same.
func (d *driver) endRemote(ctx context.Context, claim types.UID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backLimit)
	defer cancel()
	if had, ok := d.remote.get(claim); ok && d.remotes == nil {
		return fault("%s has shares on other hosts, and this agent reaches none: start it with the flags that it had", had.name())
	}
	if err := cdi.Remove(d.cdiDir, remoteSpecPrefix+string(claim)); err != nil {
		return err
	}
	if d.remotes != nil {
		// Also without a record, which may be lost.
		if err := d.remotes.End(ctx, claim); err != nil {
			return fmt.Errorf("give back shares of other hosts: %w", err)
		}
	}
	d.step("remote-ended")
	return d.remote.remove(claim)
}

// remoteEnded tells the pods of a share that it has ended without them.
func (d *driver) remoteEnded(s RemoteShare, why string) {
	if _, prepared := d.remote.get(s.Claim); !prepared {
		return
	}
	d.log.Warn("a share on another host has ended", "claim", s.Name, "on", s.Host, "why", why)
	d.teller.remoteEnded(s, d.usersOf(s), why)
}

// usersOf are the pods of a share, also those that have ended with it.
func (d *driver) usersOf(s RemoteShare) []*corev1.Pod {
	pods := slices.Clone(d.pods.users(s.Namespace, s.ClaimName))
	for _, name := range s.Pods {
		if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Name == name }) {
			continue
		}
		pod, err := d.pod(context.Background(), s.Namespace, name, newest)
		if err != nil {
			d.log.Warn("cannot tell a pod that its share has ended", "pod", s.Namespace+"/"+name, "error", err)
			continue
		}
		pods = append(pods, pod)
	}
	return pods
}

// remoteSpecifications makes the specifications of shares on other hosts match the records, and goes on to tell of their ends.
func (r *reconciler) remoteSpecifications(ctx context.Context) {
	present, ok := r.specified(ctx, remoteSpecPrefix)
	if !ok {
		return
	}
	for uid := range present {
		r.matchRemote(ctx, uid, true)
	}
	for _, c := range r.remote.list() {
		if !present[c.UID] {
			r.matchRemote(ctx, c.UID, false)
		}
	}
}

// matchRemote removes a specification without a record, whose containers run on until the kubelet has the claim released, and writes
// one that is missing: a container of the pod that starts again would not start without it, and the kubelet does not ask again. A
// share that has ended stays so: other containers of the pod may still have its folder.
func (r *reconciler) matchRemote(ctx context.Context, uid types.UID, present bool) {
	defer r.claims.lock(uid)()
	c, known := r.remote.get(uid)
	var err error
	switch {
	case !known:
		err = cdi.Remove(r.cdiDir, remoteSpecPrefix+string(uid))
	case r.remotes == nil:
	case !present:
		err = r.makeRemote(ctx, c)
	default:
		for _, v := range c.Views {
			r.remotes.Follow([]RemoteShare{v.Share}, r.remoteEnded)
		}
	}
	if err != nil {
		r.log.WarnContext(ctx, "cannot make a claim's shares on other hosts as they should be", "claim", uid, "error", oneLine(err))
	}
}

// remoteMisfit is misfit for a claim's GPUs of other hosts.
func (r *reconciler) remoteMisfit(claim types.UID, uses []use) error {
	c, had := r.remote.get(claim)
	if !had {
		return nil
	}
	var requests []string
	for _, v := range c.Views {
		requests = append(requests, v.Requests...)
	}
	slices.Sort(requests)
	return misfit(requests, uses, c.views())
}

// remoteEnded tells pods that a share of theirs on another host has ended.
func (t *teller) remoteEnded(s RemoteShare, pods []*corev1.Pod, why string) {
	for _, pod := range pods {
		t.recorder.Eventf(podObject(pod), nil, corev1.EventTypeWarning, reasonRemoteEnded, "Follow", "%s",
			note(fmt.Sprintf("the share of claim %s on host %s has ended: %s. Programs that use it get CUDA_ERROR_DEVICE_UNAVAILABLE: delete the pod, so that another one gets a share", s.Name, s.Host, why)))
	}
}
