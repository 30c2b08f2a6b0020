package dialect

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

func reachedRequest(name, class string, count int64) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}}
}

// A claim for GPUs of another host has them of one host, and nothing else.
func TestCheckReached(t *testing.T) {
	host := resourcev1.FullyQualifiedName(v1alpha1.Driver + "/" + v1alpha1.AttributeHost)
	either := resourcev1.DeviceRequest{Name: "a", FirstAvailable: []resourcev1.DeviceSubRequest{
		{Name: "near", DeviceClassName: v1alpha1.ClassShare, Count: 1}, {Name: "far", DeviceClassName: v1alpha1.ClassRemote, Count: 1},
	}}
	for name, c := range map[string]struct {
		requests    []resourcev1.DeviceRequest
		constraints []resourcev1.DeviceConstraint
		want        string
	}{
		"one":                {[]resourcev1.DeviceRequest{reachedRequest("a", v1alpha1.ClassRemote, 1)}, nil, ""},
		"near, else far":     {[]resourcev1.DeviceRequest{either}, nil, ""},
		"two of any":         {[]resourcev1.DeviceRequest{reachedRequest("a", v1alpha1.ClassRemote, 2)}, nil, "must be of one host"},
		"two of one":         {[]resourcev1.DeviceRequest{reachedRequest("a", v1alpha1.ClassRemote, 2)}, []resourcev1.DeviceConstraint{{MatchAttribute: &host}}, ""},
		"two by name":        {[]resourcev1.DeviceRequest{reachedRequest("a", v1alpha1.ClassRemote, 1), reachedRequest("b", v1alpha1.ClassRemote, 1)}, []resourcev1.DeviceConstraint{{Requests: []string{"a", "b"}, MatchAttribute: &host}}, ""},
		"one of two":         {[]resourcev1.DeviceRequest{reachedRequest("a", v1alpha1.ClassRemote, 1), reachedRequest("b", v1alpha1.ClassRemote, 1)}, []resourcev1.DeviceConstraint{{Requests: []string{"a"}, MatchAttribute: &host}}, "must be of one host"},
		"beside a local one": {[]resourcev1.DeviceRequest{reachedRequest("a", v1alpha1.ClassRemote, 1), reachedRequest("b", v1alpha1.ClassShare, 1)}, nil, "a claim of their own"},
		"beside a card":      {[]resourcev1.DeviceRequest{reachedRequest("a", v1alpha1.ClassRemote, 1), reachedRequest("b", v1alpha1.ClassNIC, 1)}, nil, "a claim of their own"},
		"none":               {[]resourcev1.DeviceRequest{reachedRequest("a", v1alpha1.ClassShare, 2)}, nil, ""},
	} {
		spec := &resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: c.requests, Constraints: c.constraints}}
		err := CheckReached(spec)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if valid := (Classes{}).ValidateClaim(spec); (valid == nil) != (c.want == "") {
			t.Errorf("%s: the webhook says %v, want %q", name, valid, c.want)
		}
	}
	admin := reachedRequest("a", v1alpha1.ClassRemote, 1)
	admin.Exactly.AdminAccess = new(true)
	if err := (Classes{}).ValidateClaim(&resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{admin}}}); err == nil {
		t.Error("admin access to a GPU of another host")
	}
}

// In the plain form a pod asks for such GPUs by the backend, and gets several of one host.
func TestReachedInThePlainForm(t *testing.T) {
	for count := 1; count <= 2; count++ {
		spec, err := claimSpec(Request{Count: count, Memory: v1alpha1.Bytes(4 << 30), Config: v1alpha1.ShareConfig{Backend: v1alpha1.BackendRemote}}, Inventory{}, "main")
		if err != nil {
			t.Fatal(err)
		}
		if class := spec.Devices.Requests[0].Exactly.DeviceClassName; class != v1alpha1.ClassRemote || len(spec.Devices.Constraints) != count-1 {
			t.Errorf("%d GPUs: class %s, constraints %v", count, class, spec.Devices.Constraints)
		}
		if err := CheckTranslated(&spec); err != nil {
			t.Error(err)
		}
	}
	translator := &Translator{mode: ModeClaims}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	pod.Annotations = map[string]string{v1alpha1.BackendAnnotation: "remote"}
	requests := []Request{{Count: 1, SameNUMA: true}}
	if err := translator.chooseBackend(pod, requests); err == nil {
		t.Error("GPUs on one NUMA node of another host")
	}
	requests[0].SameNUMA = false
	if err := translator.chooseBackend(pod, requests); err != nil || requests[0].Config.Backend != v1alpha1.BackendRemote {
		t.Errorf("%v, %+v", err, requests[0])
	}
}
