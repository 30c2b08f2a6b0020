package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// Steps after which a scheduler can die or stop, by the names that a test's hook hears.
const (
	StepChosen    = "place-chosen"
	StepMade      = "claim-made"
	StepAllocated = "claim-allocated"
	StepBound     = "pod-bound"
)

// errClaim marks claims that somebody else has changed meanwhile, so that the pod is to be planned again.
var errClaim = errors.New("claim has changed")

// Writer writes what units get. Anybody may call its methods; one unit is one goroutine's at a time.
type Writer struct {
	Client kubernetes.Interface
	// Step is called after each step of the list above, if it is there.
	Step func(step string)
}

func (w *Writer) step(name string) {
	if w.Step != nil {
		w.Step(name)
	}
}

// Write makes the unit's claims that are not there, and gives all of them their devices and the pod's reservation, each in
// one update. What was written when it fails stays until [Writer.TakeBack].
func (w *Writer) Write(ctx context.Context, u *Unit) error {
	w.step(StepChosen)
	for i := range u.Allocations {
		if err := w.allocate(ctx, u, &u.Allocations[i]); err != nil {
			return err
		}
	}
	for _, claim := range u.Existing {
		var err error
		switch {
		case claim.Status.Allocation == nil:
		case resourceclaim.IsReservedForPod(u.Pod, claim, false):
			err = w.confirm(ctx, u, claim)
		default:
			err = w.update(ctx, u, claim, claim.Status.Allocation)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// confirm asks whether a claim still has the devices for the pod that it had when it was seen last. Nothing is written for such
// a claim that would fail otherwise, and the last try may have cleared it in the meantime.
func (w *Writer) confirm(ctx context.Context, u *Unit, claim *resourcev1.ResourceClaim) error {
	fresh, err := w.Client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("read claim %s again: %w", claim.Name, err)
	case fresh.UID != claim.UID || fresh.DeletionTimestamp != nil:
		return fmt.Errorf("%w: %s is another one", errClaim, claim.Name)
	case !equality.Semantic.DeepEqual(fresh.Status.Allocation, claim.Status.Allocation) || !resourceclaim.IsReservedForPod(u.Pod, fresh, false):
		return fmt.Errorf("%w: %s does not have these devices for pod %s any more", errClaim, claim.Name, u.Pod.Name)
	}
	return nil
}

func (w *Writer) allocate(ctx context.Context, u *Unit, a *demand.Allocation) error {
	claim := u.Existing[a.Claim.Key()]
	if claim == nil {
		made, err := w.make(ctx, u.Pod, &a.Claim)
		if err != nil {
			return err
		}
		claim = made
		w.step(StepMade)
	}
	if err := w.update(ctx, u, claim, a.Result); err != nil {
		return err
	}
	w.step(StepAllocated)
	return nil
}

// make makes a claim that the pod describes. It is born with the finalizer that claims with devices have, which would
// otherwise cost a write of its own.
func (w *Writer) make(ctx context.Context, pod *corev1.Pod, c *demand.Claim) (*resourcev1.ResourceClaim, error) {
	made := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: c.Name, Finalizers: []string{resourcev1.Finalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: *c.Spec,
	}
	claims := w.Client.ResourceV1().ResourceClaims(c.Namespace)
	created, err := claims.Create(ctx, made, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// A scheduler before this one made it, or this one whose answer was lost.
		if created, err = claims.Get(ctx, c.Name, metav1.GetOptions{}); err == nil {
			err = mayUse(pod, created, true)
		}
		if err == nil {
			err = asDescribed(created, c.Spec)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make claim %s: %w", c.Name, err)
	}
	return created, nil
}

// Missing tells that claims of the unit are not there yet.
func (u *Unit) Missing() bool { return len(u.missing) > 0 }

// Make makes the unit's claims that are not there, without devices: Kubernetes' own allocator knows only claims that are.
func (w *Writer) Make(ctx context.Context, u *Unit) error {
	for i := range u.missing {
		if _, err := w.make(ctx, u.Pod, &u.missing[i]); err != nil {
			return err
		}
	}
	return nil
}

// Stuck tells that the unit's claims have devices of a node, and nobody but its pod needs them there. Other drivers' devices
// are left to Kubernetes.
func (u *Unit) Stuck() bool {
	for _, claim := range u.Existing {
		if has(claim) && !onlyOurs(claim) {
			return false
		}
		if slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID != u.Pod.UID }) {
			return false
		}
	}
	return u.Demand.Node() != ""
}

// Leave takes the devices of a stuck unit's claims away, so that its pod can be placed elsewhere. It returns once that is
// known.
func (w *Writer) Leave(ctx context.Context, u *Unit) {
	for _, claim := range u.Existing {
		if has(claim) {
			u.written = append(u.written, written{claim: claim})
		}
	}
	w.TakeBack(ctx, u)
}

// update gives a claim its devices and the pod's reservation. A claim that has other devices by now is an error.
func (w *Writer) update(ctx context.Context, u *Unit, claim *resourcev1.ResourceClaim, result *resourcev1.AllocationResult) error {
	for {
		err := w.give(ctx, u, claim, result)
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("write claim %s: %w", claim.Name, err)
		}
		fresh, err := w.Client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return fmt.Errorf("read claim %s again: %w", claim.Name, err)
		case fresh.UID != claim.UID || fresh.DeletionTimestamp != nil:
			return fmt.Errorf("%w: %s is another one", errClaim, claim.Name)
		case fresh.Status.Allocation != nil && !equality.Semantic.DeepEqual(fresh.Status.Allocation, result):
			return fmt.Errorf("%w: %s has other devices", errClaim, claim.Name)
		case fresh.Status.Allocation == nil && (claim.Status.Allocation != nil || u.Team != nil):
			// What it had may be somebody else's by now: only what is noted in the ledger is given. Another member of the gang may
			// have given it the devices meanwhile, and have taken them back.
			return fmt.Errorf("%w: %s has no devices any more", errClaim, claim.Name)
		}
		claim = fresh
	}
}

// give is one try of update. A claim that somebody else made gets the finalizer before: without it, who deletes the claim
// takes the devices from a pod that runs, and the controller manager does not clear them when the pod has ended.
func (w *Writer) give(ctx context.Context, u *Unit, claim *resourcev1.ResourceClaim, result *resourcev1.AllocationResult) error {
	claims := w.Client.ResourceV1().ResourceClaims(claim.Namespace)
	given := claim.DeepCopy()
	if !slices.Contains(given.Finalizers, resourcev1.Finalizer) {
		given.Finalizers = append(given.Finalizers, resourcev1.Finalizer)
		protected, err := claims.Update(ctx, given, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		given = protected
	}
	given.Status.Allocation = result
	if !resourceclaim.IsReservedForPod(u.Pod, given, false) {
		given.Status.ReservedFor = append(given.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: u.Pod.Name, UID: u.Pod.UID})
	}
	// From here on it may be written, whatever the answer says.
	u.written = append(u.written, written{claim: given})
	_, err := claims.UpdateStatus(ctx, given, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err):
		u.written = u.written[:len(u.written)-1]
	case err != nil:
		u.written[len(u.written)-1].late = !declined(err)
	}
	return err
}

// declined reports whether an API server has refused a write, rather than failed at it: such a write is never done later.
func declined(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest && status.Status().Code < http.StatusInternalServerError
}

// TakeBack clears what was written for a unit whose pod has no node, and returns once it is known what the API server has.
// A pod that has a node keeps its claims. It reports whether they were cleared.
func (w *Writer) TakeBack(ctx context.Context, u *Unit) (cleared bool) {
	if len(u.written) == 0 {
		return true
	}
	err := repeat(ctx, func() bool {
		pod, err := w.Client.CoreV1().Pods(u.Pod.Namespace).Get(ctx, u.Pod.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false // the next try may get an answer
		}
		if err == nil && pod.UID == u.Pod.UID && pod.Spec.NodeName != "" {
			cleared = false
			return true
		}
		for i := range u.written {
			one := &u.written[i]
			if one.late && !w.outdate(ctx, one.claim) {
				return false
			}
			one.late = false
			revision, done := w.clear(ctx, one.claim.Namespace, one.claim.Name, u.Pod, one.claim.Status.Allocation)
			if !done {
				return false
			}
			u.note(one.claim, revision)
		}
		cleared = true
		return true
	})
	if err == nil {
		u.written = nil
	}
	return cleared && err == nil
}

// outdate has a write of a claim fail that was not answered and may yet come: it is of a revision that is not the last one any
// more. A claim without devices needs no finalizer; the next try gives it one. One that has devices for others keeps it, or who
// deletes the claim takes them away: there the write, which only reserves it for the pod, is done once more, to be taken back. It
// reports whether the write fails now.
func (w *Writer) outdate(ctx context.Context, written *resourcev1.ResourceClaim) bool {
	claims := w.Client.ResourceV1().ResourceClaims(written.Namespace)
	claim, err := claims.Get(ctx, written.Name, metav1.GetOptions{})
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	if claim.UID != written.UID || claim.ResourceVersion != written.ResourceVersion {
		return true
	}
	if claim.Status.Allocation != nil {
		_, err = claims.UpdateStatus(ctx, written, metav1.UpdateOptions{})
		// What is invalid for this revision, such as one pod too many, is so later.
		return err == nil || apierrors.IsNotFound(err) || apierrors.IsInvalid(err)
	}
	claim = claim.DeepCopy()
	claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(name string) bool { return name == resourcev1.Finalizer })
	_, err = claims.Update(ctx, claim, metav1.UpdateOptions{})
	return err == nil || apierrors.IsNotFound(err)
}

// Release takes a pod that has ended, or has no node, out of a claim, and the devices with the last pod. It reports
// whether that is so now; otherwise it is to be tried again. Claims with other drivers' devices are left to Kubernetes.
func (w *Writer) Release(ctx context.Context, namespace, name string, pod *corev1.Pod) bool {
	_, done := w.clear(ctx, namespace, name, pod, nil)
	return done
}

// gone reports whether the API server has no claim of this namespace and name.
func (w *Writer) gone(ctx context.Context, key string) bool {
	namespace, name, _ := strings.Cut(key, "/")
	_, err := w.Client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// there reports whether the API server has a pod.
func (w *Writer) there(ctx context.Context, pod *corev1.Pod) (bool, error) {
	found, err := w.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && found.UID == pod.UID, err
}

// clear is Release, of a claim that has other devices than only not: another scheduler has placed the pod anew. The revision is
// the claim's from which on that is so, "" for one that is gone.
func (w *Writer) clear(ctx context.Context, namespace, name string, pod *corev1.Pod, only *resourcev1.AllocationResult) (revision string, done bool) {
	claims := w.Client.ResourceV1().ResourceClaims(namespace)
	claim, err := claims.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", apierrors.IsNotFound(err)
	}
	if !has(claim) || !onlyOurs(claim) || only != nil && !equality.Semantic.DeepEqual(claim.Status.Allocation, only) {
		return claim.ResourceVersion, true
	}
	others := slices.DeleteFunc(slices.Clone(claim.Status.ReservedFor), func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
	if len(others) == len(claim.Status.ReservedFor) && len(others) > 0 {
		return claim.ResourceVersion, true
	}
	released := claim.DeepCopy()
	released.Status.ReservedFor = others
	if len(others) == 0 {
		released.Status.ReservedFor, released.Status.Allocation, released.Status.Devices = nil, nil, nil
	}
	cleared, err := claims.UpdateStatus(ctx, released, metav1.UpdateOptions{})
	if err != nil {
		return "", apierrors.IsNotFound(err)
	}
	return cleared.ResourceVersion, true
}

// onlyOurs reports whether all devices of a claim are Divvy's.
func onlyOurs(claim *resourcev1.ResourceClaim) bool {
	for i := range claim.Status.Allocation.Devices.Results {
		if claim.Status.Allocation.Devices.Results[i].Driver != v1alpha1.Driver {
			return false
		}
	}
	return true
}
