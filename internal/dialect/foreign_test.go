package dialect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// TestForeignQuotas translates pods one after the other as long as a quota of another system's resource allows it, and
// counts those that pass. The claims of those that passed wait.
func TestForeignQuotas(t *testing.T) {
	for name, c := range map[string]struct {
		dialects, limits, hard string
		passes                 int
	}{
		"NVIDIA's GPUs":                 {"{nvidia: {}}", "nvidia.com/gpu: 1", "requests.nvidia.com/gpu: 1", 1},
		"two of NVIDIA's GPUs":          {"{nvidia: {}}", "nvidia.com/gpu: 2", "requests.nvidia.com/gpu: 5", 2},
		"NVIDIA's replicas":             {"{nvidia: {replicas: 4}}", "nvidia.com/gpu.shared: 1", "requests.nvidia.com/gpu.shared: 3", 3},
		"replicas are no whole GPUs":    {"{nvidia: {replicas: 4}}", "nvidia.com/gpu.shared: 1", "requests.nvidia.com/gpu: 0", 5},
		"replicas of the same name":     {"{nvidia: {replicas: 4, renamed: false}}", "nvidia.com/gpu: 1", "requests.nvidia.com/gpu: 2", 2},
		"HAMi's GPUs":                   {"{hami: {}}", "nvidia.com/gpu: 1, nvidia.com/gpumem: 1000", "requests.nvidia.com/gpu: 1", 1},
		"HAMi's memory":                 {"{hami: {}}", "nvidia.com/gpumem: 3000", "limits.nvidia.com/gpumem: 7000", 2},
		"HAMi's memory without prefix":  {"{hami: {}}", "nvidia.com/gpumem: 3000", "nvidia.com/gpumem: 7000", 2},
		"HAMi's memory in larger units": {"{hami: {memoryFactor: 10}}", "nvidia.com/gpumem: 300", "requests.nvidia.com/gpumem: 700", 2},
		"HAMi's percent":                {"{hami: {}}", "nvidia.com/gpumem-percentage: 30", "requests.nvidia.com/gpumem-percentage: 60", 2},
		"HAMi's cores":                  {"{hami: {}}", "nvidia.com/gpumem: 10, nvidia.com/gpucores: 30", "limits.nvidia.com/gpucores: 100", 3},
		"a quota of nothing":            {"{hami: {}}", "nvidia.com/gpumem: 1", "requests.nvidia.com/gpumem: 0", 0},
		"half a unit is none":           {"{hami: {}}", "nvidia.com/gpumem: 1", "requests.nvidia.com/gpumem: 500m", 0},
		"4paradigm":                     {"{4paradigm: {}}", "nvidia.com/gpu: 1", "requests.nvidia.com/gpumem: 5000", 1},
		"Volcano's vGPUs":               {"{volcano: {}}", "volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 100", "requests.volcano.sh/vgpu-number: 4", 4},
		"Volcano's memory":              {"{volcano: {}}", "volcano.sh/vgpu-memory: 100", "requests.volcano.sh/vgpu-memory: 399", 3},
		"Volcano's whole GPUs":          {"{volcano: {}}", "volcano.sh/gpu-number: 1", "requests.volcano.sh/gpu-number: 2", 2},
		"GPU manager's cores":           {"{vcuda: {}}", "tencent.com/vcuda-core: 40, tencent.com/vcuda-memory: 4", "requests.tencent.com/vcuda-core: 100", 2},
		"GPU manager's memory":          {"{vcuda: {}}", "tencent.com/vcuda-core: 1, tencent.com/vcuda-memory: 4", "requests.tencent.com/vcuda-memory: 8", 2},
		"qGPU's memory":                 {"{qgpu: {}}", "tke.cloud.tencent.com/qgpu-core: 5, tke.cloud.tencent.com/qgpu-memory: 2", "requests.tke.cloud.tencent.com/qgpu-memory: 7", 3},
		"gpushare":                      {"{gpushare: {}}", "aliyun.com/gpu-mem: 2", "requests.aliyun.com/gpu-mem: 4", 2},
		"gpushare in MiB":               {"{gpushare: {memoryUnit: MiB}}", "aliyun.com/gpu-mem: 200", "requests.aliyun.com/gpu-mem: 400", 2},
		"Elastic GPU":                   {"{elasticgpu: {}}", "elasticgpu.io/gpu-memory: 256", "requests.elasticgpu.io/gpu-memory: 600", 2},
		"a dialect that is off":         {"{plain: {}}", "divvy.dev/gpu: 1", "requests.nvidia.com/gpu: 0", 5},
		"Koordinator's combined":        {"{koordinator: {}}", "koordinator.sh/gpu: 50", "requests.koordinator.sh/gpu: 100", 2},
		"Koordinator's memory":          {"{koordinator: {}}", "koordinator.sh/gpu-core: 10, koordinator.sh/gpu-memory: 2Gi", "requests.koordinator.sh/gpu-memory: 7Gi", 3},
		"Koordinator's ratio":           {"{koordinator: {}}", "koordinator.sh/gpu-core: 10, koordinator.sh/gpu-memory-ratio: 30", "requests.koordinator.sh/gpu-memory-ratio: 60", 2},
		"vgpu-manager":                  {"{vgpu-manager: {}}", "nvidia.com/vgpu-number: 1, nvidia.com/vgpu-memory: 100", "requests.nvidia.com/vgpu-memory: 400", 4},
		"percent in the plain form":     {"{plain: {}}", "divvy.dev/gpu-memory-percent: 30", "requests.divvy.dev/gpu-memory-percent: 100", 3},
		"the plain form takes as much":  {"{plain: {}, nvidia: {}}", "divvy.dev/gpu: 1", "requests.nvidia.com/gpu: 2", 2},
		"shares add up to GPUs":         {"{plain: {}, nvidia: {}}", "divvy.dev/gpu-memory: 8Gi", "requests.nvidia.com/gpu: 2", 4},
		"and so does their time":        {"{plain: {}, nvidia: {}}", "divvy.dev/gpu-memory: 1Mi, divvy.dev/gpu-cores: 50", "requests.nvidia.com/gpu: 1", 2},
	} {
		t.Run(name, func(t *testing.T) {
			translator := newTranslator(t, c.dialects)
			limits := quotaLimits(t, c.dialects, "[{metadata: {name: team}, spec: {hard: {"+c.hard+"}}}]")
			sizes := SizesOf(published(t, `[{spec: {driver: divvy.dev, pool: {name: n}, devices: [{name: g, allowMultipleAllocations: true, capacity: {memory: {value: 16Gi}}}]}}]`))
			var used Use
			passed := 0
			for range 5 {
				made, err := translator.Translate(readPod(t, "spec: {containers: [{name: a, resources: {limits: {"+c.limits+"}}}]}"), Inventory{Sizes: []uint64{16 << 30}})
				if err != nil {
					t.Fatal(err)
				}
				more := UseOf(&made.Templates[0].Spec.Spec, nil, sizes)
				err = CheckQuota(limits, used, more)
				if err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), `quota "team" allows `) || strings.Contains(err.Error(), "\n")) {
					t.Fatal(err)
				}
				if err == nil {
					passed++
					used = used.Plus(more)
				}
			}
			if passed != c.passes {
				t.Errorf("%d of 5 pods passed, want %d", passed, c.passes)
			}
		})
	}
}

func published(t *testing.T, text string) []resourcev1.ResourceSlice {
	t.Helper()
	var all []resourcev1.ResourceSlice
	if err := yaml.UnmarshalStrict([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryResourceCounts wants of each dialect that it says what a quota of its resources counts. Otherwise such a
// quota would count nothing, because the translation takes the resource away.
func TestEveryResourceCounts(t *testing.T) {
	amountless := map[string]bool{"nvidia.com/priority": true}
	for name, made := range dialects {
		dialect, err := made(options{dialect: name})
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range dialect.Owns().Resources {
			open := strings.HasSuffix(resource, "*") // refused
			own := slices.ContainsFunc(own, func(o ownQuota) bool { return string(o.name) == "requests."+resource })
			if _, ok := dialect.Counts()[resource]; !ok && !open && !own && !amountless[resource] {
				t.Errorf("dialect %s does not say what a quota of %s counts", name, resource)
			}
		}
	}
}

// TestPartsCount counts a part of a GPU as that part, whatever sizes the cluster has and while nobody knows which
// of them it will be.
func TestPartsCount(t *testing.T) {
	var sizes []uint64
	var devices []string
	for n := uint64(8); n <= 80; n += 6 {
		sizes = append(sizes, n<<30)
		devices = append(devices, fmt.Sprintf(`{name: g%d, allowMultipleAllocations: true, capacity: {memory: {value: %dGi}}}`, n, n))
	}
	known := SizesOf(published(t, "[{spec: {driver: divvy.dev, pool: {name: n}, devices: ["+strings.Join(devices, ", ")+"]}}]"))
	for _, some := range [][]uint64{sizes[:2], sizes} {
		made, err := newTranslator(t, "{hami: {}}").Translate(readPod(t, "spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpumem-percentage: 50}}}]}"), Inventory{Sizes: some})
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := countPercent.amount(UseOf(&made.Templates[0].Spec.Spec, nil, known)); n != 50 {
			t.Errorf("half a GPU of %d sizes counts as %d percent", len(some), n)
		}
	}
	// A selector that only looks like a template's binds nothing.
	forged := readSpec(t, `requests: [{name: r, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: 8Gi}}, selectors: [{cel: {expression: 'device.capacity["divvy.dev"].memory.compareTo(quantity("85899345920")) == 0 || true'}}]}}]`)
	if got := UseOf(forged, nil, known); got.Part != million {
		t.Errorf("8Gi of a GPU of 8Gi is %d millionths", got.Part)
	}
}

// TestPodsBesideTranslation counts what Kubernetes counts of pods that were not translated.
func TestPodsBesideTranslation(t *testing.T) {
	limits := quotaLimits(t, "{nvidia: {}}", `[{metadata: {name: team}, spec: {hard: {requests.nvidia.com/gpu: 3}}, status: {used: {requests.nvidia.com/gpu: 1}}}]`)
	one := Use{GPUs: 1, Whole: 1, Portion: million}
	if err := CheckQuota(limits, one, one); err != nil {
		t.Error(err)
	}
	if err := CheckQuota(limits, one.Plus(one), one); err == nil || !strings.Contains(err.Error(), "allows 3 of requests.nvidia.com/gpu: 3 are used, and 1 more would be 4") {
		t.Errorf("one by the device plugin and two claims, of three: %v", err)
	}
}

// TestAllocatedUse counts what was allocated: by both forms of devices, with sizes known and away.
func TestAllocatedUse(t *testing.T) {
	sizes := SizesOf(published(t, `[{spec: {driver: divvy.dev, pool: {name: n}, devices: [{name: large, capacity: {memory: {value: 40Gi}}},
		{name: s, allowMultipleAllocations: true, capacity: {memory: {value: 16Gi}}}]}}]`))
	for name, c := range map[string]struct {
		class, result string
		sizes         *Sizes
		want          Use
		settled       bool
	}{
		"a share": {v1alpha1.ClassShare, `device: s, shareID: a, consumedCapacity: {memory: 4Gi, cores: 10}`, sizes,
			Use{GPUs: 1, Memory: 4 << 30, Cores: 10, Part: million / 4, Portion: million / 4}, true},
		"a share with most of the time": {v1alpha1.ClassShare, `device: s, shareID: a, consumedCapacity: {memory: 4Gi, cores: 90}`, sizes,
			Use{GPUs: 1, Memory: 4 << 30, Cores: 90, Part: million / 4, Portion: 900_000}, true},
		"a whole GPU as a share": {v1alpha1.ClassWhole, `device: s, shareID: a, consumedCapacity: {memory: 16Gi, cores: 5}`, sizes,
			Use{GPUs: 1, Whole: 1, Memory: 16 << 30, Cores: 100, Part: million, Portion: million}, true},
		"a whole GPU of an older agent": {v1alpha1.ClassWhole, `device: large`, sizes,
			Use{GPUs: 1, Whole: 1, Memory: 40 << 30, Cores: 100, Part: million, Portion: million}, true},
		"through another class": {"training.example.com", `device: s, shareID: a, consumedCapacity: {memory: 16Gi}`, sizes,
			Use{GPUs: 1, Whole: 1, Memory: 16 << 30, Part: million, Portion: million}, true},
		"an older agent's that is away": {v1alpha1.ClassWhole, `device: gone`, sizes,
			Use{GPUs: 1, Whole: 1, Memory: 40 << 30, Cores: 100, Part: million, Portion: million}, false},
		"a share whose GPU is away": {v1alpha1.ClassShare, `device: gone, shareID: a, consumedCapacity: {memory: 4Gi, cores: 10}`, sizes,
			Use{GPUs: 1, Whole: 1, Memory: 4 << 30, Cores: 10, Part: million, Portion: million}, false},
		"where nothing is known": {v1alpha1.ClassWhole, `device: gone`, &Sizes{},
			Use{GPUs: 1, Whole: 1, Cores: 100, Part: million, Portion: million, Unsized: 1}, false},
	} {
		spec := readSpec(t, `requests: [{name: gpu, exactly: {deviceClassName: `+c.class+`}}, {name: nic, exactly: {deviceClassName: nic.example.com}}]`)
		allocation := &resourcev1.AllocationResult{}
		if err := yaml.UnmarshalStrict([]byte(`devices: {results: [{request: gpu, driver: divvy.dev, pool: n, `+c.result+`}, {request: nic, driver: nic.example.com, pool: n, device: nic0}]}`), allocation); err != nil {
			t.Fatal(err)
		}
		if got, settled := CountedOf(spec, allocation).Use(c.sizes); got != c.want || settled != c.settled {
			t.Errorf("%s: %+v settled %v, want %+v settled %v", name, got, settled, c.want, c.settled)
		}
	}
	if got, settled := CountedOf(readSpec(t, `requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}]`), &resourcev1.AllocationResult{}).Use(sizes); got != (Use{}) || !settled {
		t.Errorf("an allocation of nothing: %+v, %v", got, settled)
	}
}

// TestOtherClasses counts a waiting claim by the devices of ours that its class selects.
func TestOtherClasses(t *testing.T) {
	slices := published(t, `[{spec: {driver: divvy.dev, pool: {name: n}, devices: [{name: large, capacity: {memory: {value: 40Gi}}}]}}]`)
	sizes := NewSizes(func(yield func(Published) bool) { yield(PublishedOf(&slices[0])) }, nil,
		map[string]Forms{"any": {Shared: true, Whole: true}, "shares": {Shared: true}, "nics": {}})
	for request, want := range map[string]plainUse{
		`{name: r, exactly: {deviceClassName: any}}`:                                                                                             {1, 40 << 30, 100, false, false},
		`{name: r, exactly: {deviceClassName: any, count: 2}}`:                                                                                   {2, 80 << 30, 200, false, false},
		`{name: r, exactly: {deviceClassName: shares, capacity: {requests: {memory: 4Gi}}}}`:                                                     {1, 4 << 30, 0, false, false},
		`{name: r, exactly: {deviceClassName: any, capacity: {requests: {memory: 4Gi, cores: 10}}}}`:                                             {1, 40 << 30, 100, false, false},
		`{name: r, exactly: {deviceClassName: nics, count: 4}}`:                                                                                  {},
		`{name: r, exactly: {deviceClassName: unheard-of}}`:                                                                                      {},
		`{name: r, firstAvailable: [{name: a, deviceClassName: nics}, {name: b, deviceClassName: shares, capacity: {requests: {memory: 4Gi}}}]}`: {1, 4 << 30, 0, false, false},
		`{name: r, exactly: {deviceClassName: any, allocationMode: All}}`:                                                                        {1, 40 << 30, 100, false, true},
		`{name: r, exactly: {deviceClassName: nics, allocationMode: All}}`:                                                                       {},
		`{name: r, exactly: {deviceClassName: any, adminAccess: true}}`:                                                                          {},
	} {
		if got := plainOf(UseOf(readSpec(t, "requests: ["+request+", {name: nic, exactly: {deviceClassName: nics}}]"), nil, sizes)); got != want {
			t.Errorf("%s: %+v, want %+v", request, got, want)
		}
	}
}

// TestUnknownUse refuses what a claim of unknown amount could exceed.
func TestUnknownUse(t *testing.T) {
	limits := quotaLimits(t, "{plain: {}}", `[{metadata: {name: team}, spec: {hard: {requests.divvy.dev/gpu-memory: 16Gi}}}]`)
	for _, used := range []Use{{GPUs: 1, Unsized: 1}, {GPUs: 1, Uncounted: 1}} {
		err := CheckQuota(limits, used, Use{GPUs: 1, Memory: 1})
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "an amount that is not known") {
			t.Errorf("%+v: %v", used, err)
		}
		if err := CheckQuota(limits, used, Use{GPUs: 1}); err != nil {
			t.Errorf("what takes nothing of it beside %+v: %v", used, err)
		}
	}
	// Sums of claims of any size do not wrap around.
	huge := UseOf(readSpec(t, `requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, count: 32, capacity: {requests: {memory: 1Pi}}}}]`), nil, &Sizes{})
	var used Use
	for range 1 << 17 {
		used = used.Plus(huge)
	}
	if err := CheckQuota(limits, used, Use{GPUs: 1, Memory: 1}); err == nil {
		t.Error("many huge claims leave room")
	}
}

// TestQuotasThatSayNothing reads quotas that no claim is counted for.
func TestQuotasThatSayNothing(t *testing.T) {
	for _, c := range []struct{ dialects, quota string }{
		{"{plain: {}, nvidia: {}}", `{spec: {hard: {cpu: 1, pods: 0, count/pods: 1, requests.memory: 1Gi, nvidia.com/gpumem: 0}}}`},
		{"{nvidia: {}}", `{spec: {scopes: [BestEffort], hard: {requests.nvidia.com/gpu: 0}}}`},
		{"{nvidia: {}}", `{spec: {hard: {requests.nvidia.com/gpu: 1e10000000}}}`},
		{"{}", `{spec: {hard: {requests.nvidia.com/gpu: 0}}}`},
	} {
		quota := &corev1.ResourceQuota{}
		if err := yaml.UnmarshalStrict([]byte(c.quota), quota); err != nil {
			t.Fatal(err)
		}
		if got := newTranslator(t, c.dialects).Limits(quota); len(got) > 0 {
			t.Errorf("%s says %+v", c.quota, got)
		}
	}
}
