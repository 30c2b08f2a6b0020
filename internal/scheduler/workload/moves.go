package workload

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
)

// Movable reports whether all pods of a workload say that they may move, and have a controller that makes them again.
func (s *Set) Movable(id string) bool {
	w := s.works[id]
	return w != nil && w.movable()
}

func (w *work) movable() bool {
	for _, p := range w.members {
		if p.Labels[v1alpha1.MovableLabel] != "true" || metav1.GetControllerOfNoCopy(p.Pod) == nil {
			return false
		}
	}
	return len(w.members) > 0
}

// MayMove reports whether pods could move for a demander, as far as guarantees and labels tell. It costs little.
func (s *Set) MayMove(d *reclaim.Demander) bool {
	s.Settle()
	if !s.on || !reclaim.Assured(s.Book, d) {
		return false
	}
	for id, w := range s.works {
		if w.holds && id != d.ID && w.movable() {
			return true
		}
	}
	return false
}

// Retain counts what is kept for a workload, which was agreed before.
func (s *Set) Retain(id string, kept []queue.Charge) {
	if w := s.works[id]; w != nil {
		w.kept = merged(kept)
		s.dirty[id] = true
		s.Turns.Remove(id)
	}
}

// Keep counts what is kept for a pod that has gone as that pod's, under a name, until [Set.Forget].
func (s *Set) Keep(id string, object *corev1.Pod, kept []queue.Charge) {
	gone := &pod{Pod: object, work: id, claims: map[string]bool{}}
	s.works[id] = &work{id: id, members: map[types.UID]*pod{object.UID: gone}, kept: merged(kept)}
	s.dirty[id] = true
}

// Forget ends what [Set.Keep] began.
func (s *Set) Forget(id string) {
	if w := s.works[id]; w != nil {
		clear(w.members)
		s.dirty[id] = true
	}
}
