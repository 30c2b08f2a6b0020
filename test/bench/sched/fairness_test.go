package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A pod uses its GPU from its binding until it has gone, and what ends for others is told apart from what ends by itself.
func TestCrowd(t *testing.T) {
	c := &crowd{parties: map[string]*party{}, leaving: map[string]bool{"a-00001": true}, evicted: map[string]bool{}}
	for name, entitled := range map[string]int{"a": 5, "b": 3, "c": 2} {
		c.parties[name] = &party{pods: kind{name: name}.in(name), entitled: entitled, waiting: map[string]bool{}, running: map[string]bool{}}
	}
	change := func(what watch.EventType, pod *corev1.Pod, node string, ends bool) {
		pod.Spec.NodeName = node
		if ends {
			now := metav1.Now()
			pod.DeletionTimestamp = &now
		}
		c.see(what, pod)
	}
	all := map[string][]*corev1.Pod{}
	for name, n := range map[string]int{"a": 7, "b": 3, "c": 1} {
		for range n {
			pod := c.parties[name].next()
			all[name] = append(all[name], pod)
			change(watch.Added, pod, "", false)
			change(watch.Modified, pod, "node", false)
		}
	}
	waits := c.parties["a"].next()
	change(watch.Added, waits, "", false)
	if largest, mean := c.distance(10); largest != 20 || mean != 10 || c.used() != 11 {
		t.Errorf("the largest distance is %v and the mean %v at a use of %d; want 20, 10 and 11", largest, mean, c.used())
	}
	change(watch.Modified, all["a"][0], "node", true)
	change(watch.Modified, all["a"][1], "node", true)
	if n := len(c.parties["a"].running); n != 7 || len(c.evicted) != 1 || !c.evicted["a-00000"] {
		t.Errorf("a uses %d GPUs, and %v end for others", n, c.evicted)
	}
	change(watch.Deleted, all["a"][0], "node", true)
	change(watch.Deleted, all["a"][1], "node", true)
	if n := len(c.parties["a"].running); n != 5 || len(c.parties["a"].waiting) != 1 {
		t.Errorf("a uses %d GPUs, and %v wait", n, c.parties["a"].waiting)
	}
	if largest, mean := c.distance(10); largest != 10 || mean < 3.3 || mean > 3.4 {
		t.Errorf("the largest distance is %v and the mean %v; want 10 and 3.33", largest, mean)
	}
}
