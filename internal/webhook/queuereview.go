package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// errQueue marks the refusal of a queue.
var errQueue = errors.New("queue refused")

// mostSaid is how many faults, and how many warnings, are told of one queue.
const mostSaid = 16

// validateQueue checks a queue that is made, changed or deleted against the others. What is known of them may be behind, so
// what passes here can still be at fault: the scheduler then says so in the queue's conditions.
func (j *judge) validateQueue(_ context.Context, request *admissionv1.AdmissionRequest) (admission, error) {
	if !isOf(request, v1alpha1.Domain, v1alpha1.QueueResources) || !j.queues.followed {
		return admission{}, nil
	}
	all := j.queues.others(request.Name)
	var before v1alpha1.Queue
	if len(request.OldObject.Raw) > 0 {
		// One that does not read has nothing that could have been at fault already.
		if old, err := v1alpha1.DecodeQueue(request.OldObject.Raw); err == nil {
			before = old
			all = append(all, queue.Spec{Name: request.Name, QueueSpec: old.Spec})
		}
	}
	var review queue.Review
	switch request.Operation {
	case admissionv1.Delete:
		review = queue.ReviewDelete(all, request.Name, before.Status.Running, before.Status.Waiting)
	case admissionv1.Create, admissionv1.Update:
		after, err := v1alpha1.DecodeQueue(request.Object.Raw)
		if err != nil {
			return admission{}, fmt.Errorf("%w: %w", errQueue, err)
		}
		review = queue.ReviewWrite(all, queue.Spec{Name: after.Metadata.Name, QueueSpec: after.Spec})
	}
	given := admission{warnings: bounded(review.Warnings)}
	if len(review.Faults) > 0 {
		return given, fmt.Errorf("%w: %s", errQueue, strings.Join(bounded(review.Faults), "; "))
	}
	return given, nil
}

// bounded are the first lines of many.
func bounded(lines []string) []string {
	if more := len(lines) - mostSaid; more > 0 {
		return append(lines[:mostSaid:mostSaid], fmt.Sprintf("and %d more", more))
	}
	return lines
}
