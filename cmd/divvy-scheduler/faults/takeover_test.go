package faults

import (
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// A scheduler that takes over while it cannot follow claims gives nothing that the one before it gave after that began. It asks
// which claims there are, and waits until it knows them.
func TestTakesOverBlindly(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.patient = true
	record := newRecord(w.capacities())
	record.follow(t.Context(), w.client)
	w.start()
	w.until("both know the cluster", said, func() (bool, string) {
		for _, name := range replicas {
			if _, err := w.Process(name).Get(t.Context(), "/readyz"); err != nil {
				return false, err.Error()
			}
		}
		return w.leader() != "", "nobody leads"
	})
	w.front.Set(plane.Blind)
	l := &load{Rand: rand.New(rand.NewPCG(3, 3))} //nolint:gosec // names alone
	make := func(name string) {
		_, err := w.client.CoreV1().Pods(namespace).Create(t.Context(), l.described(name, share(0, 0, 1)), metav1.CreateOptions{})
		w.must(err)
	}
	get := func(name string) *corev1.Pod {
		got, err := w.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		w.must(err)
		return got
	}
	make("before")
	w.until("the leader binds a pod", said, func() (bool, string) { return get("before").Spec.NodeName != "", reasonOf(get("before")) })
	first, asked := "", w.front.lists.Load()
	w.until("somebody leads", said, func() (bool, string) { first = w.leader(); return first != "", "nobody does" })
	w.Process(first).Kill()
	make("after")
	w.until("the other one asks which claims there are", said, func() (bool, string) {
		return w.front.lists.Load() >= asked+2 || len(record.found()) > 0, w.leader()
	})
	w.front.Set(plane.Calm)
	w.until("the pod waits for room", said, func() (bool, string) {
		return get("after").Spec.NodeName != "" || reasonOf(get("after")) != "", "it says nothing"
	})
	if wrong := record.found(); len(wrong) > 0 {
		t.Error(wrong)
	}
	now := int64(0)
	w.must(w.client.CoreV1().Pods(namespace).Delete(t.Context(), "before", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	w.until("the pod is bound once there is room", said, func() (bool, string) { return get("after").Spec.NodeName != "", reasonOf(get("after")) })
	if wrong := record.found(); len(wrong) > 0 {
		t.Error(wrong)
	}
}
