package dialect

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

// rangesFor reads a list of LimitRanges' items, the first of LimitRange r0 and so on.
func rangesFor(t testing.TB, translator *Translator, items string) []Range {
	t.Helper()
	var all []corev1.LimitRangeItem
	if err := yaml.UnmarshalStrict([]byte(items), &all); err != nil {
		t.Fatal(err)
	}
	var ranges []Range
	for i := range all {
		limitRange := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: all[i : i+1]}}
		limitRange.Name = "r" + string(rune('0'+i))
		ranges = append(ranges, translator.Ranges(limitRange)...)
	}
	slices.SortStableFunc(ranges, CompareRanges)
	return ranges
}

// TestLimitRanges has LimitRanges allow or refuse what pods ask. GPUs have 16 and 40 GiB.
func TestLimitRanges(t *testing.T) {
	var slices []resourcev1.ResourceSlice
	if err := yaml.UnmarshalStrict([]byte(quotaSlices), &slices); err != nil {
		t.Fatal(err)
	}
	const one, side = "containers: [{name: a, resources: {limits: {LIMITS}}}]", "initContainers: [{name: s, restartPolicy: Always, resources: {limits: {LIMITS}}}], "
	for _, c := range []struct{ name, dialects, items, spec, limits, refusal string }{
		{"at most", "{nvidia: {}}", "[{type: Container, max: {nvidia.com/gpu: 2}, default: {nvidia.com/gpu: 0}}]", one, "nvidia.com/gpu: 2", ""},
		{"more", "{nvidia: {}}", "[{type: Container, max: {nvidia.com/gpu: 2}, default: {nvidia.com/gpu: 0}}]", one, "nvidia.com/gpu: 3",
			`LimitRange "r0" allows 2 of nvidia.com/gpu, and container a asks for 3`},
		{"another form", "{nvidia: {}, plain: {}}", "[{type: Container, max: {nvidia.com/gpu: 2}}]", one, "divvy.dev/gpu: 3", "asks for 3"},
		{"another dialect's", "{nvidia: {}}", "[{type: Container, max: {volcano.sh/vgpu-number: 1}}]", one, "nvidia.com/gpu: 3", ""},
		{"of volumes", "{nvidia: {}}", "[{type: PersistentVolumeClaim, max: {nvidia.com/gpu: 1}}]", one, "nvidia.com/gpu: 3", ""},
		{"memory", "{hami: {}}", "[{type: Container, max: {nvidia.com/gpumem: 8192}}]", one, "nvidia.com/gpumem: 8193", "allows 8192 of nvidia.com/gpumem, and container a asks for 8193"},
		{"all of a GPU's memory", "{hami: {}}", "[{type: Container, max: {nvidia.com/gpumem: 8192}}]", one, "nvidia.com/gpu: 1", "asks for 40960"},
		{"part of it", "{hami: {}}", "[{type: Container, max: {nvidia.com/gpumem: 8192}}]", one, "nvidia.com/gpumem-percentage: 50", "asks for 20480"},
		{"in bytes", "{plain: {}}", "[{type: Container, max: {divvy.dev/gpu-memory: 1Gi}}]", one, "divvy.dev/gpu-memory: 2Gi", "allows 1Gi of divvy.dev/gpu-memory, and container a asks for 2Gi"},
		{"more than counts", "{plain: {}}", "[{type: Container, max: {divvy.dev/gpu-memory: 9E}}]", one, "divvy.dev/gpu-memory: 2Gi", ""},
		{"half a GPU", "{nvidia: {}}", "[{type: Container, max: {nvidia.com/gpu: 1500m}}]", one, "nvidia.com/gpu: 2", "allows 1500m of nvidia.com/gpu, and container a asks for 2"},
		{"the second", "{nvidia: {}}", "[{type: Container, max: {nvidia.com/gpu: 2}}, {type: Container, max: {nvidia.com/gpu: 1}}]", one, "nvidia.com/gpu: 2", `LimitRange "r1" allows 1`},
		{"a pod's", "{nvidia: {}}", "[{type: Pod, max: {nvidia.com/gpu: 2}}]", side + one, "nvidia.com/gpu: 1", ""},
		{"a pod's sidecar", "{nvidia: {}}", "[{type: Pod, max: {nvidia.com/gpu: 3}}]", side + one, "nvidia.com/gpu: 2", `LimitRange "r0" allows 3 of nvidia.com/gpu, and the pod asks for 4`},
		{"an init container before", "{nvidia: {}}", "[{type: Pod, max: {nvidia.com/gpu: 2}}]", strings.Replace(side, "restartPolicy: Always, ", "", 1) + one, "nvidia.com/gpu: 2", ""},
		{"an init container of more", "{nvidia: {}}", "[{type: Pod, max: {nvidia.com/gpu: 2}}]", "initContainers: [{name: i, resources: {limits: {nvidia.com/gpu: 3}}}], " + one, "nvidia.com/gpu: 1", "the pod asks for 3"},
		{"an init container beside a sidecar", "{nvidia: {}}", "[{type: Pod, max: {nvidia.com/gpu: 2}}]",
			strings.Replace(side, "}}}]", "}}}, {name: i, resources: {limits: {nvidia.com/gpu: 2}}}]", 1) + "containers: [{name: a}]", "nvidia.com/gpu: 1", "the pod asks for 3"},
		{"a min", "{nvidia: {}}", "[{type: Container, min: {nvidia.com/gpu: 1}}]", one, "nvidia.com/gpu: 1", `LimitRange "r0" has a min of nvidia.com/gpu`},
		{"a min of nothing", "{nvidia: {}}", "[{type: Container, min: {nvidia.com/gpu: 0}}]", one, "nvidia.com/gpu: 1", ""},
		{"a ratio", "{nvidia: {}}", "[{type: Pod, maxLimitRequestRatio: {nvidia.com/gpu: 1}}]", one, "nvidia.com/gpu: 1", `LimitRange "r0" has a maxLimitRequestRatio of nvidia.com/gpu`},
		{"a default of another dialect", "{nvidia: {}, plain: {}}", "[{type: Container, default: {nvidia.com/gpu: 1}}]", one, "nvidia.com/gpu: 1, divvy.dev/gpu-memory: 1Gi",
			`in two dialects, nvidia and plain: use one (LimitRange "r0" adds nvidia.com/gpu where it is left out: write 0 of it)`},
		{"slots know a max", "{nvidia: {}}\nmode: slots", "[{type: Container, max: {nvidia.com/gpu: 2}}]", one, "nvidia.com/gpu: 3", "allows 2 of nvidia.com/gpu, and container a asks for 3"},
		{"slots know a min", "{nvidia: {}}\nmode: slots", "[{type: Container, min: {nvidia.com/gpu: 1}}]", one, "nvidia.com/gpu: 1", "has a min of"},
	} {
		translator := newTranslator(t, c.dialects)
		inventory := Inventory{Sizes: sixteenForty.Sizes, Ranges: rangesFor(t, translator, c.items), Counting: SizesOf(slices)}
		_, err := translator.Translate(readPod(t, "spec: {"+strings.ReplaceAll(c.spec, "LIMITS", c.limits)+"}"), inventory)
		switch {
		case c.refusal == "" && err != nil, c.refusal != "" && !errors.Is(err, ErrRefused):
			t.Errorf("%s: %v", c.name, err)
		case err != nil && !strings.Contains(err.Error(), c.refusal):
			t.Errorf("%s: %v, without %q", c.name, err, c.refusal)
		}
	}
}

// TestLimitRangesOfUnknownSizes has a LimitRange bound memory where no GPU's size is known.
func TestLimitRangesOfUnknownSizes(t *testing.T) {
	translator := newTranslator(t, "{hami: {}}")
	inventory := Inventory{Ranges: rangesFor(t, translator, "[{type: Container, max: {nvidia.com/gpumem: 8192}}]"), Counting: SizesOf(nil)}
	_, err := translator.Translate(limitsOf(t, "nvidia.com/gpu: 1"), inventory)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), `LimitRange "r0" limits nvidia.com/gpumem: give the request of container main an amount`) {
		t.Errorf("all of a GPU of unknown size: %v", err)
	}
	if _, err := translator.Translate(limitsOf(t, "nvidia.com/gpumem: 100"), inventory); err != nil {
		t.Error(err)
	}
}

// TestLimitRangesLeaveZeros has what LimitRanges name stay in the pod as 0, so that nothing is added in its place.
func TestLimitRangesLeaveZeros(t *testing.T) {
	for _, c := range []struct{ dialects, claims string }{{"{hami: {}}", "divvy-main"}, {"{hami: {}}\nmode: slots", ""}} {
		translator := newTranslator(t, c.dialects)
		inventory := Inventory{Sizes: sixteen.Sizes, Ranges: rangesFor(t, translator, "[{type: Container, default: {nvidia.com/gpu: 1, cpu: 1}}]"), Counting: SizesOf(nil)}
		pod := readPod(t, "spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 100, cpu: 1}, requests: {nvidia.com/gpu: 1}}}]}")
		made, err := translator.Translate(pod, inventory)
		if err != nil {
			t.Fatal(err)
		}
		patched := apply(t, pod, made.Patch)
		got := patched.Spec.Containers[0].Resources
		limit, request := got.Limits["nvidia.com/gpu"], got.Requests["nvidia.com/gpu"]
		if _, left := got.Limits["nvidia.com/gpumem"]; left || limit.String() != "0" || request.String() != "0" || len(got.Limits) < 2 {
			t.Errorf("%s: %v", c.dialects, got)
		}
		if len(got.Claims) > 0 && got.Claims[0].Name != c.claims || len(got.Claims) == 0 && c.claims != "" {
			t.Errorf("%s: claims %v", c.dialects, got.Claims)
		}
		if translator.Match(patched) {
			t.Errorf("%s: it would be translated again", c.dialects)
		}
	}
}
