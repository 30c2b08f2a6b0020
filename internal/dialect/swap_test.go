package dialect

import (
	"errors"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

func TestSwap(t *testing.T) {
	const swaps = `divvy.dev/swap: "true"`
	checkExamples(t, newTranslator(t, "{plain: {}}"), sixteen, []example{
		annotated(t, swaps, `divvy.dev/gpu-memory: 20Gi`).becomes("a tenth is kept", "main: 1 share memory=2Gi swapMemory=20Gi weighted swap"),
		annotated(t, swaps, `divvy.dev/gpu-memory: 4Gi, divvy.dev/gpu-cores: 30`).becomes("a GiB is kept", "main: 1 share memory=1Gi swapMemory=4Gi cores=30 fixed swap"),
		annotated(t, swaps, `divvy.dev/gpu-memory: 1Gi`).becomes("half is kept", "main: 1 share memory=512Mi swapMemory=1Gi weighted swap"),
		annotated(t, swaps+`, divvy.dev/kept-memory: 3Gi`, `divvy.dev/gpu: 2, divvy.dev/gpu-memory: 10Gi`).becomes("an amount is kept", "main: 2 share memory=3Gi swapMemory=10Gi weighted swap"),
		annotated(t, swaps+`, divvy.dev/kept-memory: 25%`, `divvy.dev/gpu-memory: 10Gi`).becomes("a part is kept", "main: 1 share memory=2560Mi swapMemory=10Gi weighted swap"),
		annotated(t, `divvy.dev/swap: "false"`, `divvy.dev/gpu-memory: 4Gi`).becomes("not", "main: 1 share memory=4Gi weighted"),
		annotated(t, `divvy.dev/swap: "false"`, `divvy.dev/gpu: 1`).becomes("not a whole one", "main: 1 gpu"),
		annotated(t, `divvy.dev/suspend-after: 10m`, `divvy.dev/gpu-memory: 4Gi`).becomes("suspended",
			`main: 1 share memory=4Gi [has(device.attributes["divvy.dev"].suspends)] weighted suspended after 10m0s`),
		annotated(t, swaps+`, divvy.dev/suspend-after: 10m`, `divvy.dev/gpu-memory: 4Gi`).becomes("both", `container "main": invalid request: the driver cannot suspend a process with managed memory, which a swap share has: leave out swap or suspendAfter`),
		annotated(t, `divvy.dev/suspend-after: "10"`, `divvy.dev/gpu-memory: 4Gi`).becomes("no unit of time", `annotation divvy.dev/suspend-after: read a duration such as 30s: time: missing unit in duration "10"`),
		annotated(t, `divvy.dev/suspend-after: -1m`, `divvy.dev/gpu-memory: 4Gi`).becomes("no time", `annotation divvy.dev/suspend-after: "-1m": give a time such as 10m`),
		annotated(t, `divvy.dev/swap: "yes"`, `divvy.dev/gpu-memory: 4Gi`).becomes("neither", `annotation divvy.dev/swap: "yes": write true or false`),
		annotated(t, `divvy.dev/kept-memory: 1Gi`, `divvy.dev/gpu-memory: 4Gi`).becomes("kept of what does not swap", `container "main": invalid request: kept 1Gi is a part of a swap share: add swap, or leave out kept`),
		annotated(t, swaps+`, divvy.dev/kept-memory: 4Gi`, `divvy.dev/gpu-memory: 4Gi`).becomes("all is kept", `container "main" asks for a swap share of 4Gi of which 4Gi would never leave the GPU: keep from 1Mi on, and less than all`),
		annotated(t, swaps, `divvy.dev/gpu: 1`).becomes("a whole GPU", `container "main" asks for whole GPUs or MIG instances, and annotation divvy.dev/swap is about shares: leave out one of the two`),
		annotated(t, swaps, `divvy.dev/gpu-memory-percent: 50`).becomes("a part", `container "main" asks for a swap share, which may be larger than what its GPU has free: give its memory as an amount, not as a part of a GPU`),
		annotated(t, swaps, `divvy.dev/gpu-cores: 50`).becomes("all memory", `container "main" asks for a swap share, which may be larger than what its GPU has free: give its memory as an amount, not as a part of a GPU`),
		annotated(t, swaps+`, divvy.dev/backend: mps`, `divvy.dev/gpu-memory: 4Gi`).becomes("another backend", `container "main": invalid request: swap and suspendAfter need backend slice, not mps: leave out the backend`),
	})
	checkExamples(t, newTranslator(t, "{hami: {deviceMemoryScaling: 2}}"), sixteen, []example{
		{"scaled", limitsOf(t, "nvidia.com/gpu: 1", "nvidia.com/gpumem: 20480"), "main: 1 share memory=2Gi swapMemory=20Gi weighted swap"},
		annotated(t, `divvy.dev/kept-memory: 4Gi`, `nvidia.com/gpumem: 20480`).becomes("scaled, and more is kept", "main: 1 share memory=4Gi swapMemory=20Gi weighted swap"),
		annotated(t, `nvidia.com/vgpu-mode: mig`, `nvidia.com/gpumem: 8000`).becomes("an instance", "main: 1 mig memory=8000Mi"),
	})
	checkExamples(t, newTranslator(t, "{hami: {deviceMemoryScaling: 1}}"), sixteen, []example{
		{"not scaled", limitsOf(t, "nvidia.com/gpu: 1", "nvidia.com/gpumem: 3000"), "main: 1 share memory=3000Mi weighted"},
	})
	for _, scaling := range []string{"0.5", "-1", "1e9", ".nan"} {
		if _, err := NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\ndialects: {4paradigm: {deviceMemoryScaling: " + scaling + "}}")); err == nil {
			t.Errorf("deviceMemoryScaling %s is taken", scaling)
		}
	}
}

// Slots have no claims, and so no memory of the host.
func TestNoSwapOfSlots(t *testing.T) {
	for dialects, pod := range map[string]example{
		"{plain: {}}": annotated(t, `divvy.dev/swap: "true"`, `divvy.dev/gpu-memory: 4Gi`).becomes("", `annotation divvy.dev/swap needs claims, which Kubernetes has from 1.36 on: leave it out`),
		"{hami: {deviceMemoryScaling: 2}}": {"", limitsOf(t, "nvidia.com/gpumem: 3000"),
			`container "main" asks for memory that its GPU does not have, which needs claims, and Kubernetes has them from 1.36 on`},
	} {
		translator, err := NewTranslator([]byte("apiVersion: divvy.dev/v1alpha1\nkind: WebhookConfig\nmode: slots\ndialects: " + dialects))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := translator.Translate(pod.pod, sixteen); !errors.Is(err, ErrRefused) || !strings.HasSuffix(err.Error(), pod.want) {
			t.Errorf("%s: %v, want %s", dialects, err, pod.want)
		}
	}
}

func TestValidateSwapClaims(t *testing.T) {
	const config = `, config: [{opaque: {driver: divvy.dev, parameters: {apiVersion: divvy.dev/v1alpha1, kind: ShareConfig`
	claim := func(amounts, fields string) *resourcev1.ResourceClaimSpec {
		return readSpec(t, `requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, allocationMode: ExactCount, count: 1, capacity: {requests: {`+amounts+`}}}}]`+fields)
	}
	for _, c := range []struct{ amounts, fields, fault string }{
		{"memory: 2Gi, swapMemory: 20Gi", config + `, swap: true}}}]`, ""},
		{"memory: 4Gi", config + `, suspendAfter: 10m}}}]`, ""},
		{"memory: 2Gi, swapMemory: 20Gi", "", "it takes swapMemory, which is for swap shares"},
		{"memory: 2Gi, swapMemory: 20Gi", config + `, weight: 2}}}]`, "it takes swapMemory, which is for swap shares"},
		{"memory: 2Gi", config + `, swap: true}}}]`, "takes its limit of swapMemory, and of memory what never leaves the GPU: name both"},
		{"swapMemory: 20Gi", config + `, swap: true}}}]`, "would keep all of the GPU's memory: name as memory what never leaves the GPU, such as 2Gi"},
		{"memory: 20Gi, swapMemory: 20Gi", config + `, swap: true}}}]`, "with a limit of 20Gi of swapMemory would keep 20Gi of it on the GPU"},
		{"memory: 2Gi, swapMemory: 20Gi", config + `, swap: true, kept: 2Gi}}}]`, "its configuration says kept, which the memory of the request says"},
		{"memory: 2Gi, swapMemory: 20Gi", config + `, swap: true, suspendAfter: 10m}}}]`, "leave out swap or suspendAfter"},
		{"memory: 2Gi, swapMemory: 1500", config + `, swap: true}}}]`, "swapMemory 1500: give a positive multiple of 1Mi"},
		{"memory: 2Gi, swapMemory: 20Gi", config + `, swap: "yes"}}}]`, "swap"},
	} {
		err := Classes{}.ValidateClaim(claim(c.amounts, c.fields))
		switch {
		case c.fault == "" && err != nil:
			t.Errorf("%s%s: %v", c.amounts, c.fields, err)
		case c.fault != "" && (!errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s%s: %v, want %q", c.amounts, c.fields, err, c.fault)
		}
	}
}

// A container has what leaves its GPUs in its own memory, so its limit has to hold that beside what it requests.
func TestCheckHostMemory(t *testing.T) {
	const config = `, config: [{opaque: {driver: divvy.dev, parameters: {apiVersion: divvy.dev/v1alpha1, kind: ShareConfig`
	request := func(count, amounts string) string {
		return `exactly: {deviceClassName: share.divvy.dev, count: ` + count + `, capacity: {requests: {` + amounts + `}}}`
	}
	specs := map[string]*resourcev1.ResourceClaimSpec{
		"swap":    readSpec(t, `requests: [{name: gpu, `+request("1", "memory: 1Gi, swapMemory: 10Gi")+`}]`+config+`, swap: true}}}]`),
		"two":     readSpec(t, `requests: [{name: gpu, `+request("2", "memory: 1Gi, swapMemory: 5Gi")+`}]`+config+`, swap: true}}}]`),
		"sleeps":  readSpec(t, `requests: [{name: gpu, `+request("1", "memory: 6Gi")+`}]`+config+`, suspendAfter: 10m}}}]`),
		"ours":    readSpec(t, `requests: [{name: gpu, `+request("1", "memory: 10Gi")+`}]`),
		"one of":  readSpec(t, `requests: [{name: a, `+request("1", "memory: 1Gi, swapMemory: 3Gi")+`}, {name: b, `+request("1", "memory: 1Gi, swapMemory: 5Gi")+`}]`+config+`, swap: true}}}]`),
		"ways":    readSpec(t, `requests: [{name: gpu, firstAvailable: [{name: a, deviceClassName: share.divvy.dev, count: 1, capacity: {requests: {memory: 1Gi, swapMemory: 5Gi}}}, {name: b, deviceClassName: share.divvy.dev, count: 1, capacity: {requests: {memory: 1Gi, swapMemory: 9Gi}}}]}]`+config+`, swap: true}}}]`),
		"theirs":  readSpec(t, `requests: [{name: nic, exactly: {deviceClassName: nic.example.com}}]`),
		"strange": readSpec(t, `requests: [{name: gpu, `+request("1", "memory: 1Gi, swapMemory: 10Gi")+`}], config: [{opaque: {driver: divvy.dev, parameters: {swap: true}}}]`),
	}
	for _, c := range []struct{ spec, refusal string }{
		{`containers: [{name: a, resources: {claims: [{name: swap}]}}]`, ""},
		{`containers: [{name: a, resources: {claims: [{name: swap}], limits: {memory: 12Gi}, requests: {memory: 3Gi}}}]`, ""},
		{`containers: [{name: a, resources: {claims: [{name: swap}], limits: {memory: 10Gi}, requests: {memory: 10Gi}}}]`, ""},
		{`containers: [{name: a, resources: {claims: [{name: ours}, {name: theirs}, {name: absent}], limits: {memory: 1Gi}}}]`, ""},
		{`containers: [{name: a, resources: {claims: [{name: strange}], limits: {memory: 1Gi}}}]`, ""},
		{`containers: [{name: a, resources: {limits: {memory: 1Gi}}}, {name: b, resources: {claims: [{name: swap}]}}]`, ""},
		{`containers: [{name: a, resources: {claims: [{name: "one of", request: a}], limits: {memory: 3Gi}, requests: {memory: 1Gi}}}]`, ""},
		{`containers: [{name: a, resources: {claims: [{name: swap}], limits: {memory: 4Gi}, requests: {memory: 2Gi}}}]`,
			`container "a" may have 9Gi moved from its GPUs into its own memory and requests 2Gi for itself, and its limit of memory is 4Gi: set the limit to 11Gi or more, or leave it out`},
		{`containers: [{name: a, resources: {claims: [{name: swap}], limits: {memory: 9Gi}, requests: {memory: 9Gi}}}]`,
			`container "a" may have 9Gi moved from its GPUs into its own memory, and its limit of memory is 9Gi: set the limit to 9Gi and what its programs need themselves, or leave it out`},
		{`containers: [{name: a, resources: {claims: [{name: two}], limits: {memory: 8Gi}}}]`, `may have 8Gi moved`},
		{`containers: [{name: a, resources: {claims: [{name: sleeps}], limits: {memory: 6Gi}}}]`, `may have 6Gi moved`},
		{`containers: [{name: a, resources: {claims: [{name: "one of"}], limits: {memory: 6Gi}}}]`, `may have 6Gi moved`},
		{`containers: [{name: a, resources: {claims: [{name: ways}], limits: {memory: 6Gi}}}]`, `may have 8Gi moved`},
		{`containers: [{name: b}], initContainers: [{name: a, resources: {claims: [{name: swap}], limits: {memory: 4Gi}}}]`, `container "a" may have 9Gi moved`},
		{`resources: {limits: {memory: 12Gi}}, containers: [{name: a, resources: {claims: [{name: swap}], requests: {memory: 1Gi}}}, {name: b, resources: {claims: [{name: swap}], requests: {memory: 1Gi}}}]`, ""},
		{`resources: {limits: {memory: 12Gi}}, containers: [{name: a, resources: {claims: [{name: swap}], requests: {memory: 1Gi}}}, {name: b, resources: {claims: [{name: sleeps}], requests: {memory: 1Gi}}}]`,
			`the pod may have 15Gi moved from its GPUs into its own memory and requests 2Gi for itself, and its limit of memory is 12Gi: set the limit to 17Gi or more, or leave it out`},
	} {
		err := CheckHostMemory(readPod(t, "spec: {"+c.spec+"}"), specs)
		switch {
		case c.refusal == "" && err != nil:
			t.Errorf("%s: %v", c.spec, err)
		case c.refusal != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.refusal)):
			t.Errorf("%s: %v, want %q", c.spec, err, c.refusal)
		}
	}
}

func read(t *testing.T, into any, text string) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

// Who may have so much GPU memory may not have any amount by letting it leave the GPU.
func TestQuotasCountLimitsOfSwapShares(t *testing.T) {
	var published resourcev1.ResourceSlice
	var given resourcev1.AllocationResult
	read(t, &published, `{spec: {driver: divvy.dev, nodeName: n1, pool: {name: n1}, devices: [{name: gpu-0-shared, allowMultipleAllocations: true,
		capacity: {memory: {value: 8Gi}, swapMemory: {value: 32Gi, requestPolicy: {default: 0, validRange: {min: 0, max: 8Gi}}}}}]}}`)
	sizes := SizesOf([]resourcev1.ResourceSlice{published})
	spec := readSpec(t, `requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, count: 1, capacity: {requests: {memory: 1Gi, swapMemory: 8Gi}}}}]`)
	want := Use{GPUs: 1, Memory: 8 << 30, Part: million / 2, Portion: million / 2}
	if got := UseOf(spec, nil, sizes); got != want {
		t.Errorf("it counts %+v", got)
	}
	read(t, &given, `{devices: {results: [{request: gpu, driver: divvy.dev, pool: n1, device: gpu-0-shared, shareID: a, consumedCapacity: {memory: 1Gi, swapMemory: 8Gi, cores: 0, slots: 1}}]}}`)
	if got := UseOf(spec, &given, sizes); got != want {
		t.Errorf("allocated it counts %+v", got)
	}
	if whole := UseOf(readSpec(t, `requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev, count: 1}}]`), nil, sizes); whole.Memory != 16<<30 {
		t.Errorf("a whole GPU counts %+v", whole)
	}
}
