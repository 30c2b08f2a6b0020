package web

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// BenchmarkMemory tells what the page keeps of a cluster of 1,000 nodes with 8 GPUs, 10,000 pods with a share each and 10,000
// others, while two readers look, in MiB of live heap: with the fake client's own copy of the cluster taken off.
func BenchmarkMemory(b *testing.B) {
	const nodes, gpus, shares = 1000, 8, 10000
	var objects []kruntime.Object
	for n := range nodes {
		objects = append(objects, wideNode(n, gpus)...)
	}
	for i := range shares {
		objects = append(objects, podWithShare(i, i%nodes, i%gpus)...)
	}
	for b.Loop() {
		w := newWorld(b, objects...)
		w.user("all", "root", "nodes", "pods")
		w.user("nodes", "ops", "nodes")
		before := live()
		for _, token := range []string{"all", "nodes"} {
			for _, path := range []string{"/", "/cluster.json", "/node/node-0001"} {
				if a := w.get(path, token); a.Code != http.StatusOK {
					b.Fatalf("%s: %d %.200s", path, a.Code, a.Body)
				}
			}
		}
		looked := live()
		w.passes(idle)
		w.pages.caches.rest(false)
		b.ReportMetric(looked-before, "MiB-looked-at")
		b.ReportMetric(live()-before, "MiB-after")
		runtime.KeepAlive(objects)
	}
}

// live is the heap that is in use, in MiB.
func live() float64 {
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

func wideNode(n, gpus int) []kruntime.Object {
	name := fmt.Sprintf("node-%04d", n)
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: v1alpha1.Driver, NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
	}}
	for g := range gpus {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d-shared", g),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				v1alpha1.AttributeIndex: {IntValue: new(int64(g))}, v1alpha1.AttributeUUID: {StringValue: new(fmt.Sprintf("GPU-%04d-%d", n, g))},
				v1alpha1.AttributeModel: {StringValue: new("NVIDIA H100 80GB HBM3")},
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{v1alpha1.CapacityMemory: {Value: resource.MustParse("80Gi")}, v1alpha1.CapacityCores: {Value: resource.MustParse("100")}},
		})
	}
	return []kruntime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}}, slice}
}

// podWithShare is a pod, its claim, and a pod without GPUs.
func podWithShare(i, node, gpu int) []kruntime.Object {
	namespace, name, on := fmt.Sprintf("team-%d", i%40), fmt.Sprintf("train-%d", i), fmt.Sprintf("node-%04d", node)
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u-0", CreationTimestamp: metav1.NewTime(noon), Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{Name: "main", Image: "registry.example/train:1", Command: []string{"python", "train.py"}}}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady}, {Type: corev1.PodScheduled}}},
		}
	}
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-gpu", CreationTimestamp: metav1.NewTime(noon.Add(time.Minute))},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: v1alpha1.ClassShare, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}}},
		Status: resourcev1.ResourceClaimStatus{
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: "u-0"}},
			Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: "gpu", Driver: v1alpha1.Driver, Pool: on, Device: fmt.Sprintf("gpu-%d-shared", gpu), ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{
					v1alpha1.CapacityMemory: resource.MustParse("20Gi"), v1alpha1.CapacityCores: resource.MustParse("20")},
			}}}},
		},
	}
	return []kruntime.Object{pod(name), claim, pod("other-" + name)}
}
