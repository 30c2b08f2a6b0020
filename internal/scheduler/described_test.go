package scheduler

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// describing is a pod that describes a claim for a share of 8 GiB, and what it describes.
func describing(t *testing.T) (*corev1.Pod, string, resourcev1.ResourceClaimSpec) {
	t.Helper()
	name := v1alpha1.ClaimName([v1alpha1.ClaimNameBytes]byte{1})
	spec := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: v1alpha1.ClassShare, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
			Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
				v1alpha1.CapacityMemory: resource.MustParse("8Gi"), v1alpha1.CapacitySlots: resource.MustParse("1"),
			}},
		}}},
		Config: []resourcev1.DeviceClaimConfiguration{{Requests: []string{"gpu"}, DeviceConfiguration: resourcev1.DeviceConfiguration{
			Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: v1alpha1.Driver, Parameters: configOf(t, 200)},
		}}},
	}}
	text, err := json.Marshal(map[string]resourcev1.ResourceClaimSpec{name: spec})
	if err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = "team", "p", "pod-p"
	p.Annotations = map[string]string{v1alpha1.ClaimsAnnotation: string(text)}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
	return p, name, spec
}

func configOf(t *testing.T, weight int) runtime.RawExtension {
	t.Helper()
	text, err := v1alpha1.EncodeShareConfig(v1alpha1.ShareConfig{Weight: weight})
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: text}
}

// A claim that the pod owns and that asks for something else than the pod describes is not used, neither when the pod is
// read nor when its claims are made; one that is only written otherwise is.
func TestClaimIsAsDescribed(t *testing.T) {
	for what, test := range map[string]struct {
		change func(spec *resourcev1.ResourceClaimSpec)
		other  bool
	}{
		"as described": {func(*resourcev1.ResourceClaimSpec) {}, false},
		"written otherwise": {func(spec *resourcev1.ResourceClaimSpec) {
			spec.Devices.Requests[0].Exactly.Capacity.Requests[v1alpha1.CapacityMemory] = *resource.NewQuantity(8<<30, resource.DecimalSI)
			raw := &spec.Devices.Config[0].Opaque.Parameters.Raw
			*raw = []byte(strings.ReplaceAll(string(*raw), ",", " ,\n"))
			spec.Devices.Constraints = []resourcev1.DeviceConstraint{}
		}, false},
		"more memory": {func(spec *resourcev1.ResourceClaimSpec) {
			spec.Devices.Requests[0].Exactly.Capacity.Requests[v1alpha1.CapacityMemory] = resource.MustParse("9Gi")
		}, true},
		"less memory": {func(spec *resourcev1.ResourceClaimSpec) {
			spec.Devices.Requests[0].Exactly.Capacity.Requests[v1alpha1.CapacityMemory] = resource.MustParse("7Gi")
		}, true},
		"another class":  {func(spec *resourcev1.ResourceClaimSpec) { spec.Devices.Requests[0].Exactly.DeviceClassName = "other" }, true},
		"another weight": {func(spec *resourcev1.ResourceClaimSpec) { spec.Devices.Config[0].Opaque.Parameters = configOf(t, 300) }, true},
		"no weight":      {func(spec *resourcev1.ResourceClaimSpec) { spec.Devices.Config = nil }, true},
	} {
		t.Run(what, func(t *testing.T) {
			pod, name, spec := describing(t)
			there := &resourcev1.ResourceClaim{Spec: *spec.DeepCopy()}
			there.Namespace, there.Name, there.UID = "team", name, "claim"
			there.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
			test.change(&there.Spec)
			judge := func(step string, err error) {
				t.Helper()
				if test.other != errors.Is(err, ErrWait) || test.other && !strings.Contains(err.Error(), "asks for something else than its pod describes") || !test.other && err != nil {
					t.Errorf("%s: %v", step, err)
				}
			}
			e := engineOf(t, 1, claimsByName{"team/" + name: there})
			judge("hold", e.Ready(pod))
			_, _, err := e.claimsOf(pod)
			judge("read", err)
			w := &Writer{Client: fake.NewClientset(there)}
			_, err = w.make(t.Context(), pod, &demand.Claim{Namespace: "team", Name: name, Spec: &spec})
			judge("make", err)
		})
	}
}
