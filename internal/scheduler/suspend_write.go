package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler/ledger"
)

// StepOrdered is after a claim's suspension was ordered or ended, as the other steps of [Writer.Step].
const StepOrdered = "suspension-ordered"

// Order writes an order, in one change of the claim as it was seen. A claim that has changed since is read again, and written if the
// order still holds for it. A new order is tried for 15 seconds; one that ends until the API server has answered, because what the
// ledger counts for it must not be taken back while it may be written. The error says that it is not written.
func (w *Writer) Order(ctx context.Context, o *Order) error {
	if o.Suspension != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, evictLimit)
		defer cancel()
	}
	claim := o.Claim
	var last error
	err := repeat(ctx, func() bool {
		if last = w.order(ctx, claim, o); last == nil || declined(last) && !apierrors.IsConflict(last) {
			return true
		}
		fresh, err := w.Client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			last = err
			return apierrors.IsNotFound(err)
		}
		done, err := o.holds(fresh)
		if last = err; done || err != nil {
			return true
		}
		claim, last = fresh, errClaim
		return false
	})
	if last == nil && err == nil {
		w.step(StepOrdered)
		return nil
	}
	return fmt.Errorf("write the suspension of claim %s: %w", o.Claim.Name, errors.Join(last, err))
}

// holds says whether an order is written already, or why it cannot be any more.
func (o *Order) holds(fresh *resourcev1.ResourceClaim) (done bool, err error) {
	text, ordered := fresh.Annotations[v1alpha1.SuspendAnnotation]
	is := ledger.StandingOf(fresh)
	switch {
	case fresh.UID != o.Claim.UID:
		return false, fmt.Errorf("%w: it is another one", errClaim)
	case o.Suspension == nil && (!ordered || is.Order != o.Number):
		return true, nil
	case o.Suspension == nil:
		return false, nil
	case ordered:
		want, err := o.Suspension.Text()
		if err == nil && text == want {
			return true, nil
		}
		return false, fmt.Errorf("%w: it is ordered out already", errClaim)
	case !equality.Semantic.DeepEqual(fresh.Status.Allocation, o.Claim.Status.Allocation), !equality.Semantic.DeepEqual(fresh.Status.ReservedFor, o.Claim.Status.ReservedFor), is.Partly:
		return false, fmt.Errorf("%w: it has other devices, or other pods", errClaim)
	}
	return false, nil
}

// order is one try.
func (w *Writer) order(ctx context.Context, claim *resourcev1.ResourceClaim, o *Order) error {
	var value, node any // null takes the annotation and the label away
	if o.Suspension != nil {
		text, err := o.Suspension.Text()
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		value, node = text, v1alpha1.SuspendNode(o.Claim.Status.Allocation.Devices.Results[0].Pool) // all are of one node, whose name the pool bears
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
		"annotations": map[string]any{v1alpha1.SuspendAnnotation: value}, "labels": map[string]any{v1alpha1.SuspendNodeLabel: node},
	}})
	if err != nil {
		return fmt.Errorf("write the patch: %w", err)
	}
	_, err = w.Client.ResourceV1().ResourceClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
