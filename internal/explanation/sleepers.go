package explanation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Sleeper is a pod that is out of its GPUs for others and waits to come back.
type Sleeper struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Since is when the last of its claims was out.
	Since time.Time `json:"since"`
	// Reason is what it waits for, and for whom it left.
	Reason string `json:"reason"`
}

// sleepers finds which pods of a queue are suspended.
func (r Reader) sleepers(ctx context.Context, e *QueueExplanation, namespace string, pods map[types.UID]*corev1.Pod) error {
	bound := slices.DeleteFunc(slices.Collect(maps.Values(pods)), func(p *corev1.Pod) bool { return p.Spec.NodeName == "" || p.DeletionTimestamp != nil })
	if len(bound) == 0 {
		return nil
	}
	ordered := orderedOut{}
	for _, from := range sources(e, namespace) {
		if err := r.readOrderedOut(ctx, from.namespace, ordered); err != nil {
			return err
		}
	}
	for _, pod := range bound {
		if s := ordered.of(pod); s != nil {
			e.Sleeping = append(e.Sleeping, *s)
		}
	}
	slices.SortFunc(e.Sleeping, func(a, b Sleeper) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod))
	})
	return nil
}

// orderedOut are claims that have an order to leave their GPUs, by namespace and name.
type orderedOut map[string]*resourcev1.ResourceClaim

// readOrderedOut adds those of a namespace, of all where it is empty. Who may not read claims there is told of none.
func (r Reader) readOrderedOut(ctx context.Context, namespace string, into orderedOut) error {
	options := metav1.ListOptions{Limit: mostPods, LabelSelector: v1alpha1.SuspendNodeLabel}
	for {
		list, err := r.Client.ResourceV1().ResourceClaims(namespace).List(ctx, options)
		if apierrors.IsForbidden(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the claims of suspended pods: %w", err)
		}
		for i := range list.Items {
			claim := &list.Items[i]
			into[claim.Namespace+"/"+claim.Name] = claim
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// of is what there is to say of a pod that has a node, nil for one that is not out.
func (s orderedOut) of(pod *corev1.Pod) *Sleeper {
	var out *Sleeper
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue
		}
		claim := s[pod.Namespace+"/"+*name]
		if claim == nil || claim.Status.Allocation == nil {
			continue
		}
		state, whom := suspensionOf(claim)
		if state != Suspended {
			continue
		}
		if out == nil {
			out = &Sleeper{Namespace: pod.Namespace, Pod: pod.Name, Reason: fmt.Sprintf("its turn, and room on its GPUs of node %s; it left them for %s", oneLine(pod.Spec.NodeName), whom)}
		}
		if at := outSince(claim); at.After(out.Since) {
			out.Since = at
		}
	}
	return out
}

// outSince is when the last share of a claim was off its GPU.
func outSince(claim *resourcev1.ResourceClaim) (since time.Time) {
	for i := range claim.Status.Devices {
		if answer := v1alpha1.SuspensionAnswerOf(&claim.Status.Devices[i]); answer != nil && answer.Status == metav1.ConditionTrue && answer.LastTransitionTime.After(since) {
			since = answer.LastTransitionTime.Time
		}
	}
	return since
}
