package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

const gib = 1 << 30

// claimsByName are the claims of a test.
type claimsByName map[string]*resourcev1.ResourceClaim

func (c claimsByName) Get(namespace, name string) (*resourcev1.ResourceClaim, error) {
	if claim := c[namespace+"/"+name]; claim != nil {
		return claim, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "resourceclaims"}, name)
}

// engineOf makes an engine that knows nodes of two GPUs, two nodes in each rack.
func engineOf(t *testing.T, nodes int, claims Claims) *Engine {
	t.Helper()
	policy, err := alloc.PolicyNamed(alloc.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(policy, claims)
	if err != nil {
		t.Fatal(err)
	}
	class := &resourcev1.DeviceClass{}
	class.Name = "shares"
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
		Expression: `device.driver == "divvy.dev" && device.attributes["divvy.dev"].form == "shared"`,
	}}}
	e.setClasses([]any{class})
	for i := range nodes {
		node := &corev1.Node{}
		node.Name, node.Labels = fmt.Sprint("n", i), map[string]string{"rack": fmt.Sprint("r", i/2)}
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi")}
		e.setNode(nil, node)
		resources, err := pool.Resources(node.Name, []pool.GPU{
			{UUID: fmt.Sprintf("GPU-%08x-0000-0000-0000-000000000000", i), Index: 0, Model: "H100", Memory: 80 * gib},
			{UUID: fmt.Sprintf("GPU-%08x-0000-0000-0000-000000000001", i), Index: 1, Model: "H100", Memory: 80 * gib},
		})
		if err != nil {
			t.Fatal(err)
		}
		for j, s := range resources.Pools[node.Name].Slices {
			slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
				Driver: v1alpha1.Driver, NodeName: &node.Name, Devices: s.Devices, SharedCounters: s.SharedCounters,
				Pool: resourcev1.ResourcePool{Name: node.Name, Generation: 1, ResourceSliceCount: int64(len(resources.Pools[node.Name].Slices))},
			}}
			slice.Name = fmt.Sprint(node.Name, "-", j)
			e.setSlice(nil, slice)
		}
	}
	return e
}

// gangOf makes pods of a gang that ask for a share of 10 GiB each, with their claims.
func gangOf(e *Engine, claims claimsByName, count int, notes map[string]string) (pods []*corev1.Pod) {
	for i := range count {
		name := fmt.Sprint("p", i)
		claim := &resourcev1.ResourceClaim{}
		claim.Namespace, claim.Name, claim.UID = "team", name, types.UID(name)
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "shares", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
			Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: resource.MustParse("10Gi")}},
		}}}
		claims["team/"+name] = claim
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name, pod.UID, pod.Annotations = "team", name, types.UID("pod-"+name), map[string]string{
			v1alpha1.GangAnnotation: "train", v1alpha1.GangSizeAnnotation: fmt.Sprint(count),
		}
		maps.Copy(pod.Annotations, notes)
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(name)}}
		e.Gangs.Set(pod)
		pods = append(pods, pod)
	}
	return pods
}

// lets are trials of members that do not mind each other.
type lets func(pod *corev1.Pod, node string) bool

func (l lets) Lets(pod *corev1.Pod, node string) bool { return l(pod, node) }

func (l lets) Beside(*corev1.Pod, string, int, func(func(*corev1.Pod, string))) bool { return true }

func (l lets) Alike(*corev1.Pod) string { return "" }

func (l lets) Why() string { return "" }

// anywhere lets every member everywhere.
var anywhere = lets(func(*corev1.Pod, string) bool { return true })

// Members of a gang get GPUs of their own in one rack, and one that stands in for a lost one goes to the others.
func TestPlanGang(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 6, claims)
	pods := gangOf(e, claims, 4, map[string]string{v1alpha1.GangTopologyAnnotation: "rack=required"})
	team, err := e.PlanGang(pods[2], anywhere)
	if err != nil || len(team.Units) != 4 {
		t.Fatal(team, err)
	}
	gpus, racks := map[string]bool{}, map[string]bool{}
	for _, u := range team.Units {
		gpus[u.Place.Shares[0].UUID], racks[e.labels[u.Place.Name]["rack"]] = true, true
		if len(u.Allocations) != 1 || u.Allocations[0].Result == nil {
			t.Fatalf("%s has no allocation", u.Pod.Name)
		}
	}
	if len(gpus) != 4 || len(racks) != 1 {
		t.Fatal(gpus, racks)
	}

	// All but the last are bound.
	lost := team.Units[3]
	e.Drop(team.Units[3:])
	for _, u := range team.Units[:3] {
		claim := claims["team/"+u.Pod.Name]
		claim.Status.Allocation = u.Allocations[0].Result
		e.setClaim(nil, claim)
		bound := u.Pod.DeepCopy()
		bound.Spec.NodeName = u.Place.Name
		e.Gangs.Set(bound)
	}
	team, err = e.PlanGang(lost.Pod, anywhere)
	if err != nil || len(team.Units) != 1 || team.Units[0].Place.Shares[0].UUID != lost.Place.Shares[0].UUID {
		t.Fatalf("%v: %+v, want the place %+v", err, team, lost.Place)
	}
}

// A gang for which there is no room has nothing noted, and its reason says how many members fit.
func TestPlanGangRefuses(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 4, claims)
	pods := gangOf(e, claims, 7, nil)
	inUse := func() (text string) {
		inv := e.ledger.Inventory()
		for node := range inv.Len() {
			text += fmt.Sprint(inv.Node(node).GPUs)
		}
		return text
	}
	before := inUse()
	_, err := e.PlanGang(pods[0], lets(func(_ *corev1.Pod, node string) bool { return node != "n1" }))
	if !errors.Is(err, ErrRoom) || !strings.Contains(err.Error(), "only 6 of 7 members fit together") {
		t.Fatal(err)
	}
	if after := inUse(); after != before {
		t.Fatalf("in use is %s, and was %s", after, before)
	}
	e.freed.Add(1)
	if team, err := e.PlanGang(pods[0], anywhere); err != nil || len(team.Units) != 7 {
		t.Fatal(team, err)
	}
}

// A gang whose members are not all there waits, and so does one whose members disagree.
func TestPlanGangWaits(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 2, claims)
	pods := gangOf(e, claims, 2, map[string]string{v1alpha1.GangSizeAnnotation: "3"})
	if _, err := e.PlanGang(pods[0], anywhere); !errors.Is(err, ErrWait) || !strings.Contains(err.Error(), "2 of 3 are there") {
		t.Fatal(err)
	}
	pods[1].Annotations[v1alpha1.GangSizeAnnotation] = "2"
	e.Gangs.Set(pods[1])
	if _, err := e.PlanGang(pods[0], anywhere); !errors.Is(err, ErrWait) || !strings.Contains(err.Error(), "disagree about its size") {
		t.Fatal(err)
	}
}

// Nothing is left of gangs whose pods have gone, whether they were placed or not, and however the pods went.
func TestGangsThatWentAway(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 1, claims)
	for i := range 100 {
		notes := map[string]string{v1alpha1.GangAnnotation: fmt.Sprint("g", i)}
		pods := gangOf(e, claims, 3, notes)
		for _, pod := range pods {
			if _, err := e.Gangs.Hold(pod); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.PlanGang(pods[0], anywhere); !errors.Is(err, ErrRoom) {
			t.Fatal(err)
		}
		e.Gangs.Set(pods[0])
		if len(e.Gangs.refused) != 1 || len(e.Gangs.released) != 1 || len(e.Gangs.pods) != 3 {
			t.Fatalf("%d refused, %d released and %d pods of one gang", len(e.Gangs.refused), len(e.Gangs.released), len(e.Gangs.pods))
		}
		e.Gangs.Remove(pods[0])
		failed := pods[1].DeepCopy()
		failed.Status.Phase = corev1.PodFailed
		e.Gangs.Set(failed)
		other := pods[2].DeepCopy()
		other.UID, other.Annotations = "another", nil
		e.Gangs.Set(other)
		if n := len(e.Gangs.refused) + len(e.Gangs.released) + len(e.Gangs.lacks) + len(e.Gangs.pods); n != 0 {
			t.Fatalf("%d notes are left of gang %d", n, i)
		}
	}
}

// All members say what the gang lacks once it has stopped changing, and nobody says it again before it changes.
func TestGangsLack(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 1, claims)
	pods := gangOf(e, claims, 4, map[string]string{v1alpha1.GangSizeAnnotation: "5"})
	said := func(after time.Duration) (all []string) {
		e.Gangs.Lacking(time.Now().Add(after), func(pod *corev1.Pod, reason string) { all = append(all, pod.Name+" "+reason) })
		return all
	}
	if all := said(0); len(all) != 0 {
		t.Errorf("at once: %v", all)
	}
	all := said(lackPause)
	if len(all) != 4 {
		t.Fatal(all)
	}
	for _, one := range all {
		if !strings.HasSuffix(one, "not yet: gang team/train waits for members: 4 of 5 are there") {
			t.Error(one)
		}
	}
	e.Gangs.Set(pods[0]) // a resync
	if all := said(time.Hour); len(all) != 0 {
		t.Errorf("again: %v", all)
	}
	e.Gangs.Remove(pods[3])
	if all := said(lackPause); len(all) != 3 || !strings.Contains(all[0], "3 of 5") {
		t.Errorf("a member has gone: %v", all)
	}
	ends := pods[2].DeepCopy()
	ends.DeletionTimestamp = &metav1.Time{}
	e.Gangs.Set(ends)
	if all := said(lackPause); len(all) != 2 || !strings.Contains(all[0], "2 of 5") {
		t.Errorf("a member ends: %v", all)
	}
	gangOf(e, claims, 5, nil)
	if all := said(time.Hour); len(all) != 0 {
		t.Errorf("the gang is complete: %v", all)
	}
}

// Kubernetes' queue may name a pod after it has gone, and as it was before it ended: neither is a member that waits.
func TestHoldOfAPodThatWent(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 1, claims)
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	e.Gangs.current = corelisters.NewPodLister(known).Pods
	pods := gangOf(e, claims, 3, nil)
	ended := pods[0].DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	replaced := pods[2].DeepCopy()
	replaced.UID = "another"
	for _, pod := range []*corev1.Pod{ended, replaced} {
		if err := known.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	e.Gangs.Set(ended)
	e.Gangs.Remove(pods[1])
	e.Gangs.Set(replaced)
	for i, says := range []string{"", "the pod has gone", "the pod has gone"} {
		if _, err := e.Gangs.Hold(pods[i]); says == "" && err != nil || says != "" && (!errors.Is(err, ErrWait) || !strings.Contains(err.Error(), says)) {
			t.Errorf("member %d: %v", i, err)
		}
	}
	if left := e.Gangs.Waiting(replaced); len(left) != 1 || left[0].UID != replaced.UID {
		t.Errorf("%d members wait: %v", len(left), left)
	}
}

// The members of a gang that was refused are named once for each plan.
func TestGangsRefused(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 1, claims)
	pods := gangOf(e, claims, 3, nil)
	for round := range 2 {
		for i, pod := range pods {
			if _, err := e.PlanGang(pod, anywhere); !errors.Is(err, ErrRoom) {
				t.Fatal(err)
			}
			if id, members := e.Gangs.Refused(pod); id != "team/train" || (len(members) == 3) != (i == 0) {
				t.Errorf("round %d, member %d: %d members of %s are named", round, i, len(members), id)
			}
		}
		e.freed.Add(1)
		e.Drain()
	}
}
