package scheduler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// losing makes a gang of which one member has a node and the other waits.
func losing(e *Engine, name string, priority int32) {
	for i, node := range []string{"n0", ""} {
		p := &corev1.Pod{}
		p.Namespace, p.Name = "team", fmt.Sprintf("%s-%d", name, i)
		p.UID = types.UID(p.Name)
		p.Annotations = map[string]string{v1alpha1.GangAnnotation: name, v1alpha1.GangSizeAnnotation: "2"}
		p.Spec.NodeName, p.Spec.Priority = node, &priority
		e.Gangs.Set(p)
	}
}

// A member in the place of a lost one goes before a pod of no higher priority, once after each event that may have made room.
func TestLostMemberGoesFirst(t *testing.T) {
	e := engineOf(t, 1, claimsByName{})
	other := &corev1.Pod{}
	other.Namespace, other.Name, other.UID, other.Spec.Priority = "team", "other", "other", ptr.To(int32(5))
	first := func(want string) {
		t.Helper()
		if got := e.First(other); got.Name != want {
			t.Errorf("first is %s, want %s", got.Name, want)
		}
	}
	first("other")
	losing(e, "low", 4)
	first("other")
	losing(e, "train", 5)
	first("train-1")
	first("other")
	e.freed.Add(1)
	first("train-1")
	first("other")
	if got := e.First(nil); got != nil {
		t.Errorf("%s is first where nobody asks", got.Name)
	}
	e.freed.Add(1)
	gone := &corev1.Pod{}
	gone.Namespace, gone.Name = "team", "train-0"
	e.Gangs.Remove(gone) // the gang has no place any more
	first("other")
}

// Gangs that never fit delay other pods no longer than so many trials.
func TestLostMembersDelayOthersBriefly(t *testing.T) {
	e := engineOf(t, 1, claimsByName{})
	other := &corev1.Pod{}
	other.Namespace, other.Name, other.UID = "team", "other", "other"
	for i := range 2 * mostTried {
		losing(e, fmt.Sprint("g", i), 0)
	}
	for range mostTried {
		if e.First(other) == other {
			t.Fatal("a gang has not gone first")
		}
	}
	if got := e.First(other); got != other {
		t.Errorf("%s goes first as well", got.Name)
	}
}
