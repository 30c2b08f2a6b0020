package scheduler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// again places a pod where that is kept for it, fails to bind it, and looks whether it is kept still.
func again(t *testing.T, e *Engine, pod *corev1.Pod, node string) {
	t.Helper()
	u, err := e.Read(pod)
	if err == nil {
		err = e.Choose(u, nil, func(string) bool { return true })
	}
	if err == nil {
		err = e.Reserve(u)
	}
	if err != nil || u.Place.Name != node {
		t.Fatalf("it is placed on %s (%v)", u.Place.Name, err)
	}
	if e.kept(&u.Place) {
		t.Error("its GPU is kept twice")
	}
	e.Drop([]*Unit{u})
	if !e.kept(&u.Place) {
		t.Error("its GPU is not kept after it could not be bound")
	}
}

func owned(pod *corev1.Pod, by types.UID) {
	is := true
	pod.OwnerReferences = []metav1.OwnerReference{{UID: by, Controller: &is}}
}

// What is kept for a pod that moves is for the next one of its owner that asks the same, until that binds or the time is over.
func TestSeats(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		name  string
		owner types.UID
		gib   string
		later time.Duration
		sits  bool
		stays bool
	}{
		{"made again", "owner", "", 0, true, false},
		{"another owner's", "another", "", 0, false, true},
		{"asks something else", "owner", "60Gi", 0, false, true},
		{"never made again", "another", "", takeLimit + time.Second, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			claims := claimsByName{}
			e := engineOf(t, 4, claims)
			e.clock = func() time.Time { return now }
			pods := alone(e, claims, 2, 40)
			owned(pods[0], "owner")
			owned(pods[1], c.owner)
			if c.gib != "" {
				claims["team/p1"].Spec.Devices.Requests[0].Exactly.Capacity.Requests[v1alpha1.CapacityMemory] = resource.MustParse(c.gib)
			}
			u, err := e.Read(pods[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Choose(u, nil, func(string) bool { return true }); err != nil {
				t.Fatal(err)
			}
			s := &seat{id: "moved", pods: []moved{{pods[0], *u.Demand.Pod(), u.Place}}, awaits: map[string]bool{"team/gone": true}, over: now.Add(time.Minute)}
			e.queues.takings.seats = []*seat{s}
			e.queues.set.Keep(s.id, pods[0], e.charges(s.places()))
			e.setPod(nil, pods[1])
			e.follow()
			now = now.Add(c.later)
			e.follow()
			sits := e.queues.takings.all[e.queues.set.ID(pods[1].UID)]
			if (sits != nil) != c.sits || len(e.queues.takings.seats) > 0 != c.stays {
				t.Fatalf("it gets %+v, and %d are kept for others", sits, len(e.queues.takings.seats))
			}
			if c.sits && (!sits.ready || sits.Node(pods[1]) != u.Place.Name) {
				t.Errorf("it gets %+v", sits)
			}
			if kept := e.kept(&u.Place); kept != (c.sits || c.stays) {
				t.Errorf("its GPU is kept: %v", kept)
			}
			if c.sits {
				again(t, e, pods[1], u.Place.Name)
			}
			e.abandon(&Taking{seats: []*seat{s}}) // a plan that is given up keeps nothing for anybody
			if e.kept(&u.Place) {
				t.Error("its GPU is kept after the plan was given up")
			}
		})
	}
}

// Of several pods that could have what is kept, the one that has waited longest has it.
func TestSeatsByAge(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 4, claims)
	pods := alone(e, claims, 9, 40)
	u, err := e.Read(pods[0])
	if err == nil {
		err = e.Choose(u, nil, func(string) bool { return true })
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &seat{id: "moved", pods: []moved{{pods[0], *u.Demand.Pod(), u.Place}}, over: e.clock().Add(time.Minute)}
	e.queues.takings.seats = []*seat{s}
	e.queues.set.Keep(s.id, pods[0], e.charges(s.places()))
	for i, pod := range pods {
		owned(pod, "owner")
		pod.CreationTimestamp = metav1.Unix(1_000_000-int64(i), 0)
		if i > 0 {
			e.setPod(nil, pod)
		}
	}
	e.follow()
	if oldest := e.queues.set.ID(pods[8].UID); e.queues.takings.all[oldest] == nil || len(e.queues.takings.seats) > 0 {
		t.Errorf("it is not the oldest that has it: %+v", e.queues.takings.all)
	}
}
