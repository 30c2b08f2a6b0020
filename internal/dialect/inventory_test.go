package dialect

import (
	"os"
	"reflect"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
)

func TestInventoryOf(t *testing.T) {
	var published []resourcev1.ResourceSlice
	if err := yaml.UnmarshalStrict([]byte(`
- spec:
    driver: divvy.dev
    devices:
    - {name: gpu-0-shared, allowMultipleAllocations: true, capacity: {memory: {value: 40Gi}}}
    - {name: gpu-0, capacity: {memory: {value: 41Gi}}}
    - {name: gpu-1-shared, allowMultipleAllocations: true, capacity: {memory: {value: 16Gi}}}
    - {name: gpu-2-shared, allowMultipleAllocations: true, capacity: {memory: {value: 40Gi}}}
    - {name: odd, allowMultipleAllocations: true, capacity: {memory: {value: 500m}}}
    - {name: huge, allowMultipleAllocations: true, capacity: {memory: {value: 1e10000000}}}
    - {name: none, allowMultipleAllocations: true, capacity: {memory: {value: 0}}}
    - {name: without, allowMultipleAllocations: true}
    - {name: lost, allowMultipleAllocations: true, capacity: {memory: {value: 3Gi}}, taints: [{key: divvy.dev/unhealthy, value: lost, effect: NoExecute}]}
    - {name: ill, allowMultipleAllocations: true, capacity: {memory: {value: 24Gi}}, taints: [{key: divvy.dev/unhealthy, value: xid-79, effect: NoSchedule}]}
- spec:
    driver: gpu.example.com
    devices: [{name: gpu-0, allowMultipleAllocations: true, capacity: {memory: {value: 80Gi}}}]
`), &published); err != nil {
		t.Fatal(err)
	}
	if got, want := InventoryOf(published).Sizes, []uint64{16 << 30, 24 << 30, 40 << 30}; !reflect.DeepEqual(got, want) {
		t.Errorf("sizes %v, want %v", got, want)
	}
}

func TestPartsNeedKnownSizes(t *testing.T) {
	translator := newTranslator(t, "{hami: {}, kai: {}}")
	half := limitsOf(t, "nvidia.com/gpumem-percentage: 50")
	sizes := func(n int) (i Inventory) {
		for k := range n {
			i.Sizes = append(i.Sizes, uint64(k+1)<<30)
		}
		return i
	}
	if got, want := translated(t, translator, half, Inventory{}), `container "main" asks for a part of a GPU's memory, and no GPU of the cluster is known: ask for an amount`; got != want {
		t.Errorf("got %s", got)
	}
	if got := translated(t, translator, half, sizes(8)); strings.Count(got, " or ") != 7 || !strings.HasPrefix(got, "main: 1 share memory=512Mi") {
		t.Errorf("8 sizes: %s", got)
	}
	if got := translated(t, translator, limitsOf(t, "nvidia.com/gpumem: 1"), sizes(9)); got != "main: 1 share memory=1Mi weighted" {
		t.Errorf("an amount with 9 sizes: %s", got)
	}
	small := readPod(t, `{metadata: {annotations: {gpu-fraction: "0.0005"}}, spec: {containers: [{name: main}]}}`)
	if got := translated(t, translator, small, Inventory{Sizes: []uint64{1 << 30, 16 << 30}}); strings.Contains(got, " or ") || !strings.HasPrefix(got, "main: 1 share memory=8Mi") {
		t.Errorf("less than a block of the smaller GPU: %s", got)
	}
}

// TestDocumented keeps the page for users in step: every dialect has a section, and the configuration shown is valid.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/dialects.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for name := range dialects {
		if name != "plain" && strings.Count(page, ": `"+name+"`\n") != 1 {
			t.Errorf("dialect %s has no section of its own", name)
		}
		if !strings.Contains(page, "\n| `"+name+"` | ") {
			t.Errorf("the options of dialect %s are not listed", name)
		}
	}
	_, after, _ := strings.Cut(page, "    apiVersion:")
	shown, _, _ := strings.Cut("    apiVersion:"+after, "\n\n")
	if _, err := NewTranslator([]byte(strings.ReplaceAll("\n"+shown, "\n    ", "\n"))); err != nil {
		t.Errorf("the configuration shown: %v", err)
	}
}
