package program

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// share is what a claim asks: so many GiB and cores of one GPU, as the webhook writes it.
func share(gibibytes, cores int) resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
		Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: v1alpha1.ClassShare, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
			Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
				v1alpha1.CapacityMemory: *resource.NewQuantity(int64(gibibytes)<<30, resource.BinarySI),
				v1alpha1.CapacityCores:  *resource.NewQuantity(int64(cores), resource.DecimalSI),
				v1alpha1.CapacitySlots:  *resource.NewQuantity(1, resource.DecimalSI),
			}},
		},
	}}}}
}

// describing is a pod with a claim that the scheduler is to make.
func describing(t *testing.T, name string, spec resourcev1.ResourceClaimSpec) *corev1.Pod {
	t.Helper()
	var random [v1alpha1.ClaimNameBytes]byte
	if _, err := rand.Read(random[:]); err != nil {
		t.Fatal(err)
	}
	claim := v1alpha1.ClaimName(random)
	text, err := json.Marshal(map[string]resourcev1.ResourceClaimSpec{claim: spec})
	if err != nil {
		t.Fatal(err)
	}
	p := pod(name)
	p.Annotations = map[string]string{v1alpha1.ClaimsAnnotation: string(text)}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	return p
}

// used is what claims have of devices, by pool and device.
type used map[string]map[resourcev1.QualifiedName]int64

// check judges what the API server has: no device has given more than it has, every bound pod has its devices on its node,
// and no claim has devices for nobody.
func (f *fleet) check() used {
	f.t.Helper()
	f.tidied()
	ctx := f.t.Context()
	pods, err := f.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	claims, err := f.client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	slicesThere, err := f.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	sums := used{}
	allocated := map[string]*resourcev1.ResourceClaim{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Status.Allocation == nil {
			continue
		}
		allocated[claim.Name] = claim
		for _, r := range claim.Status.Allocation.Devices.Results {
			key := r.Pool + "/" + r.Device
			if sums[key] == nil {
				sums[key] = map[resourcev1.QualifiedName]int64{}
			}
			for name, amount := range r.ConsumedCapacity {
				sums[key][name] += amount.Value()
			}
		}
	}
	for i := range pods.Items {
		f.checkPod(&pods.Items[i], allocated)
	}
	for i := range slicesThere.Items {
		for _, device := range slicesThere.Items[i].Spec.Devices {
			for name, capacity := range device.Capacity {
				if taken := sums[slicesThere.Items[i].Spec.Pool.Name+"/"+device.Name][name]; taken > capacity.Value.Value() {
					f.t.Errorf("device %s has given %d of %d %s", device.Name, taken, capacity.Value.Value(), name)
				}
			}
		}
	}
	return sums
}

// tidied waits until no claim has devices for nobody: the scheduler takes them a moment after their pod is gone.
func (f *fleet) tidied() {
	f.t.Helper()
	f.until("no claim has devices for nobody", func(ctx context.Context) (bool, string) {
		pods, err := f.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		claims, err := f.client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for i := range claims.Items {
			claim := &claims.Items[i]
			reserved := claim.Status.ReservedFor
			if claim.Status.Allocation != nil && (len(reserved) == 0 || !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.UID == reserved[0].UID })) {
				return false, fmt.Sprintf("claim %s, for %v", claim.Name, reserved)
			}
		}
		return true, ""
	})
}

func (f *fleet) checkPod(p *corev1.Pod, allocated map[string]*resourcev1.ResourceClaim) {
	f.t.Helper()
	names := map[string]string{}
	for _, status := range p.Status.ResourceClaimStatuses {
		if status.ResourceClaimName != nil {
			names[status.Name] = *status.ResourceClaimName
		}
	}
	for _, reference := range p.Spec.ResourceClaims {
		name := names[reference.Name]
		if reference.ResourceClaimName != nil {
			name = *reference.ResourceClaimName
		}
		claim := allocated[name]
		switch {
		case p.Spec.NodeName == "" && claim != nil:
			f.t.Errorf("pod %s has no node and claim %s has devices", p.Name, name)
		case p.Spec.NodeName == "":
		case claim == nil:
			f.t.Errorf("pod %s is bound without devices", p.Name)
		case claim.Status.Allocation.Devices.Results[0].Pool != p.Spec.NodeName || claim.Status.ReservedFor[0].UID != p.UID:
			f.t.Errorf("pod %s is on %s, and its claim has %+v", p.Name, p.Spec.NodeName, claim.Status)
		}
	}
}

// waiting waits until so many pods say that they wait, each with one reason, and returns the reasons.
func (f *fleet) waiting(n int) (reasons []string) {
	f.t.Helper()
	f.until(fmt.Sprintf("%d pods say why they wait", n), func(ctx context.Context) (bool, string) {
		reasons = nil
		list, err := f.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for i := range list.Items {
			for _, c := range list.Items[i].Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
					reasons = append(reasons, c.Message)
				}
			}
		}
		return len(reasons) == n, fmt.Sprint(len(reasons))
	})
	return reasons
}

// A pod whose claim the scheduler makes, and one whose claim the controller manager makes from a template.
func TestOneClaim(t *testing.T) {
	f := newFleet(t, 2, 2)
	if err := f.StartManager(t.Context(), "resourceclaim-controller"); err != nil {
		t.Fatal(err)
	}
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	made := f.create(describing(t, "made", share(8, 10)))
	f.bound(1)
	claim, err := f.client.ResourceV1().ResourceClaims(namespace).Get(t.Context(), *made.Spec.ResourceClaims[0].ResourceClaimName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) || !metav1.IsControlledBy(claim, made) {
		t.Errorf("the claim has finalizers %v and owners %v", claim.Finalizers, claim.OwnerReferences)
	}
	template := &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "share", Namespace: namespace}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: share(8, 10)},
	}
	if _, err := f.client.ResourceV1().ResourceClaimTemplates(namespace).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	from := pod("template")
	from.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template.Name}}
	f.create(from)
	f.bound(2)
	if sums := f.check(); len(sums) != 1 {
		t.Errorf("two small shares are on %d GPUs: %v", len(sums), sums)
	}
}

// A claim that somebody made in a pod's name, and that asks for more than the pod describes, is not used. The pod is bound
// once it is deleted.
func TestClaimOfAnotherSpec(t *testing.T) {
	f := newFleet(t, 1, 1)
	made := f.create(describing(t, "pod", share(8, 10)))
	name := *made.Spec.ResourceClaims[0].ResourceClaimName
	forged := &resourcev1.ResourceClaim{Spec: share(70, 10)}
	forged.Namespace, forged.Name = namespace, name
	forged.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(made, corev1.SchemeGroupVersion.WithKind("Pod"))}
	claims := f.client.ResourceV1().ResourceClaims(namespace)
	if _, err := claims.Create(t.Context(), forged, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	f.says("pod", "claim "+name+" is there and asks for something else than its pod describes")
	if err := claims.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.bound(1)
	for device, sums := range f.check() {
		if sums[v1alpha1.CapacityMemory] != 8<<30 {
			t.Errorf("%s gave %v", device, sums)
		}
	}
}

// Pods fill all GPUs exactly, those that are left say why, and get the places of pods that end.
func TestFill(t *testing.T) {
	const nodes, gpus, each, left = 5, 4, 10, 7
	f := newFleet(t, nodes, gpus)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	for i := range nodes*gpus*each + left {
		f.create(describing(t, fmt.Sprintf("pod-%03d", i), share(8, 10)))
	}
	f.bound(nodes * gpus * each)
	for device, sums := range f.check() {
		if sums[v1alpha1.CapacityMemory] != gpuMemory || sums[v1alpha1.CapacityCores] != 100 {
			t.Errorf("%s gave %v", device, sums)
		}
	}
	for _, reason := range f.waiting(left) {
		if !strings.Contains(reason, "no room") || strings.Contains(reason, "preemption") {
			t.Errorf("a pod waits because %q", reason)
		}
	}
	all, err := f.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ended, now := 0, int64(0)
	for i := range all.Items {
		if all.Items[i].Spec.NodeName != "" && ended < left {
			ended++
			if err := f.client.CoreV1().Pods(namespace).Delete(t.Context(), all.Items[i].Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.bound(nodes * gpus * each)
	f.check()
}

// Of pods that each ask for something else, the one that fits gets the room that has come, however many lines there are
// before its own.
func TestManyShapes(t *testing.T) {
	f := newFleet(t, 1, 1)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	f.create(describing(t, "first", share(44, 10)))
	f.bound(1)
	const lines = 36
	for i := range lines {
		f.create(describing(t, fmt.Sprintf("large-%02d", i), share(45+i, 10)))
	}
	f.waiting(lines)
	f.create(describing(t, "fits", share(44, 10)))
	f.waiting(lines + 1)
	f.create(describing(t, "second", share(36, 10)))
	f.bound(2)
	now := int64(0)
	if err := f.client.CoreV1().Pods(namespace).Delete(t.Context(), "first", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	f.bound(2)
	f.check()
}

// A scheduler that is killed between two writes leaves nothing that the next one does not finish.
func TestKilled(t *testing.T) {
	for _, step := range []string{scheduler.StepMade, scheduler.StepAllocated, scheduler.StepBound} {
		t.Run(step, func(t *testing.T) {
			f := newFleet(t, 2, 2)
			marks := t.TempDir()
			first := f.run("first", crashing, []string{"DIVVY_CRASH_AFTER=" + step, "DIVVY_CRASH_MARKS=" + marks}, single)
			for i := range 10 {
				f.create(describing(t, fmt.Sprintf("pod-%d", i), share(16, 20)))
			}
			f.until("the first scheduler is dead", func(context.Context) (bool, string) { return first.Alive() != nil, "it lives" })
			if found, err := filepath.Glob(filepath.Join(marks, "*"+step)); err != nil || len(found) != 1 {
				t.Fatalf("it died of something else: %v, %v", found, err)
			}
			f.run("second", shipped, nil, single)
			f.bound(10)
			f.check()
		})
	}
}

// Of two schedulers one binds; the other takes over.
func TestTwoLeaders(t *testing.T) {
	f := newFleet(t, 2, 2)
	both := []*plane.Process{
		f.run("first", crashing, []string{"DIVVY_CRASH_AFTER=" + scheduler.StepAllocated, "DIVVY_CRASH_MARKS=" + t.TempDir()}, elected...),
		f.run("second", crashing, nil, elected...),
	}
	for i := range 10 {
		f.create(describing(t, fmt.Sprintf("pod-%d", i), share(16, 20)))
	}
	f.bound(10)
	f.check()
	if both[1].Alive() != nil {
		t.Error("the one that was not told to die is dead")
	}
}
