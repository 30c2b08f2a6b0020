package dra

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var claimResource = resourcev1.SchemeGroupVersion.WithResource("resourceclaims")

// What a pod has stays while it lives, also where somebody empties its claim's status, takes the claim away by force, or makes another one
// of that name. The pod is told once. When it has ended, and nobody releases the claim, it is taken back as ever.
func TestLostClaimStaysWithItsPod(t *testing.T) {
	for name, lose := range map[string]func(m *machine, claim *resourcev1.ResourceClaim) error{
		"emptied": func(m *machine, claim *resourcev1.ResourceClaim) error {
			claim.Status = resourcev1.ResourceClaimStatus{}
			return m.client.Tracker().Update(claimResource, claim, "team")
		},
		"removed": func(m *machine, _ *resourcev1.ResourceClaim) error {
			return m.client.Tracker().Delete(claimResource, "team", "b")
		},
		"replaced": func(m *machine, claim *resourcev1.ResourceClaim) error {
			claim.UID, claim.CreationTimestamp = uidA, metav1.NewTime(time.Unix(2000, 0))
			return m.client.Tracker().Update(claimResource, claim, "team")
		},
	} {
		t.Run(name, func(t *testing.T) {
			claim, pod := one("nic-v1-vf", "")
			pod.Status.StartTime = &metav1.Time{Time: time.Unix(1000, 0)}
			m, _ := newCardMachine(t, claim, pod)
			r := m.start()
			m.mustPrepare(r, claim)
			for range 2 {
				<-m.events.Events // what it has
			}
			watch := m.watched(r)
			if err := lose(m, claim.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			rec, now := newReconciler(r.driver), time.Now()
			rec.now = func() time.Time { return now }
			look := func() {
				for range 5 {
					now = now.Add(reconcileInterval)
					rec.look(t.Context())
				}
			}
			look()
			if m.cardSpec(uidB) == "" || len(r.attached.list()) != 1 {
				t.Fatal("a pod that lives has lost its card")
			}
			if told := <-m.events.Events; !strings.Contains(told, "Warning ClaimLost claim team/b is gone or not allocated any more") {
				t.Errorf("told is %q", told)
			}
			if len(m.events.Events) > 0 {
				t.Errorf("told is also %q", <-m.events.Events)
			}
			m.removePod(watch, pod)
			look()
			if m.cardSpec(uidB) != "" || len(r.attached.list()) != 0 {
				t.Error("the card of a pod that has ended is not taken back")
			}
		})
	}
}

// A pod that began with a later claim of the same name has nothing of the one before.
func TestLaterClaimIsAnothers(t *testing.T) {
	later := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(2000, 0))}}
	var pods []*corev1.Pod
	for _, began := range []int64{1000, 2000, 3000, 0} {
		pod := &corev1.Pod{}
		if began > 0 {
			pod.Status.StartTime = &metav1.Time{Time: time.Unix(began, 0)}
		}
		pods = append(pods, pod)
	}
	if got := before(pods, later); len(got) != 1 || got[0] != pods[0] {
		t.Errorf("%d pods have the claim before", len(got))
	}
	if got := before(pods, nil); len(got) != len(pods) {
		t.Errorf("%d pods have the claim that is gone", len(got))
	}
}
