package webhook

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// validateNotes checks the annotations and labels that Divvy's scheduler reads, of a pod that is created or changed.
func (j *judge) validateNotes(_ context.Context, request *admissionv1.AdmissionRequest) (admission, error) {
	created := creates(request, "", "pods")
	if !created && !changes(request, "", "pods") {
		return admission{}, nil
	}
	pod := &corev1.Pod{}
	if err := readObject(request, pod); err != nil {
		return admission{}, err
	}
	pod.Namespace = request.Namespace
	if !created {
		before := &corev1.Pod{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(request.OldObject.Raw, before); err != nil {
			return admission{}, fmt.Errorf("%w: read the pod before: %w", errReview, err)
		}
		if err := dialect.CheckLasting(before, pod); err != nil {
			return admission{}, err
		}
		if err := dialect.CheckRequeued(before, pod, j.queues.now()); err != nil {
			return admission{}, err
		}
		return admission{}, checkGang(pod)
	}
	described, err := j.translator.CheckNotes(pod)
	if err != nil {
		return admission{}, err
	}
	if err := checkGang(pod); err != nil {
		return admission{}, err
	}
	tree := j.queues.now()
	if err := j.translator.CheckServed(pod, tree); err != nil {
		return admission{}, err
	}
	warnings, err := dialect.CheckQueue(pod, tree)
	if err != nil {
		return admission{}, err
	}
	// The quota comes last: a pod that it lets through counts.
	dryRun := request.DryRun != nil && *request.DryRun
	return admission{warnings: warnings}, j.quotas.checkDescribed(pod.Namespace, described, j.fleet.sizes(), dryRun)
}

func checkGang(pod *corev1.Pod) error {
	if err := gang.Check(pod); err != nil {
		return fmt.Errorf("%w: %w", dialect.ErrRefused, err)
	}
	return nil
}
