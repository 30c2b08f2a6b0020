package dra

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
)

// leftPods are pods that hold shares by slots.
type leftPods struct {
	seen map[types.UID]bool      // that were there
	gone map[types.UID]time.Time // since when one is not
}

// endSlots releases the shares of pods that got them by slots, before the node's agent served claims, and that have
// ended: no kubelet asks for that, and the container runtime may tell nobody. A pod that was there and is not any more
// has ended. For one that was never seen the agent waits, as for a claim.
func (r *reconciler) endSlots(ctx context.Context) {
	if !r.pods.known() {
		return
	}
	r.adoptSlots(ctx)
	left := leftPods{seen: map[types.UID]bool{}, gone: map[types.UID]time.Time{}}
	for _, t := range r.tenants.Tenancies() {
		text, ok := agent.PodOfKey(t.Key)
		if !ok {
			continue
		}
		uid := types.UID(text)
		if r.pods.lives(uid) {
			left.seen[uid] = true
			continue
		}
		left.seen[uid] = r.left.seen[uid]
		left.gone[uid] = r.left.gone[uid]
		if left.gone[uid].IsZero() {
			left.gone[uid] = r.now()
		}
		if left.seen[uid] || r.now().Sub(left.gone[uid]) >= goneFor {
			r.endSlot(ctx, t)
		}
	}
	r.left = left
}

func (r *reconciler) endSlot(ctx context.Context, t agent.Tenancy) {
	switch err := r.tenants.Abandon(ctx, t.Key); {
	case errors.Is(err, agent.ErrInUse):
		r.log.WarnContext(ctx, "a pod with slots has ended and its share is still in use", "pod", t.Name)
	case err != nil:
		r.log.WarnContext(ctx, "cannot take back the share of a pod with slots", "pod", t.Name, "error", oneLine(err))
	default:
		r.log.InfoContext(ctx, "took back the share of a pod with slots that has ended", "pod", t.Name)
	}
}

// adoptSlots gives tenancies their keys again that were found by their pages alone.
func (r *reconciler) adoptSlots(ctx context.Context) {
	if !r.nameless() {
		return
	}
	for _, pod := range r.pods.all() {
		for _, key := range slotKeys(pod) {
			r.tenants.Adopt(ctx, key)
		}
	}
}

// slotKeys are the keys of the shares that a pod got by slots.
func slotKeys(pod *corev1.Pod) []string {
	text, ok := pod.Annotations[v1alpha1.RequestAnnotation]
	if !ok {
		return nil
	}
	request, err := v1alpha1.ParsePodRequest(text)
	if err != nil {
		return nil // then no container of it was ever made
	}
	var keys []string
	for i := range request.Shares {
		keys = append(keys, agent.PodKey(string(pod.UID), request.Shares[i].Name))
	}
	return keys
}
