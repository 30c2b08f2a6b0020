package e2e

import (
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// asHAMi makes a pod that asks for so much in HAMi's words.
func asHAMi(name string, amounts map[corev1.ResourceName]string) *corev1.Pod {
	p := plain(name, "", "")
	for resource, amount := range amounts {
		p.Spec.Containers[0].Resources.Limits["nvidia.com/"+resource] = quantity(amount)
	}
	return p
}

// small makes a pod with one GPU in HAMi's words, and 2001 MiB of it.
func small(name string) *corev1.Pod {
	return asHAMi(name, map[corev1.ResourceName]string{"gpu": "1", "gpumem": "2001"})
}

// foreignQuotas has quotas that were written for HAMi's resources. They hold for what the pods become.
func foreignQuotas(l *lab) {
	l.foreignQuota("requests.nvidia.com/gpu", "1")
	first := l.onePasses("gpu", "requests.nvidia.com/gpu: 1 are used, and 1 more would be 2")
	l.agree()
	l.foreignQuota("requests.nvidia.com/gpumem", "3001")
	l.remove(first)
	l.eventually("nothing of the quota is used", func() string { return reason(l.try(small("more"))) })
	second := l.onePasses("gpumem", "requests.nvidia.com/gpumem: 2001 are used, and 2001 more would be 4002")
	l.agree()
	l.countedUnpublished()
	l.remove(second)
	l.countedByClass()
}

// foreignQuota lets the scenario's namespace have so much of a resource and as much as it likes of others, and returns once
// the webhook knows it.
func (l *lab) foreignQuota(resource, hard string) {
	l.t.Helper()
	l.must(l.ApplyText(l.ctx, fmt.Sprintf("{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: %s, name: foreign}, spec: {hard: {%s: %s}}}",
		l.namespace, resource, hard)))
	beyond := asHAMi("beyond", map[corev1.ResourceName]string{"gpu": "2", "gpumem": "8000"})
	l.eventually("a quota of "+resource+" holds", func() string {
		err := l.try(beyond)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(`quota "foreign" allows %s of %s`, hard, resource)) {
			return fmt.Sprintf("a pod beyond it: %v", err)
		}
		return ""
	})
}

// try returns why a pod would not be admitted.
func (l *lab) try(p *corev1.Pod) error {
	_, err := l.Client().CoreV1().Pods(l.namespace).Create(l.ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// onePasses makes five pods at once, of which the quota lets one pass, and returns that one's name.
func (l *lab) onePasses(name, why string) string {
	l.t.Helper()
	var group sync.WaitGroup
	results := make([]error, 5)
	for i := range results {
		group.Go(func() {
			p := small(name)
			p.Name = fmt.Sprintf("%s-%d", name, i)
			_, results[i] = l.Client().CoreV1().Pods(l.namespace).Create(l.ctx, p, metav1.CreateOptions{})
		})
	}
	group.Wait()
	var passed []string
	for i, err := range results {
		switch {
		case err == nil:
			passed = append(passed, fmt.Sprintf("%s-%d", name, i))
		case !strings.Contains(err.Error(), why):
			l.t.Errorf("pod %d is refused with %q, want: %s", i, err, why)
		}
	}
	if len(passed) != 1 {
		l.t.Fatalf("%d of 5 pods pass a quota that has room for one", len(passed))
	}
	l.running(passed[0])
	return passed[0]
}

// countedUnpublished has a webhook start while nobody publishes any GPU: what pods hold counts all the same.
func (l *lab) countedUnpublished() {
	l.t.Helper()
	l.noAgents()
	l.must(l.Client().ResourceV1().ResourceSlices().DeleteCollection(l.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	before, err := l.Client().CoreV1().Pods(system).List(l.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=webhook"})
	l.must(err)
	l.kubectl("rollout", "restart", "-n", system, "deployment/divvy-webhook")
	l.kubectl("rollout", "status", "-n", system, "deployment/divvy-webhook", "--timeout=3m")
	for i := range before.Items {
		ctx, cancel := l.bound()
		l.must(l.WaitGone(ctx, system, before.Items[i].Name))
		cancel()
	}
	published, err := l.Client().ResourceV1().ResourceSlices().List(l.ctx, metav1.ListOptions{})
	l.must(err)
	if len(published.Items) > 0 {
		l.t.Errorf("slices are published without an agent: %+v", published.Items)
	}
	l.eventually("the new webhook is asked", func() string {
		err := l.try(small("more"))
		switch {
		case err != nil && strings.Contains(err.Error(), "failed calling webhook"):
			return err.Error()
		case err == nil || !strings.Contains(err.Error(), "2001 are used"):
			l.t.Errorf("while no GPU is published a pod beyond the quota: %v", err)
		}
		return ""
	})
	l.agentsBack()
	l.serving()
	l.agree()
}

// countedByClass makes a claim of a device class of its own, which no pod uses: it counts from then on.
func (l *lab) countedByClass() {
	l.t.Helper()
	const class = "own.example.com"
	l.must(l.ApplyText(l.ctx, fmt.Sprintf(`{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: %s}, spec: {selectors: [`+
		`{cel: {expression: 'device.driver == "%s"'}}]}}`, class, v1alpha1.Driver)))
	defer l.kubectl("delete", "deviceclass/"+class)
	l.eventually("nothing of the quota is used again", func() string { return reason(l.try(small("more"))) })
	l.must(l.ApplyText(l.ctx, strings.Replace(l.claim("other", "memory: 2Gi"), v1alpha1.ClassShare, class, 1)))
	l.eventually("a claim of another class counts", func() string {
		err := l.try(small("more"))
		if err == nil || !strings.Contains(err.Error(), "2048 are used") {
			return fmt.Sprintf("a pod beyond the quota: %v", err)
		}
		return ""
	})
	claim, err := l.Client().ResourceV1().ResourceClaims(l.namespace).Get(l.ctx, "other", metav1.GetOptions{})
	l.must(err)
	if claim.Status.Allocation != nil {
		l.t.Errorf("the claim, which no pod uses, is allocated: %+v", claim.Status.Allocation)
	}
	l.must(l.Client().ResourceV1().ResourceClaims(l.namespace).Delete(l.ctx, "other", metav1.DeleteOptions{}))
	l.eventually("the claim counts no more", func() string { return reason(l.try(small("more"))) })
	l.run(small("more"))
	l.agree()
}

// foreignPods are pods of other systems that only a cluster shows to be treated right.
func foreignPods(l *lab) {
	l.only(0)
	n := l.Nodes[0]
	listing, err := l.listing(n)
	l.must(err)
	size := listing.GPUs[0].Capacity

	runai := plain("runai", "", "")
	runai.Annotations = map[string]string{"gpu-fraction": "0.25"}
	runai.Spec.SchedulerName = "runai-scheduler"
	if p := l.run(runai); p.Spec.SchedulerName != corev1.DefaultSchedulerName {
		l.t.Errorf("a pod of run:ai stays with %s", p.Spec.SchedulerName)
	}
	l.limited("runai", "main", size/4/(2*mib)*(2*mib), 1)
	l.agree()

	// HAMi gives nobody else time of a GPU of which somebody has 100 cores.
	card := asHAMi("card", map[corev1.ResourceName]string{"gpu": "1", "gpumem": "1000", "gpucores": "100"})
	l.create(card)
	l.event("card", "NoShareFits")
	l.pending("card")
	l.remove("runai")
	l.running("card")
	l.limited("card", "main", size, 1)
	l.create(plain("beside", "1Gi", ""))
	l.event("beside", "NoShareFits")
	l.pending("beside")
	l.agree()

	joint := plain("joint", "", "")
	joint.Spec.SchedulerName = "koord-scheduler"
	joint.Spec.Containers[0].Resources.Limits["koordinator.sh/gpu"] = quantity("50")
	joint.Annotations = map[string]string{"scheduling.koordinator.sh/device-joint-allocate": `{"deviceTypes": ["gpu", "rdma"]}`}
	unit := plain("unit", "", "")
	unit.Spec.Containers[0].Resources.Limits["aliyun.com/gpu-mem"] = quantity("8138")
	worker := plain("worker", "", "")
	worker.Spec.SchedulerName = "volcano"
	worker.Spec.Containers[0].Resources.Limits["volcano.sh/vgpu-number"] = quantity("1")
	worker.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubeflow.org/v2beta1", Kind: "MPIJob", Name: "train", UID: "0f8d3c5e-9a53-4f0e-8a53-2f3b8d0e4c11"}}
	for _, bad := range []struct {
		pod *corev1.Pod
		say string
	}{
		{joint, "device-joint-allocate is not offered"},
		{unit, "set memoryUnit: MiB for the dialect gpushare"},
		{worker, `group "train" of scheduler volcano`},
	} {
		why := l.refused(bad.pod)
		l.t.Logf("%s: %s", bad.pod.Name, why)
		if !strings.Contains(why, bad.say) || strings.Contains(why, "\n") {
			l.t.Errorf("pod %s is refused with %q, which does not say %q in one line", bad.pod.Name, why, bad.say)
		}
	}
}
