package ledger

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// plainOf is a pod without a share that asks for so many processors.
func plainOf(uid string, cpus int64) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pod-" + uid, UID: types.UID(uid)}}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("4Gi"),
	}}}}
	return p
}

// Pods without shares go to nodes without GPUs, else to those whose GPUs are given, as long as these have room.
func TestPlainPodsLeaveRoom(t *testing.T) {
	l := newLedger(t, alloc.DefaultPolicy)
	for _, name := range []string{"n0", "n1", "n2"} {
		l.SetNode(name, nodeOf(t, name, gpus(name, 4, 40*gib), nil))
	}
	for i := range 8 { // what pods that arrive ask for teaches the policy which GPUs are wanted
		l.SetPod(types.UID(fmt.Sprint("w", i)), podOf(t, fmt.Sprint("w", i), whole("main", 1)))
	}
	place(t, l, podOf(t, "a", whole("main", 4)), "n1")
	names := []string{"n0", "n1", "n2", "n9"}
	scores := l.PrioritisePlain(plainOf("p", 8), names)
	if scores[1] != MostScore || scores[0] >= MostScore || scores[2] >= MostScore || scores[0] == 0 || scores[2] == 0 || scores[3] != 0 {
		t.Errorf("the node whose GPUs are given is not wanted most: %v", scores)
	}
	full := plainOf("q", 60)
	full.Spec.NodeName = "n1"
	l.SetPod("q", full)
	if scores := l.PrioritisePlain(plainOf("p", 8), names); scores[1] != 0 || max(scores[0], scores[2]) != MostScore {
		t.Errorf("a node without processors left is wanted: %v", scores)
	}
	bare := nodeOf(t, "n3", nil, nil)
	delete(bare.Annotations, v1alpha1.GPUsAnnotation)
	l.SetNode("n3", bare)
	unreadable := nodeOf(t, "n4", nil, nil)
	unreadable.Annotations[v1alpha1.GPUsAnnotation] = "{"
	l.SetNode("n4", unreadable)
	if scores := l.PrioritisePlain(plainOf("p", 8), []string{"n0", "n3", "n4", "n9"}); !slices.Equal(scores, []int{0, MostScore, 0, 0}) {
		t.Errorf("the node without GPUs alone is wanted: %v", scores)
	}
	check(t, l)
	if len(l.Reservations()) != 0 || l.pods["p"] != nil {
		t.Error("something of a pod that was asked about alone is kept")
	}
}

// What is remembered of plain pods is bounded, and the answer is the same without it.
func TestPlainPodsAreForgotten(t *testing.T) {
	l := newLedger(t, "bestfit")
	var names []string
	for i := range 5 {
		name := fmt.Sprint("n", i)
		names = append(names, name)
		l.SetNode(name, nodeOf(t, name, gpus(name, 1+i, 40*gib), nil))
	}
	for i := range 3 * mostAmounts {
		if i%8 == 0 {
			p := podOf(t, fmt.Sprint("uid", i), ask("main", 1, gib, 0))
			p.Spec.Containers[0].Resources.Requests = nil
			place(t, l, p, names[i/8%len(names)])
		}
		pod := plainOf("p", int64(i%(mostAmounts+mostAmounts/2)))
		anew, err := l.Rebuilt()
		if err != nil {
			t.Fatal(err)
		}
		if a, b := l.PrioritisePlain(pod, names), anew.PrioritisePlain(pod, names); !slices.Equal(a, b) {
			t.Fatalf("%v, and of a ledger made anew %v", a, b)
		}
		if len(l.plain) > mostAmounts {
			t.Fatalf("%d amounts are remembered", len(l.plain))
		}
	}
	if len(l.questions) > 2 {
		t.Errorf("%d questions of pods with shares are remembered", len(l.questions))
	}
}
