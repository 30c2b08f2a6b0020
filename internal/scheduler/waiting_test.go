package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func waits(name string, priority int32) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.UID, p.Spec.Priority = name, types.UID(name), &priority
	return p
}

// A line is served by priority and age, one pod after the other; lines take turns.
func TestWaiting(t *testing.T) {
	var w Waiting
	w.init()
	for _, p := range []*corev1.Pod{waits("low", 0), waits("high", 9), waits("later", 0)} {
		w.Add(p, "small")
	}
	w.Add(waits("big", 0), "large")
	w.Add(waits("high", 9), "small") // refused again: it keeps its place
	first := w.First()
	if len(first) != 2 || first[0].Name != "high" || first[1].Name != "big" {
		t.Fatalf("first are %v", names(first))
	}
	for _, want := range []string{"low", "later"} {
		if next := w.Next(first[0].UID); next == nil || next.Name != want {
			t.Fatalf("next is %v, want %s", next, want)
		} else {
			first[0] = next
		}
	}
	if next := w.Next(first[0].UID); next != nil || w.Has("high") || !w.Has("big") {
		t.Errorf("left are %v", next)
	}
	w.Remove("big")
	if first := w.First(); len(first) != 0 || len(w.order) != 0 || len(w.lines) != 0 || len(w.turned) != 0 {
		t.Errorf("nobody waits, and first are %v", names(first))
	}
}

// One event tries few lines at once, and each line once. A line that comes meanwhile has been tried.
func TestWaitingTurns(t *testing.T) {
	var w Waiting
	w.init()
	const lines = 3*mostTried + 1
	for i := range lines {
		w.Add(waits(fmt.Sprint("pod-", i), 0), fmt.Sprint("shape-", i))
	}
	if w.Due() || len(w.More()) > 0 {
		t.Error("lines are due before an event")
	}
	for range 3 {
		tried := map[string]int{}
		for first := w.First(); len(first) > 0; first = w.More() {
			if len(first) > mostTried {
				t.Fatalf("%d are tried", len(first))
			}
			for _, p := range first {
				tried[p.Name]++
				w.Add(p, "shape"+strings.TrimPrefix(p.Name, "pod")) // refused again
			}
			if len(tried) == mostTried {
				w.Add(waits("late", 0), "shape-late")
			}
			if due := len(tried) < lines; w.Due() != due {
				t.Fatalf("%d of %d lines had a turn, and more are due: %v", len(tried), lines, w.Due())
			}
		}
		if len(tried) != lines || tried["pod-0"] != 1 {
			t.Errorf("%d of %d lines had a turn, the first one %d", len(tried), lines, tried["pod-0"])
		}
		w.Remove("late")
	}
}

// Events that come before all lines have had their turn let no line wait.
func TestWaitingManyEvents(t *testing.T) {
	var w Waiting
	w.init()
	const lines = 5 * mostTried
	for i := range lines {
		w.Add(waits(fmt.Sprint("pod-", i), 0), fmt.Sprint("shape-", i))
	}
	tried := map[string]bool{}
	for range lines / mostTried {
		for _, p := range w.First() {
			tried[p.Name] = true
		}
	}
	if len(tried) != lines {
		t.Errorf("%d of %d lines had a turn", len(tried), lines)
	}
}

// Many lines of one namespace delay no other's, and no namespace is in another's line.
func TestWaitingNamespaces(t *testing.T) {
	var w Waiting
	w.init()
	for i := range 100 * mostTried {
		w.Add(waits(fmt.Sprint("pod-", i), 0), fmt.Sprint("shape-", i))
	}
	for _, namespace := range []string{"one", "two"} {
		other := waits(namespace, 0)
		other.Namespace = namespace
		w.Add(other, "shape-0")
	}
	for range 3 {
		if first := names(w.First()); len(first) != mostTried || !slices.Contains(first, "one") || !slices.Contains(first, "two") {
			t.Fatalf("first are %v", first)
		}
	}
	for _, uid := range []types.UID{"one", "two"} {
		w.Remove(uid)
	}
	if first := w.First(); len(first) != mostTried || len(w.turns) != 1 {
		t.Errorf("first are %v", names(first))
	}
}

// Equal pods are of one shape, wherever they lie in memory; pods that Kubernetes' filters tell apart are not.
func TestShape(t *testing.T) {
	of := func(change func(*corev1.PodSpec)) string {
		pod, seconds := waits("pod", 0), int64(300)
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds}}
		change(&pod.Spec)
		return (&Unit{Pod: pod}).Shape()
	}
	plain := of(func(*corev1.PodSpec) {})
	if again := of(func(*corev1.PodSpec) {}); again != plain {
		t.Errorf("equal pods are %s and %s", plain, again)
	}
	for what, change := range map[string]func(*corev1.PodSpec){
		"spread": func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "rack"}}
		},
		"port": func(s *corev1.PodSpec) {
			s.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80}}}}
		},
		"network": func(s *corev1.PodSpec) { s.HostNetwork = true },
		"volume": func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		},
	} {
		if of(change) == plain {
			t.Errorf("a pod with a %s is in the line of pods without", what)
		}
	}
}

func names(pods []*corev1.Pod) (all []string) {
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return all
}
