package workload

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// A workload moves if all of its pods say so and have controllers, and for a pod within its queue's guarantee alone.
func TestMayMove(t *testing.T) {
	is, no := true, false
	for _, c := range []struct {
		name      string
		labels    []string
		control   *bool
		asks      int64
		movable   bool
		guarantee bool
	}{
		{"all say so", []string{"true", "true"}, &is, 4, true, true},
		{"one does not", []string{"true", ""}, &is, 4, false, true},
		{"one says the opposite", []string{"true", "false"}, &is, 4, false, true},
		{"nobody makes them again", []string{"true", "true"}, &no, 4, false, true},
		{"beyond the guarantee", []string{"true", "true"}, &is, 5, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSet(2, department("a", 4, "a"), department("b", 4, "b"))
			for i, label := range c.labels {
				p := podOf("a", fmt.Sprint("p", i), "", i)
				p.Labels["gang"], p.Labels[v1alpha1.MovableLabel], p.Spec.NodeName = "g", label, "n"
				p.OwnerReferences = []metav1.OwnerReference{{UID: "owner", Controller: c.control}}
				s.SetPod(p)
				s.SetClaim("a/"+p.Name, Claim{Charges: gpus(1), Pods: []types.UID{p.UID}})
			}
			d := podOf("b", "d", "", 9)
			s.SetPod(d)
			s.Ask(d.UID, gpus(c.asks))
			demander := s.Demander(s.ID(d.UID), gpus(c.asks))
			if got := s.Movable("gang g"); got != c.movable {
				t.Errorf("movable: %v", got)
			}
			if got := s.MayMove(&demander); got != (c.movable && c.guarantee) {
				t.Errorf("may move: %v", got)
			}
		})
	}
}

// What is kept for a pod that has gone counts in its queue until it is forgotten, also where queues change.
func TestKeep(t *testing.T) {
	specs := department("a", 4, "a")
	s := newSet(1, specs)
	p := podOf("a", "p", "", 0)
	p.Spec.NodeName = "n"
	s.Keep("moved p", p, gpus(1))
	if got := s.use(t, "a").Used; got != 1000 {
		t.Errorf("it counts %d", got)
	}
	specs.Namespaces = []string{"a", "b"}
	s.SetQueues([]queue.Spec{specs})
	if got := s.use(t, "a").Used; got != 1000 {
		t.Errorf("after its queue has changed it counts %d", got)
	}
	s.Forget("moved p")
	if got := s.use(t, "a").Used; got != 0 || len(s.works) != 0 {
		t.Errorf("after it was forgotten it counts %d, of %d workloads", got, len(s.works))
	}
}
