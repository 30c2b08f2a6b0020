package dialect

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

// Only requests for admin access to Divvy's devices are made to take nothing, and only where they say nothing themselves.
func TestOpenPatch(t *testing.T) {
	var spec resourcev1.ResourceClaimSpec
	if err := yaml.UnmarshalStrict([]byte(`devices: {requests: [
  {name: share, exactly: {deviceClassName: share.divvy.dev}},
  {name: no, exactly: {deviceClassName: gpu.divvy.dev, adminAccess: false}},
  {name: all, exactly: {deviceClassName: gpu.divvy.dev, adminAccess: true, allocationMode: All}},
  {name: said, exactly: {deviceClassName: gpu.divvy.dev, adminAccess: true, capacity: {requests: {memory: 0}}}},
  {name: theirs, exactly: {deviceClassName: gpu.nvidia.com, adminAccess: true}},
  {name: either, firstAvailable: [{name: a, deviceClassName: share.divvy.dev}]},
  {name: one, exactly: {deviceClassName: share.divvy.dev, adminAccess: true}}]}`), &spec); err != nil {
		t.Fatal(err)
	}
	const nothing = `{"requests":{"cores":"0","memory":"0","slots":"0"}}`
	want := `[{"op":"add","path":"/spec/spec/devices/requests/2/exactly/capacity","value":` + nothing + `},` +
		`{"op":"add","path":"/spec/spec/devices/requests/6/exactly/capacity","value":` + nothing + `}]`
	if got, err := json.Marshal(Classes{}.OpenPatch(&spec, "spec", "spec")); err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

// The API server sends exactly what is changed.
func TestAdminConditions(t *testing.T) {
	claims, templates := compile(t, Classes{}.AdminClaimCondition()), compile(t, Classes{}.AdminTemplateCondition())
	for requests, want := range map[string]bool{
		`{name: r, exactly: {deviceClassName: gpu.divvy.dev, adminAccess: true}}`:                                             true,
		`{name: r, exactly: {deviceClassName: share.divvy.dev, adminAccess: true}}`:                                           true,
		`{name: q, exactly: {deviceClassName: nic}}, {name: r, exactly: {deviceClassName: gpu.divvy.dev, adminAccess: true}}`: true,
		`{name: r, exactly: {deviceClassName: gpu.divvy.dev, adminAccess: false}}`:                                            false,
		`{name: r, exactly: {deviceClassName: gpu.divvy.dev}}`:                                                                false,
		`{name: r, exactly: {deviceClassName: gpu.nvidia.com, adminAccess: true}}`:                                            false,
		`{name: r, exactly: {deviceClassName: gpu.divvy.dev, adminAccess: true, capacity: {requests: {memory: 0}}}}`:          false,
		`{name: r, firstAvailable: [{name: a, deviceClassName: gpu.divvy.dev}]}`:                                              false,
		``: false,
	} {
		var spec resourcev1.ResourceClaimSpec
		if err := yaml.UnmarshalStrict([]byte("devices: {requests: ["+requests+"]}"), &spec); err != nil {
			t.Fatal(err)
		}
		if got := len(Classes{}.OpenPatch(&spec)) > 0; got != want {
			t.Errorf("%s is changed: %v", requests, got)
		}
		claim, template := &resourcev1.ResourceClaim{Spec: spec}, &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec}}
		if got := matches(t, claims, claim, resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"), "resourceclaims"); got != want {
			t.Errorf("a claim with %s is sent: %v", requests, got)
		}
		if got := matches(t, templates, template, resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate"), "resourceclaimtemplates"); got != want {
			t.Errorf("a template with %s is sent: %v", requests, got)
		}
	}
}

// A container with admin access may be privileged: nothing of a share is there that would not hold.
func TestAdminAccessMayBePrivileged(t *testing.T) {
	for request, refused := range map[string]bool{`{deviceClassName: share.divvy.dev, adminAccess: true}`: false, `{deviceClassName: share.divvy.dev}`: true} {
		var spec resourcev1.ResourceClaimSpec
		if err := yaml.UnmarshalStrict([]byte("devices: {requests: [{name: r, exactly: "+request+"}]}"), &spec); err != nil {
			t.Fatal(err)
		}
		var pod corev1.Pod
		if err := yaml.UnmarshalStrict([]byte(`spec: {containers: [{name: main, securityContext: {privileged: true}, resources: {claims: [{name: gpu}]}}]}`), &pod); err != nil {
			t.Fatal(err)
		}
		if err := (Classes{}).CheckContainers(&pod, map[string]*resourcev1.ResourceClaimSpec{"gpu": &spec}, ""); (err != nil) != refused {
			t.Errorf("%s: %v", request, err)
		}
	}
}
