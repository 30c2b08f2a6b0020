package dra

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// beside warns pods that came later to a prepared claim and use it differently from
// how it was divided. The kubelet prepares a claim only once, so such a pod cannot be
// refused: it runs with what the first pods were given. Each is warned once, of raw packets too.
func (r *reconciler) beside(ctx context.Context, claim *resourcev1.ResourceClaim) {
	if metav1.GetControllerOf(claim) != nil {
		return // made for one pod
	}
	var allocations []allocation
	for i := range claim.Status.Allocation.Devices.Results {
		if g := &claim.Status.Allocation.Devices.Results[i]; isShare(g) && !isRemote(g) {
			allocations = append(allocations, allocation{base: resourceclaim.BaseRequestRef(g.Request)})
		}
	}
	requests := requestsOf(allocations)
	made := divided(r.tenanciesOf(claim.UID), requests)
	pods, err := r.podsOf(ctx, claim)
	if err != nil {
		r.log.WarnContext(ctx, "cannot see how a claim's pods use it", "claim", claim.Namespace+"/"+claim.Name, "error", err)
	}
	if cards, err := cardsOf(claim, r.node); err == nil {
		r.teller.raw(claim, pods, cards)
	}
	for _, pod := range pods {
		uses, err := usesOf(pod, claim)
		if err == nil {
			err = misfit(requests, uses, made)
		}
		if err == nil {
			err = r.remoteMisfit(claim.UID, uses)
		}
		if err == nil {
			err = r.cardsMisfit(ctx, claim, pod, uses)
		}
		if err == nil {
			continue
		}
		if !r.told[pod.UID] {
			r.told[pod.UID] = true
			r.log.WarnContext(ctx, "a pod uses a prepared claim otherwise", "claim", claim.Namespace+"/"+claim.Name, "pod", pod.Name, "error", oneLine(err))
			r.teller.differs(claim, pod, err)
		}
	}
}

// cardsMisfit is misfit for a claim's cards. It is an error too if a container has cards by another claim: claims of several pods do not
// know of each other's.
func (r *reconciler) cardsMisfit(ctx context.Context, claim *resourcev1.ResourceClaim, pod *corev1.Pod, uses []use) error {
	a, had := r.attached.get(claim.UID)
	if !had {
		return nil
	}
	var requests []string
	for _, v := range a.Views {
		requests = append(requests, v.Requests...)
	}
	slices.Sort(requests)
	if err := misfit(requests, uses, viewsIn(a.Views)); err != nil {
		return err
	}
	for i := range uses {
		if len(uses[i].view(requests)) == 0 {
			continue
		}
		if _, err := r.togetherOf(ctx, pod, claim, &uses[i]); err != nil {
			return err
		}
	}
	return nil
}

// misfit returns why a container does not get the part of the claim that it names,
// or nil if every container does. It is pure.
func misfit(requests []string, uses []use, made []view) error {
	if len(made) == 0 {
		return nil
	}
	if _, err := viewsOf(requests, uses, made); err != nil {
		return err
	}
	for _, u := range uses {
		v := u.view(requests)
		at := slices.IndexFunc(made, func(m view) bool { return m.contains(v) })
		if len(v) == 0 || at < 0 || slices.Equal(made[at], v) {
			continue
		}
		return fault("container %s of pod %s names %s and is given %s, as it is prepared for pods that use it already: give the pod a claim of its own",
			u.container, u.pod, strings.Join(v, " and "), strings.Join(made[at], " and "))
	}
	return nil
}

// differs tells a pod that it uses a claim otherwise than it was divided.
func (t *teller) differs(claim *resourcev1.ResourceClaim, pod *corev1.Pod, err error) {
	t.recorder.Eventf(podObject(pod), claimObject(claim), corev1.EventTypeWarning, reasonDiffers, "Reconcile", "%s", note(oneLine(err)))
}
