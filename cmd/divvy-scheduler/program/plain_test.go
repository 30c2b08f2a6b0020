package program

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Pods without GPUs fill nodes without GPUs first, and then those whose GPUs nobody can get any more.
func TestPodsWithoutGPUs(t *testing.T) {
	f := newFleet(t, 4, 2)
	for i := range 2 {
		f.addNode(100+i, 0)
	}
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	sized := func(name string, cpu string) *corev1.Pod {
		p := pod(name)
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpu)
		return p
	}
	const most = 12 // on the two nodes of 64 processors without GPUs
	for i := range most {
		f.create(sized(fmt.Sprintf("first-%d", i), "10"))
	}
	on := func(n int) map[string]int {
		count := map[string]int{}
		for _, p := range f.bound(n) {
			count[p.Spec.NodeName]++
		}
		return count
	}
	if got := on(most); got[nodeName(100)] != most/2 || got[nodeName(101)] != most/2 {
		t.Fatalf("pods without GPUs are on %v", got)
	}
	whole := share(0, 0)
	asked := whole.Devices.Requests[0].Exactly
	asked.DeviceClassName, asked.Count, asked.Capacity = v1alpha1.ClassWhole, 2, nil
	f.create(describing(t, "whole", whole))
	f.bound(most + 1)
	full, err := f.client.CoreV1().Pods(namespace).Get(t.Context(), "whole", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const more = 5
	for i := range more - 1 {
		f.create(sized(fmt.Sprintf("more-%d", i), "10"))
	}
	if after := on(most + more); after[full.Spec.NodeName] != more {
		t.Errorf("pods are on %v, and the GPUs of %s are taken", after, full.Spec.NodeName)
	}
	// Whoever says where they would rather be is asked nothing else.
	rather := sized("rather", "1")
	rather.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName(3)}}},
		}}},
	}}
	f.create(rather)
	f.bound(most + more + 1)
	got, err := f.client.CoreV1().Pods(namespace).Get(t.Context(), "rather", metav1.GetOptions{})
	if err != nil || got.Spec.NodeName != nodeName(3) {
		t.Errorf("a pod that prefers %s is on %q: %v", nodeName(3), got.Spec.NodeName, err)
	}
}
