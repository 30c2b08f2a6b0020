package webhook

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

// swapping has a node publish memory for swap shares.
const swapping = `{metadata: {name: swapping}, spec: {driver: divvy.dev, nodeName: n2, pool: {name: n2}, devices: [{name: gpu-1-shared, allowMultipleAllocations: true,
	capacity: {memory: {value: 8Gi}, swapMemory: {value: 32Gi, requestPolicy: {default: 0, validRange: {min: 0, max: 8Gi}}}}}]}}`

// A pod is refused with the sum where its limit of memory cannot hold what its GPUs may give back, whoever wrote the claim.
// Where nothing swaps, and of containers without a limit, no claim is read.
func TestValidatePodLooksAtHostMemory(t *testing.T) {
	var spec resourcev1.ResourceClaimSpec
	if err := yaml.UnmarshalStrict([]byte(`devices: {requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, count: 1, capacity: {requests: {memory: 1Gi, swapMemory: 8Gi}}}}],
		config: [{opaque: {driver: divvy.dev, parameters: {apiVersion: divvy.dev/v1alpha1, kind: ShareConfig, swap: true}}}]}`), &spec); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "{plain: {}}", &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "big"}, Spec: spec})
	validate := func(resources string, reads int, refusal string) {
		t.Helper()
		_, err := w.judge.validatePod(t.Context(), podRequest(t, "{spec: {containers: [{name: main, resources: {claims: [{name: gpu}]"+resources+"}}], resourceClaims: [{name: gpu, resourceClaimName: big}]}}"))
		if n := w.read(); n != reads {
			t.Errorf("%s: %d claims are read", resources, n)
		}
		if refusal == "" && err != nil || refusal != "" && (!errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), refusal)) {
			t.Errorf("%s: %v, want %q", resources, err, refusal)
		}
	}
	validate(", limits: {memory: 4Gi}", 0, "")
	w.know(t, w.slices, &resourcev1.ResourceSlice{}, swapping)
	validate("", 0, "")
	validate(", limits: {memory: 9Gi}, requests: {memory: 1Gi}", 1, "")
	validate(", limits: {memory: 4Gi}, requests: {memory: 1Gi}", 1, "may have 7Gi moved from its GPUs into its own memory and requests 1Gi for itself, and its limit of memory is 4Gi: set the limit to 8Gi or more")
}

// patched is the pod of a request after a translation of its one container.
func patched(t *testing.T, raw []byte, patch dialect.Patch) []byte {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		t.Fatal(err)
	}
	for _, step := range patch {
		switch value := step.Value.(type) {
		case []corev1.PodResourceClaim:
			pod.Spec.ResourceClaims = value
		case []corev1.ResourceClaim:
			pod.Spec.Containers[0].Resources.Claims = value
		case map[string]string:
			pod.Annotations = value
		}
	}
	text, err := json.Marshal(&pod)
	if err != nil || pod.Annotations == nil || len(pod.Spec.Containers[0].Resources.Claims) != 1 {
		t.Fatalf("%s, %v", text, err)
	}
	return text
}

// A pod that is translated is judged by what it carries, and nothing is read.
func TestTranslatedPodsAndHostMemory(t *testing.T) {
	w := newWorld(t, "{hami: {deviceMemoryScaling: 2}}")
	w.know(t, w.slices, &resourcev1.ResourceSlice{}, swapping)
	for limit, refusal := range map[string]string{"8Gi": "", "4Gi": "may have 7Gi moved from its GPUs into its own memory"} {
		request := podRequest(t, `{metadata: {generateName: web-}, spec: {containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpumem: 8192, memory: `+limit+`}}}]}}`)
		made, err := w.judge.mutatePod(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		request.Object = runtime.RawExtension{Raw: patched(t, request.Object.Raw, made.patch)}
		_, err = w.judge.validatePod(t.Context(), request)
		if refusal == "" && err != nil || refusal != "" && (!errors.Is(err, dialect.ErrRefused) || !strings.Contains(err.Error(), refusal)) {
			t.Errorf("limit %s: %v, want %q", limit, err, refusal)
		}
		if n := w.read(); n != 0 {
			t.Errorf("%d claims are read", n)
		}
	}
}
