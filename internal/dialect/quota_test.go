package dialect

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// quotaSlices publish a GPU of 16 GiB and one of 40.
const quotaSlices = `
- spec:
    driver: divvy.dev
    pool: {name: n1}
    devices:
    - {name: small-shared, allowMultipleAllocations: true, capacity: {memory: {value: 16Gi}}}
    - {name: small, capacity: {memory: {value: 16Gi}}}
    - {name: large, capacity: {memory: {value: 40Gi}}}
- spec: {driver: gpu.example.com, pool: {name: n1}, devices: [{name: other, capacity: {memory: {value: 80Gi}}}]}
`

// plainUse is the part of a use that Divvy's own quotas count.
type plainUse struct {
	gpus, memory, cores uint64
	unsized, uncounted  bool
}

func plainOf(u Use) plainUse {
	return plainUse{u.GPUs, u.Memory, u.Cores, u.Unsized > 0, u.Uncounted > 0}
}

func (p plainUse) use() Use {
	u := Use{GPUs: p.gpus, Memory: p.memory, Cores: p.cores}
	if p.unsized {
		u.Unsized = 1
	}
	if p.uncounted {
		u.Uncounted = 1
	}
	return u
}

// limitsOf reads a list of quotas where these dialects are turned on.
func quotaLimits(t *testing.T, dialects, text string) []Limit {
	t.Helper()
	var quotas []*corev1.ResourceQuota
	if err := yaml.UnmarshalStrict([]byte(text), &quotas); err != nil {
		t.Fatal(err)
	}
	translator := newTranslator(t, dialects)
	var all []Limit
	for _, quota := range quotas {
		all = append(all, translator.Limits(quota)...)
	}
	return all
}

func TestUseOf(t *testing.T) {
	var published []resourcev1.ResourceSlice
	if err := yaml.UnmarshalStrict([]byte(quotaSlices), &published); err != nil {
		t.Fatal(err)
	}
	sizes := SizesOf(published)
	share := func(rest string) string {
		return `requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev` + rest + `}}]`
	}
	for _, c := range []struct {
		devices, allocation string
		want                plainUse
	}{
		{share(", capacity: {requests: {memory: 4Gi, cores: 30}}"), "", plainUse{1, 4 << 30, 30, false, false}},
		{share(", count: 3, capacity: {requests: {memory: 4Gi, cores: 30}}"), "", plainUse{3, 12 << 30, 90, false, false}},
		{share(", capacity: {requests: {cores: 30}}"), "", plainUse{1, 40 << 30, 30, false, false}},
		{share(""), "", plainUse{1, 40 << 30, 0, false, false}},
		{share(", adminAccess: true"), "", plainUse{}},
		{share(", allocationMode: All, capacity: {requests: {memory: 4Gi}}"), "", plainUse{1, 4 << 30, 0, false, true}},
		{`requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev, count: 2}}]`, "", plainUse{2, 80 << 30, 200, false, false}},
		{`requests: [{name: nic, exactly: {deviceClassName: nic.example.com, capacity: {requests: {memory: 4Gi}}}}]`, "", plainUse{}},
		{`requests: [{name: gpu, firstAvailable: [{name: a, deviceClassName: share.divvy.dev, capacity: {requests: {memory: 8Gi, cores: 10}}}, {name: b, deviceClassName: share.divvy.dev, capacity: {requests: {memory: 20Gi}}}]}]`, "",
			plainUse{1, 20 << 30, 10, false, false}},
		{`requests: [{name: a, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: 1Gi}}}}, {name: b, exactly: {deviceClassName: gpu.divvy.dev}}]`, "", plainUse{2, 41 << 30, 100, false, false}},
		{share(", capacity: {requests: {memory: 1e10000000}}"), "", plainUse{1, 40 << 30, 0, false, false}},
		// What was allocated counts, whatever was asked.
		{share(""), `[{request: gpu, driver: divvy.dev, pool: n1, device: small-shared, shareID: 0, consumedCapacity: {memory: 16Gi, cores: 5, slots: 1}}]`, plainUse{1, 16 << 30, 5, false, false}},
		{`requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}]`, `[{request: gpu, driver: divvy.dev, pool: n1, device: small-shared, shareID: 0, consumedCapacity: {memory: 16Gi, cores: 5, slots: 1}}]`, plainUse{1, 16 << 30, 100, false, false}},
		{`requests: [{name: gpu, firstAvailable: [{name: a, deviceClassName: share.divvy.dev}, {name: b, deviceClassName: gpu.divvy.dev}]}]`, `[{request: gpu/a, driver: divvy.dev, pool: n1, device: small-shared, shareID: 0, consumedCapacity: {memory: 16Gi, cores: 5, slots: 1}}]`, plainUse{1, 16 << 30, 5, false, false}},
		{`requests: [{name: gpu, exactly: {deviceClassName: training.example.com}}]`, `[{request: gpu, driver: divvy.dev, pool: n1, device: small}]`, plainUse{1, 16 << 30, 100, false, false}},
		{`requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}]`, `[{request: gpu, driver: gpu.example.com, pool: n1, device: other}]`, plainUse{}},
		{`requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}]`, `[{request: gpu, driver: divvy.dev, pool: n1, device: vanished}]`, plainUse{1, 40 << 30, 100, false, false}},
		{`requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}]`, `[{request: gpu, driver: divvy.dev, pool: n1, device: small, adminAccess: true}]`, plainUse{}},
	} {
		var allocation *resourcev1.AllocationResult
		if c.allocation != "" {
			allocation = &resourcev1.AllocationResult{}
			if err := yaml.Unmarshal([]byte("devices: {results: "+strings.ReplaceAll(c.allocation, "shareID: 0", "shareID: a1b2")+"}"), allocation); err != nil {
				t.Fatal(err)
			}
		}
		if got := plainOf(UseOf(readSpec(t, c.devices), allocation, sizes)); got != c.want {
			t.Errorf("%s %s: %+v, want %+v", c.devices, c.allocation, got, c.want)
		}
	}
	// Shares that ask for no cores may get some by the node that they come to.
	published[0].Spec.Devices[0].Capacity[v1alpha1.CapacityCores] = resourcev1.DeviceCapacity{RequestPolicy: &resourcev1.CapacityRequestPolicy{Default: resource.NewQuantity(5, resource.DecimalSI)}}
	for capacity, want := range map[string]uint64{"memory: 4Gi": 10, "memory: 4Gi, cores: 0": 0, "memory: 4Gi, cores: 3": 6} {
		if got := UseOf(readSpec(t, share(", count: 2, capacity: {requests: {"+capacity+"}}")), nil, SizesOf(published)); got.Cores != want {
			t.Errorf("%s beside a default of 5 cores: %+v", capacity, got)
		}
	}
	if got := UseOf(readSpec(t, share("")), nil, SizesOf(published)); got.Cores != 5 {
		t.Errorf("nothing named beside a default of 5 cores: %+v", got)
	}
	if got := UseOf(readSpec(t, share("")), nil, &Sizes{}); got.Unsized == 0 || got.Uncounted > 0 {
		t.Errorf("all of a GPU of unknown size is %+v", got)
	}
	if got := plainOf(UseOf(readSpec(t, share(", capacity: {requests: {memory: 4Gi}}")), nil, &Sizes{})); got != (plainUse{1, 4 << 30, 0, false, false}) {
		t.Errorf("4Gi of a GPU of unknown size is %+v", got)
	}
}

func TestCheckQuota(t *testing.T) {
	const team = `[{metadata: {name: team}, spec: {hard: {requests.divvy.dev/gpu-memory: 16Gi, requests.divvy.dev/gpu-cores: 100}}}]`
	for _, c := range []struct {
		quotas     string
		used, more plainUse
		refusal    string
	}{
		{`[]`, plainUse{1, 99 << 30, 99, false, false}, plainUse{1, 99 << 30, 99, true, true}, ""},
		{team, plainUse{}, plainUse{1, 16 << 30, 100, false, false}, ""},
		{team, plainUse{1, 12 << 30, 30, false, false}, plainUse{1, 4 << 30, 70, false, false}, ""},
		{team, plainUse{1, 12 << 30, 30, false, false}, plainUse{1, 4<<30 + 1, 30, false, false}, `quota "team" allows 16Gi of requests.divvy.dev/gpu-memory: 12Gi are used, and 4294967297 more would be 17179869185`},
		{team, plainUse{2, 12 << 30, 80, false, false}, plainUse{1, 1 << 30, 30, false, false}, `quota "team" allows 100 of requests.divvy.dev/gpu-cores: 80 are used, and 30 more would be 110`},
		{team, plainUse{}, plainUse{1, 0, 0, true, false}, `give the request an amount of memory`},
		{team, plainUse{}, plainUse{1, 1, 1, false, true}, `give the request an amount of memory`},
		// Where no GPU is published yet, none has a size, but all that are asked for can be counted.
		{`[{metadata: {name: n}, spec: {hard: {requests.divvy.dev/gpu: 2, requests.divvy.dev/gpu-cores: 200}}}]`, plainUse{}, plainUse{2, 0, 200, true, false}, ""},
		{`[{metadata: {name: n}, spec: {hard: {requests.divvy.dev/gpu: 2}}}]`, plainUse{}, plainUse{3, 0, 300, true, false}, `allows 2 of requests.divvy.dev/gpu`},
		{`[{metadata: {name: n}, spec: {hard: {requests.divvy.dev/gpu: 2}}}]`, plainUse{}, plainUse{1, 0, 100, true, true}, `give the request an amount of memory`},
		// A namespace beyond its quota may still have what takes none of it.
		{team, plainUse{9, 99 << 30, 0, false, false}, plainUse{1, 0, 50, false, false}, ""},
		{`[{metadata: {name: n}, spec: {hard: {requests.divvy.dev/gpu: 2}}}]`, plainUse{2, 1, 1, false, false}, plainUse{1, 1, 1, false, false}, `allows 2 of requests.divvy.dev/gpu: 2 are used, and 1 more would be 3`},
		{`[{metadata: {name: n}, spec: {hard: {limits.divvy.dev/gpu-memory: 1, pods: 0, requests.nvidia.com/gpu: 0}}}]`, plainUse{}, plainUse{1, 1 << 30, 1, false, false}, ""},
		{`[{metadata: {name: n}, spec: {scopes: [BestEffort], hard: {requests.divvy.dev/gpu-memory: 1}}}]`, plainUse{}, plainUse{1, 1 << 30, 1, false, false}, ""},
		{`[{metadata: {name: n}, spec: {hard: {requests.divvy.dev/gpu-memory: 1e10000000}}}]`, plainUse{}, plainUse{1, 1 << 30, 1, false, false}, ""},
		{`[{metadata: {name: z}, spec: {hard: {requests.divvy.dev/gpu: 0}}}, {metadata: {name: a}, spec: {hard: {requests.divvy.dev/gpu: 0}}}]`, plainUse{}, plainUse{1, 1, 1, false, false}, `quota "a" allows 0`},
	} {
		err := CheckQuota(quotaLimits(t, "{plain: {}}", c.quotas), c.used.use(), c.more.use())
		switch {
		case c.refusal == "" && err != nil:
			t.Errorf("%s %+v %+v: %v", c.quotas, c.used, c.more, err)
		case c.refusal != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.refusal)):
			t.Errorf("%s %+v %+v: %v, want %q", c.quotas, c.used, c.more, err, c.refusal)
		}
	}
}

// TestTemplatesOfClaims counts a template once for each claim that is made from it.
func TestTemplatesOfClaims(t *testing.T) {
	translator := newTranslator(t, "{plain: {}}")
	pod := readPod(t, `spec: {resourceClaims: [{name: own, resourceClaimTemplateName: mine}], containers: [{name: a, resources: {limits: {divvy.dev/gpu: 1}}}, {name: b, resources: {limits: {divvy.dev/gpu: 1}}}, {name: c, resources: {limits: {divvy.dev/gpu: 2}}}]}`)
	for _, own := range []bool{true, false} {
		if !own {
			pod.Spec.ResourceClaims = nil
		}
		made, err := translator.Translate(pod, sixteen)
		if err != nil {
			t.Fatal(err)
		}
		templates, names := made.Templates, made.Claims
		if len(templates) != 2 || len(names) != 3 || names[0] != names[1] || names[0] != templates[0].Name || names[2] != templates[1].Name {
			t.Errorf("templates %v of %d", names, len(templates))
		}
		for i := range templates {
			if !Genuine(&templates[i]) {
				t.Error("a template that was just made is not genuine")
			}
			templates[i].Spec.Spec.Devices.Requests[0].Exactly.Count++
			if Genuine(&templates[i]) {
				t.Error("a template with another content is genuine")
			}
		}
	}
}

// A quota of MIG devices of one profile cannot be kept, so that it refuses who asks for an instance, and nobody else.
func TestQuotaOfAProfile(t *testing.T) {
	const quota = "[{metadata: {name: team}, spec: {hard: {requests.nvidia.com/mig-1g.10gb: 3}}}]"
	limits := quotaLimits(t, "{nvidia: {}}", quota)
	if err := CheckQuota(limits, Use{}, instanceOf(10<<30)); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "limit mig.divvy.dev.deviceclass.resource.k8s.io/devices") {
		t.Errorf("an instance: %v", err)
	}
	if err := CheckQuota(limits, Use{}, exclusive(80<<30)); err != nil {
		t.Errorf("a GPU: %v", err)
	}
	if limits = quotaLimits(t, "{plain: {}}", quota); len(limits) > 0 {
		t.Errorf("without the dialect there are %v", limits)
	}
}
