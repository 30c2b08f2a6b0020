package dialect

import (
	"errors"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

const configHead = `{apiVersion: divvy.dev/v1alpha1, kind: ShareConfig`

func TestValidateClaim(t *testing.T) {
	share := func(capacity string) string {
		return `requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {` + capacity + `}}}}]`
	}
	config := func(requests, body string) string {
		return `{requests: [` + requests + `], opaque: {driver: divvy.dev, parameters: ` + body + `}}`
	}
	for _, c := range []struct{ devices, fault string }{ // no fault: valid
		{share("memory: 4Gi"), ""},
		{share("memory: 4Gi, cores: 30, slots: 1") + `, config: [` + config("gpu", configHead+", policy: fixed}") + `]`, ""},
		{share("cores: 30") + `, config: [` + config("", configHead+", policy: burst, maxCores: 50}") + `]`, ""},
		{share("") + `, config: [` + config("", configHead+", policy: weighted, weight: 3, class: offline}") + `]`, ""},
		{`requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}]`, ""},
		{`requests: [{name: nic, exactly: {deviceClassName: nic.example.com, capacity: {requests: {memory: -1}}}}]`, ""},
		{`requests: [{name: nic, exactly: {deviceClassName: nic.example.com}}], config: [{opaque: {driver: nic.example.com, parameters: {policy: fast}}}]`, ""},
		{`requests: [{name: nic, exactly: {deviceClassName: nic.example.com}}, {name: gpu, exactly: {deviceClassName: share.divvy.dev}}], config: [` + config("", configHead+"}") + `]`, ""},
		{`requests: [{name: all, exactly: {deviceClassName: gpu.divvy.dev, adminAccess: true, allocationMode: All}}]`, ""},
		{`requests: [{name: all, exactly: {deviceClassName: share.divvy.dev, adminAccess: true, capacity: {requests: {memory: 0, cores: 0, slots: 0}}}}]`, ""},
		{`requests: [{name: all, exactly: {deviceClassName: share.divvy.dev, adminAccess: true}}, {name: gpu, exactly: {deviceClassName: share.divvy.dev}}], config: [` + config("", configHead+"}") + `]`, ""},
		{`requests: [{name: all, exactly: {deviceClassName: share.divvy.dev, adminAccess: true, capacity: {requests: {memory: 4Gi, cores: 0, slots: 1}}}}]`,
			"request all: admin access takes nothing of a GPU and has no limit: leave out memory 4Gi and slots 1"},
		{`requests: [{name: all, exactly: {deviceClassName: share.divvy.dev, adminAccess: true}}], config: [` + config("all", configHead+"}") + `]`,
			"configuration 0 is for shares, but request all is for admin access"},
		{`requests: [{name: all, exactly: {deviceClassName: mig.divvy.dev, adminAccess: true}}]`, "admin access is to GPUs and not to MIG instances"},
		{share("memory: 0"), "memory 0: give a positive multiple of 1Mi"},
		{share("memory: -4Gi"), "memory -4Gi"},
		{share("memory: 1.5"), "memory 1500m"},
		{share("memory: 1000"), "memory 1k"},
		{share("cores: 101"), "cores 101"},
		{share("cores: -1"), "cores -1"},
		{share("cores: 500m"), "cores 500m"},
		{share("slots: 2"), "slots 2: a share takes exactly 1"},
		{share("slots: 1e10000000"), "a share takes exactly 1"},
		{share("memory: 1e10000000"), "give a positive multiple of 1Mi"},
		{share("cores: -1e10000000"), "give a whole number"},
		{share("gpumem: 2"), `no "gpumem"`},
		{`requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev, capacity: {requests: {memory: 4Gi}}}}]`, "must not set amounts"},
		{`requests: [{name: gpu, exactly: {deviceClassName: mig.divvy.dev}}]`, ""},
		{`requests: [{name: gpu, exactly: {deviceClassName: mig.divvy.dev, capacity: {requests: {memory: 8Gi, cores: 20}}}}]`, ""},
		{`requests: [{name: gpu, exactly: {deviceClassName: mig.divvy.dev, capacity: {requests: {memory: 0}}}}]`, "memory 0: give a positive"},
		{`requests: [{name: gpu, exactly: {deviceClassName: mig.divvy.dev, capacity: {requests: {cores: 101}}}}]`, "cores 101: give a positive"},
		{`requests: [{name: gpu, exactly: {deviceClassName: mig.divvy.dev, capacity: {requests: {slots: 1}}}}]`, `has memory and cores, and no "slots"`},
		{`requests: [{name: gpu, exactly: {deviceClassName: mig.divvy.dev, count: 2}}]`, "2 MIG instances: ask for one in each request"},
		{`requests: [{name: gpu, exactly: {deviceClassName: mig.divvy.dev}}], config: [` + config("gpu", configHead+", policy: fixed}") + `]`, "is for shares, but request gpu is of class mig.divvy.dev"},
		{share("") + `, config: [` + config("", configHead+", policy: fixed}") + `]`, "policy fixed needs cores"},
		{share("cores: 30") + `, config: [` + config("", configHead+", policy: fast}") + `]`, `policy "fast"`},
		{share("cores: 30") + `, config: [` + config("", configHead+", polcy: fixed}") + `]`, `unknown field "polcy"`},
		{share("cores: 30") + `, config: [` + config("", configHead+", Policy: fixed}") + `]`, `unknown field "Policy"`},
		{share("cores: 30") + `, config: [` + config("", `{apiVersion: divvy.dev/v2, kind: ShareConfig}`) + `]`, `it is "divvy.dev/v2"`},
		{share("cores: 30") + `, config: [` + config("", `{policy: fixed}`) + `]`, `it is "" ""`},
		{share("cores: 30") + `, config: [` + config("", `[]`) + `]`, "read the share's configuration"},
		{share("cores: 30") + `, config: [` + config("gpu", configHead+", policy: fixed}") + `, ` + config("", configHead+", policy: burst}") + `]`, "request gpu has two configurations"},
		{`requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}], config: [` + config("", configHead+"}") + `]`, "is for shares"},
		{`requests: [{name: gpu, firstAvailable: [{name: a, deviceClassName: share.divvy.dev, capacity: {requests: {cores: 10}}}, {name: b, deviceClassName: share.divvy.dev}]}], config: [` + config("gpu", configHead+", policy: fixed}") + `]`,
			"request gpu/b: invalid request: policy fixed needs cores"},
		{`requests: [{name: gpu, firstAvailable: [{name: a, deviceClassName: share.divvy.dev, capacity: {requests: {cores: 10}}}, {name: b, deviceClassName: gpu.divvy.dev}]}], config: [` + config("gpu/a", configHead+", policy: fixed}") + `]`, ""},
	} {
		var spec resourcev1.ResourceClaimSpec
		if err := yaml.UnmarshalStrict([]byte("devices: {"+c.devices+"}"), &spec); err != nil {
			t.Fatalf("%s: %v", c.devices, err)
		}
		err := Classes{}.ValidateClaim(&spec)
		switch {
		case c.fault == "" && err != nil:
			t.Errorf("%s: %v", c.devices, err)
		case c.fault != "" && (!errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: %v, want %q", c.devices, err, c.fault)
		}
	}
}
