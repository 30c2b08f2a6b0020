package e2e

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// slotsPriority has a pod lack both a GPU and processors, which a pod of lower priority has. That one is ended when the GPU has room, and
// not before.
func slotsPriority(l *lab) {
	node, err := l.Client().CoreV1().Nodes().Get(l.ctx, l.Nodes[0].Name, metav1.GetOptions{})
	l.must(err)
	// More than half of the node's processors: two such pods are never there together.
	most := *resource.NewMilliQuantity(node.Status.Allocatable.Cpu().MilliValue()*51/100, resource.DecimalSI)
	of := func(class string, p *corev1.Pod) *corev1.Pod {
		p.Spec.PriorityClassName = class
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: most}
		return on(l.Nodes[0], p)
	}
	for class, value := range map[string]int{"divvy-low": -10, "divvy-high": 1000} {
		l.must(l.ApplyText(l.ctx, fmt.Sprintf("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: %s}, value: %d}", class, value)))
		defer l.kubectl("delete", "priorityclass/"+class)
		l.eventually("pods may be of class "+class, func() string { return reason(l.try(of(class, plain("tried", "", "")))) })
	}
	l.run(on(l.Nodes[0], plain("holds", "12Gi", "")))
	low := l.run(of("divvy-low", plain("low", "", "")))
	l.create(of("divvy-high", plain("high", "8Gi", "")))
	l.waitsFor("high", "preemption: no candidate node for preemption")
	if now := l.found("low"); now.UID != low.UID || now.DeletionTimestamp != nil || now.Status.Phase != corev1.PodRunning {
		l.t.Errorf("the pod with the processors is ended, and the GPU has no room: %+v", now.Status)
	}
	l.recorded()
	l.remove("holds")
	l.running("high")
	ctx, cancel := l.bound()
	defer cancel()
	l.must(l.WaitGone(ctx, l.namespace, "low"))
	l.limited("high", "main", 8*gib, 1)
	l.held(1)
	l.recorded()
}
