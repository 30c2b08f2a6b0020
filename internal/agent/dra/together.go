package dra

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A container may have cards by several claims, which are prepared one by one and have a CDI device each. Of a variable in several devices
// one value counts, and so it is with the limits of one adapter. So each of these devices has what follows from all cards of the
// container. That holds for claims that are one pod's alone: others may come to a claim for several pods later.

// togetherOf are all parts of cards that a container has, in the order in which it names its claims; nil where it has cards by one
// claim alone.
func (d *driver) togetherOf(ctx context.Context, pod *corev1.Pod, claim *resourcev1.ResourceClaim, u *use) ([]CardPart, error) {
	var all []CardPart
	several := false
	for _, name := range u.order {
		one := claim
		if name != claim.Name {
			var err error
			if one, err = d.claim(ctx, claim.Namespace, name); err != nil {
				return nil, fmt.Errorf("read claim %s of container %s: %w", name, u.container, err)
			}
		}
		parts, err := partsOf(pod, one, u.container, d.node)
		if err != nil {
			return nil, fmt.Errorf("claim %s of container %s: %w", name, u.container, err)
		}
		if name != claim.Name && len(parts) > 0 {
			several = true
			if !metav1.IsControlledBy(claim, pod) || !metav1.IsControlledBy(one, pod) {
				return nil, fault("container %s of pod %s has RDMA cards by two claims, %s and %s, that are not made for this pod alone: put both requests in one claim, or make both by templates",
					u.container, u.pod, claim.Name, one.Name)
			}
		}
		all = append(all, parts...)
	}
	if !several {
		return nil, nil
	}
	return all, nil
}

// partsOf are the parts of a claim's cards that a container gets.
func partsOf(pod *corev1.Pod, claim *resourcev1.ResourceClaim, container, node string) (parts []CardPart, err error) {
	cards, err := cardsOf(claim, node)
	if err != nil || len(cards) == 0 {
		return nil, err
	}
	uses, err := usesOf(pod, claim)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(uses, func(u use) bool { return u.container == container })
	for i := range cards {
		if at >= 0 && len(uses[at].view([]string{cards[i].base})) > 0 {
			parts = append(parts, cards[i].CardPart)
		}
	}
	return parts, nil
}

// divide leaves a claim its own cards alone once no pod lives that names it beside another claim: a pod that comes later by this claim
// has no part of the other one's limits.
func (r *reconciler) divide(ctx context.Context, a attached) attached {
	several := func(pod *corev1.Pod) bool {
		names, err := claimsOfPod(pod)
		return err != nil || len(names) > 1
	}
	has := func(v attachedView) bool { return len(v.Together) > 0 }
	if !slices.ContainsFunc(a.Views, has) || !r.pods.known() || slices.ContainsFunc(r.pods.users(a.Namespace, a.Claim), several) {
		return a
	}
	alone := a
	alone.Views = slices.Clone(a.Views)
	for i := range alone.Views {
		alone.Views[i].Together = nil
	}
	if err := r.attached.put(alone); err != nil {
		r.log.WarnContext(ctx, "cannot take what a pod that has ended had by another claim from a claim's limits", "claim", a.name(), "error", err)
		return a
	}
	return alone
}

// agreed are the parts that the containers of each view have by all their claims. They have one CDI device, so they must have the same.
func agreed(requests []string, views []view, uses []use, all [][]CardPart) ([][]CardPart, error) {
	together := make([][]CardPart, len(views))
	for i, v := range views {
		first := -1
		for k := range uses {
			switch own := uses[k].view(requests); {
			case len(own) == 0 || !v.contains(own):
			case first < 0:
				first, together[i] = k, all[k]
			case !slices.Equal(together[i], all[k]):
				return nil, fault("container %s and container %s of pod %s have the same RDMA cards by this claim and others by other claims: give each a claim of its own",
					uses[first].container, uses[k].container, uses[k].pod)
			}
		}
	}
	return together, nil
}
