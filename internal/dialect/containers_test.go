package dialect

import (
	"errors"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

func readSpec(t testing.TB, devices string) *resourcev1.ResourceClaimSpec {
	t.Helper()
	var spec resourcev1.ResourceClaimSpec
	if err := yaml.UnmarshalStrict([]byte("devices: {"+devices+"}"), &spec); err != nil {
		t.Fatal(err)
	}
	return &spec
}

func TestCheckContainers(t *testing.T) {
	specs := map[string]*resourcev1.ResourceClaimSpec{
		"share": readSpec(t, "requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev}}]"),
		"whole": readSpec(t, "requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}]"),
		"mixed": readSpec(t, "requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}, {name: look, exactly: {deviceClassName: gpu.divvy.dev, adminAccess: true}}]"),
		"nic":   readSpec(t, "requests: [{name: nic, exactly: {deviceClassName: nic.example.com}}]"),
	}
	for _, c := range []struct{ containers, refusal string }{
		{`[{name: a, resources: {claims: [{name: share}]}}, {name: b, resources: {claims: [{name: whole}]}}]`, ""},
		{`[{name: a, resources: {claims: [{name: share}, {name: nic}, {name: absent}]}}]`, ""},
		{`[{name: a, resources: {claims: [{name: share, request: x}, {name: share, request: y}]}}]`, ""},
		{`[{name: a}, {name: b, resources: {claims: [{name: share}, {name: whole}]}}]`, `container "b" uses two claims for GPUs, "share" and "whole"`},
		{`[{name: a, securityContext: {privileged: true}, resources: {claims: [{name: share}]}}]`, `container "a" is privileged`},
		{`[{name: a, securityContext: {privileged: true}, resources: {claims: [{name: whole}, {name: nic}]}}]`, `container "a" is privileged and would see every GPU of its node`},
		{`[{name: a, securityContext: {privileged: true}, resources: {claims: [{name: mixed, request: gpu}]}}]`, `container "a" is privileged`},
		{`[{name: a, securityContext: {privileged: true}, resources: {claims: [{name: mixed, request: look}]}}, {name: b, resources: {claims: [{name: mixed, request: gpu}]}}]`, ""},
		{`[{name: a, securityContext: {privileged: true}, resources: {claims: [{name: nic}]}}]`, ""},
		{`[{name: a, securityContext: {privileged: false}, resources: {claims: [{name: share}]}}]`, ""},
	} {
		pod := readPod(t, "spec: {containers: "+c.containers+"}")
		for _, init := range []bool{false, true} {
			if init {
				pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers, nil
			}
			err := Classes{}.CheckContainers(pod, specs, "")
			switch {
			case c.refusal == "" && err != nil:
				t.Errorf("%s: %v", c.containers, err)
			case c.refusal != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.refusal)):
				t.Errorf("%s: %v, want %q", c.containers, err, c.refusal)
			}
		}
	}
}
