package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StepEvicted is after a victim was told to end, as the other steps of [Writer.Step].
const StepEvicted = "victim-evicted"

// evictLimit bounds how long a disruption budget, or an API server, may keep a victim from ending.
const evictLimit = 15 * time.Second

// Evict has a victim end within its grace, through the API that respects disruption budgets unless it is forced. A pod that has gone, or
// another one of its name, is no error. It tries for 15 seconds. The error is then the API server's last answer.
func (w *Writer) Evict(ctx context.Context, v *Victim) error {
	pod := v.Pod
	// With a grace of 0 an API server forgets the pod before its node has ended it.
	seconds := max(1, int64((v.Grace+time.Second-1)/time.Second))
	options := metav1.DeleteOptions{GracePeriodSeconds: &seconds, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &options}
	ctx, cancel := context.WithTimeout(ctx, evictLimit)
	defer cancel()
	var last error
	err := repeat(ctx, func() bool {
		if v.Forced {
			last = w.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
		} else {
			last = w.Client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, eviction)
		}
		switch {
		case last == nil, apierrors.IsNotFound(last), apierrors.IsConflict(last):
			last = nil
			return true
		}
		return apierrors.IsForbidden(last) || apierrors.IsInvalid(last)
	})
	if last != nil || err != nil {
		return fmt.Errorf("evict pod %s: %w", pod.Name, errors.Join(last, err))
	}
	w.step(StepEvicted)
	return nil
}
