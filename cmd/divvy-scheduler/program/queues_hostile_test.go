package program

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Whoever deletes borrowing pods with a grace of an hour keeps nothing for that hour: they end within the grace of their queue.
func TestDeletedWithALongGrace(t *testing.T) {
	f := withQueues(t, newFleet(t, 1, 2))
	f.full(2)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	f.bound(2)
	pods, hour := f.client.CoreV1().Pods(namespace), int64(3600)
	for _, name := range []string{"a-0", "a-1"} {
		if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &hour}); err != nil {
			t.Fatal(err)
		}
	}
	f.create(inQueue(t, "b", "b-0", 80))
	f.runs("b", 1)
	if left, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.QueueLabel + "=a"}); err != nil || len(left.Items) != 1 {
		t.Errorf("of two pods in a queue that is entitled to one there are %d (%v)", len(left.Items), err)
	}
	f.check()
}

// Two disruption budgets for one pod, with which the API for evictions does nothing, keep it no longer than one.
func TestTwoBudgets(t *testing.T) {
	f := withQueues(t, newFleet(t, 1, 2))
	f.full(2)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	for _, p := range f.bound(2) { // the API asks no budget for a pod that does not run
		p.Status.Phase = corev1.PodRunning
		if _, err := f.client.CoreV1().Pods(namespace).UpdateStatus(t.Context(), &p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	budgets := f.client.PolicyV1().PodDisruptionBudgets(namespace)
	for _, name := range []string{"one", "two"} {
		f.budget(name, map[string]string{v1alpha1.QueueLabel: "a"})
		b, err := budgets.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			b.Status.DisruptionsAllowed, b.Status.ObservedGeneration = 2, b.Generation
			_, err = budgets.UpdateStatus(t.Context(), b, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f.create(inQueue(t, "b", "b-0", 80))
	f.until("b runs", func(ctx context.Context) (bool, string) {
		n := f.running(ctx, "b")
		return n == 1, fmt.Sprint(n)
	})
	f.check()
}

// A pod with guaranteed quota does not take over what one got that counts in no queue, whether it is alone or in a gang.
func TestClaimOfAnotherQuota(t *testing.T) {
	f := withQueues(t, newFleet(t, 1, 2))
	f.queue("a", "{namespaces: [default], resources: [{guaranteed: 1, limit: 1}]}")
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	spec := share(80, 10)
	spec.Devices.Requests[0].Exactly.Count = 2
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "two"}, Spec: spec}
	if _, err := f.client.ResourceV1().ResourceClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	of := func(name string, quota v1alpha1.Quota) *corev1.Pod {
		p := pod(name)
		p.Labels, p.Annotations = map[string]string{v1alpha1.QuotaLabel: string(quota)}, map[string]string{}
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim.Name}}
		return p
	}
	f.create(of("first", v1alpha1.QuotaOpportunistic))
	f.bound(1)
	f.create(of("alone", v1alpha1.QuotaGuaranteed))
	member := of("member", v1alpha1.QuotaGuaranteed)
	member.Annotations[v1alpha1.GangAnnotation], member.Annotations[v1alpha1.GangSizeAnnotation] = "one", "1"
	f.create(member)
	for _, name := range []string{"alone", "member"} {
		f.says(name, "claim default/two is used by pod first, which has another queue or quota")
	}
	f.create(of("alike", v1alpha1.QuotaOpportunistic))
	f.until("a pod of the same quota shares it", func(ctx context.Context) (bool, string) {
		p, err := f.client.CoreV1().Pods(namespace).Get(ctx, "alike", metav1.GetOptions{})
		return err == nil && p.Spec.NodeName != "", fmt.Sprint(err)
	})
}
