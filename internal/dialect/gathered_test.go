package dialect

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// wide is a claim of 32 requests with 8 ways each, of so many classes.
func wide(classes int, of func(i int) string) *resourcev1.ResourceClaimSpec {
	spec := &resourcev1.ResourceClaimSpec{}
	for r := range 32 {
		request := resourcev1.DeviceRequest{Name: fmt.Sprintf("r%d", r)}
		for w := range 8 {
			request.FirstAvailable = append(request.FirstAvailable, resourcev1.DeviceSubRequest{
				Name: fmt.Sprintf("w%d", w), DeviceClassName: of((8*r + w) % classes), AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
				Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
					v1alpha1.CapacityMemory: *resource.NewQuantity(int64(w+1)<<30, resource.BinarySI),
				}},
			})
		}
		spec.Devices.Requests = append(spec.Devices.Requests, request)
	}
	return spec
}

// Little is kept of a claim, however much it names, and it never counts less than it can come to.
func TestWideClaimsAreGathered(t *testing.T) {
	sizes := SizesOf(published(t, `[{spec: {driver: divvy.dev, pool: {name: n}, devices: [{name: g, allowMultipleAllocations: true, capacity: {memory: {value: 80Gi}}}]}}]`))
	own := CountedOf(wide(1, func(int) string { return v1alpha1.ClassShare }), nil)
	if use, _ := own.Use(sizes); len(own.asked) != 1 || use.GPUs != 32 || use.Memory != 32*8<<30 || use.Uncounted != 0 {
		t.Errorf("32 shares of at most 8 GiB take %+v, kept as %d requests", use, len(own.asked))
	}
	few := CountedOf(wide(4, func(i int) string { return fmt.Sprintf("class-%d", i) }), nil)
	if use, _ := few.Use(sizes); len(few.asked) != 4 || use != (Use{}) {
		t.Errorf("4 classes that select none of our devices take %+v, kept as %d requests", use, len(few.asked))
	}
	many := CountedOf(wide(256, func(i int) string { return fmt.Sprintf("class-%d", i) }), nil)
	if use, _ := many.Use(sizes); len(many.asked) != 1 || use.Uncounted != 1 {
		t.Errorf("256 classes take %+v, kept as %d requests", use, len(many.asked))
	}
}

// A pod cannot have Kubernetes make thousands of claims, though it may name any number of containers.
func TestPodOfManyContainersIsRefused(t *testing.T) {
	translator, err := NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: {plain: {}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	for i := range MostContainers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("c%d", i), Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{v1alpha1.ResourceMemory: resource.MustParse("1Mi")}},
		})
	}
	if made, err := translator.Translate(pod, Inventory{}); err != nil || len(made.Claims) != MostContainers {
		t.Errorf("%d containers get %d claims: %v", MostContainers, len(made.Claims), err)
	}
	pod.Spec.Containers = append(pod.Spec.Containers, pod.Spec.Containers[0])
	if _, err := translator.Translate(pod, Inventory{}); !errors.Is(err, ErrRefused) {
		t.Errorf("one more is not refused: %v", err)
	}
}
