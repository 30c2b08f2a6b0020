package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// give allocates a claim of a test for its pod on a node, as a scheduler does that knows of no other claim.
func give(t *testing.T, claims claimsByName, pod *corev1.Pod, node string) {
	t.Helper()
	alone := engineOf(t, 4, claimsByName{"team/" + pod.Name: claims["team/"+pod.Name].DeepCopy()})
	u, err := alone.Read(pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.Choose(u, []string{node}, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	claim := claims["team/"+pod.Name].DeepCopy()
	claim.Status.Allocation = u.Allocations[0].Result
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	claims["team/"+pod.Name] = claim
}

// alone makes pods of no gang that ask for a share of so many GiB each, with their claims.
func alone(e *Engine, claims claimsByName, count, gibibytes int) []*corev1.Pod {
	pods := gangOf(e, claims, count, nil)
	for _, pod := range pods {
		e.Gangs.Remove(pod)
		pod.Annotations = nil
		claims["team/"+pod.Name].Spec.Devices.Requests[0].Exactly.Capacity.Requests[v1alpha1.CapacityMemory] = resource.MustParse(fmt.Sprint(gibibytes, "Gi"))
	}
	return pods
}

// A pod is not placed with a claim that has a part of a GPU which was given twice. It gives that up if nobody else needs it.
func TestDisputed(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 4, claims)
	pods := alone(e, claims, 2, 50)
	for _, pod := range pods {
		give(t, claims, pod, "n1")
		e.setClaim(nil, claims["team/"+pod.Name])
	}
	u, err := e.Read(pods[0])
	if err != nil {
		t.Fatal(err)
	}
	lets := func(string) bool { return true }
	const want = "no room: a GPU is disputed: claim p0 has a part of GPU GPU-00000001-0000-0000-0000-000000000001 of node n1, which is fenced: " +
		"it has too little memory left; delete this claim, or what else has a part of that GPU: team/p1"
	if err := e.Choose(u, nil, lets); !errors.Is(err, ErrRoom) || !errors.Is(err, ErrDisputed) || err.Error() != want || !u.Stuck() {
		t.Errorf("stuck %v: %v", u.Stuck(), err)
	}
	claims["team/p0"].Status.ReservedFor = append(claims["team/p0"].Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{UID: types.UID("runs")})
	if u, err := e.Read(pods[0]); err != nil || u.Stuck() {
		t.Errorf("a claim that a pod uses is taken away: %v", err)
	}
	foreign := claims["team/p1"].DeepCopy()
	foreign.Status.Allocation.Devices.Results = append(foreign.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Driver: "other"})
	claims["team/p1"] = foreign
	if u, err := e.Read(pods[1]); err != nil || u.Stuck() {
		t.Errorf("another driver's device is taken away: %v", err)
	}
	e.setClaim(claims["team/p1"], nil)
	if err := e.Choose(u, nil, lets); err != nil || u.Place.Name != "n1" {
		t.Errorf("the other claim has gone, and the pod is on %q: %v", u.Place.Name, err)
	}
}

// Members that have devices keep them if all fit so. Otherwise they give them up, and so do those of a gang that waits.
func TestGangKeeps(t *testing.T) {
	for name, test := range map[string]struct {
		lets lets
		// change changes the cluster after the first two members got devices of node n1.
		change func(t *testing.T, e *Engine, claims claimsByName, pods []*corev1.Pod)
		keeps  []string
		why    string
	}{
		"their places": {lets: anywhere},
		"on a node that lets them no more": {
			lets:  func(_ *corev1.Pod, node string) bool { return node != "n1" },
			keeps: []string{"p0", "p1"}, why: "its claims have devices of node n1, on which the pod may not be (pod p0)",
		},
		"without room for all": {
			lets:  func(_ *corev1.Pod, node string) bool { return node == "n1" },
			keeps: []string{"p0", "p1"}, why: "only 2 of 4 members fit together",
		},
		"of a GPU that was given twice": {
			lets: anywhere,
			change: func(_ *testing.T, e *Engine, claims claimsByName, _ []*corev1.Pod) {
				twice := claims["team/p1"].DeepCopy()
				twice.Name, twice.UID = "twice", "twice"
				twice.Status.Allocation.Devices.Results[0].ConsumedCapacity[v1alpha1.CapacityMemory] = resource.MustParse("75Gi")
				e.setClaim(nil, twice)
			},
			keeps: []string{"p0", "p1"}, why: "which is fenced",
		},
	} {
		t.Run(name, func(t *testing.T) {
			claims := claimsByName{}
			e := engineOf(t, 4, claims)
			pods := gangOf(e, claims, 4, map[string]string{v1alpha1.GangShareGPUsAnnotation: "false"})
			for i, pod := range pods[:2] {
				give(t, claims, pod, "n1")
				if i == 1 { // on the node's other GPU
					result := &claims["team/p1"].Status.Allocation.Devices.Results[0]
					result.Device = strings.Replace(result.Device, "000000000001", "000000000000", 1)
				}
				e.setClaim(nil, claims["team/"+pod.Name])
			}
			if test.change != nil {
				test.change(t, e, claims, pods)
			}
			team, err := e.PlanGang(pods[3], test.lets)
			if test.keeps == nil {
				if err != nil || len(team.Units) != 4 {
					t.Errorf("%v: %v", team, err)
				}
				return
			}
			var keeping *KeepingError
			if !errors.As(err, &keeping) || !errors.Is(err, ErrRoom) || !strings.Contains(err.Error(), test.why) {
				t.Fatal(err)
			}
			var names []string
			for _, u := range keeping.Units {
				names = append(names, u.Pod.Name)
			}
			if fmt.Sprint(names) != fmt.Sprint(test.keeps) {
				t.Errorf("%v keep", names)
			}
			if all := e.Keeping(); len(all) != 0 {
				t.Errorf("%d of a gang that can be planned keep", len(all))
			}
			e.Gangs.Remove(pods[3])
			if all := e.Keeping(); len(all) != 2 {
				t.Errorf("%d of a gang that waits for members keep", len(all))
			}
		})
	}
}

// A member of which one claim is allocated gets the other one on the same node.
func TestGangMemberHasOneClaimOfTwo(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 4, claims)
	pods := gangOf(e, claims, 2, nil)
	give(t, claims, pods[0], "n2")
	e.setClaim(nil, claims["team/p0"])
	second := claims["team/p0"].DeepCopy()
	second.Name, second.UID, second.Status = "second", "second", resourcev1.ResourceClaimStatus{}
	claims["team/second"] = second
	pods[0].Spec.ResourceClaims = append(pods[0].Spec.ResourceClaims, corev1.PodResourceClaim{Name: "second", ResourceClaimName: &second.Name})
	team, err := e.PlanGang(pods[1], anywhere)
	if err != nil || len(team.Units) != 2 {
		t.Fatal(team, err)
	}
	for _, u := range team.Units {
		if u.Pod.Name == "p0" && u.Place.Name != "n2" {
			t.Errorf("its claims are on n2 and %s", u.Place.Name)
		}
	}
}
