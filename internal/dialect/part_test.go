package dialect

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// TestPartsOfManySizes asks for a part of a GPU in clusters with any number of sizes. Every GPU must be in exactly one
// alternative, must give no more than its part, and so many parts as were asked must fit on it.
func TestPartsOfManySizes(t *testing.T) {
	random := rand.New(rand.NewSource(3))
	translator := newTranslator(t, "{plain: {}}")
	for n := range 60 {
		var inventory Inventory
		for range n + 1 {
			inventory.Sizes = append(inventory.Sizes, uint64(8+random.Intn(1<<18))<<20)
		}
		percent := 1 + random.Intn(99)
		pod := limitsOf(t, fmt.Sprintf("divvy.dev/gpu-memory-percent: %d", percent))
		made, err := translator.Translate(pod, inventory)
		if err != nil {
			t.Fatalf("%d sizes: %v", n+1, err)
		}
		ways := made.Templates[0].Spec.Spec.Devices.Requests[0].FirstAvailable
		if len(ways) == 0 || len(ways) > resourcev1.FirstAvailableDeviceRequestMaxSize {
			t.Errorf("%d sizes: %d alternatives", n+1, len(ways))
		}
		if err := (Classes{}).ValidateClaim(&made.Templates[0].Spec.Spec); err != nil {
			t.Error(err)
		}
		for _, size := range inventory.Sizes {
			checkPart(t, ways, size, percent)
		}
	}
}

func checkPart(t *testing.T, ways []resourcev1.DeviceSubRequest, size uint64, percent int) {
	t.Helper()
	var mine []resourcev1.DeviceSubRequest
	for _, way := range ways {
		least, most := boundsOf(t, way.Selectors[0].CEL.Expression)
		if size >= least && size <= most {
			mine = append(mine, way)
		}
	}
	own := v1alpha1.PartOf(uint64(percent), 100).Of(size)
	if len(mine) != 1 {
		if len(mine) == 0 && own < 2*v1alpha1.BlockBytes {
			return // a block or less: the smallest of its range has none
		}
		t.Errorf("a GPU of %d bytes is in %d alternatives", size, len(mine))
		return
	}
	got := ptr(mine[0].Capacity.Requests[v1alpha1.CapacityMemory]).Value()
	if got <= 0 || uint64(got) > own {
		t.Errorf("a GPU of %d bytes gives %d, and %d percent of it are %d", size, got, percent, own)
	}
}

// boundsOf reads the sizes that an alternative selects.
func boundsOf(t *testing.T, expression string) (least, most uint64) {
	t.Helper()
	const memory = `device.capacity["divvy.dev"].memory.compareTo(quantity("%d")) `
	if _, err := fmt.Sscanf(expression, memory+"== 0", &least); err == nil {
		return least, least
	}
	if _, err := fmt.Sscanf(expression, memory+">= 0 && "+memory+"<= 0", &least, &most); err != nil {
		t.Errorf("%s selects no sizes: %v", expression, err)
	}
	return least, most
}

// TestNearSizesShare gives three models three drivers each: nine sizes, of which those of one model lie close together.
// The ninth costs one model next to nothing, and nobody is told of it.
func TestNearSizesShare(t *testing.T) {
	var inventory Inventory
	for _, model := range []uint64{15 << 10, 40 << 10, 80 << 10} {
		for driver := range uint64(3) {
			inventory.Sizes = append(inventory.Sizes, (model-driver*20)<<20)
		}
	}
	translator := newTranslator(t, "{plain: {}}")
	made, err := translator.Translate(limitsOf(t, "divvy.dev/gpu-memory-percent: 50"), inventory)
	if err != nil {
		t.Fatal(err)
	}
	ways := made.Templates[0].Spec.Spec.Devices.Requests[0].FirstAvailable
	for _, size := range inventory.Sizes {
		for _, way := range ways {
			if least, most := boundsOf(t, way.Selectors[0].CEL.Expression); size >= least && size <= most && float64(size-least) > noticeable*float64(size) {
				t.Errorf("a GPU of %d bytes gives as much as one of %d", size, least)
			}
		}
	}
	if len(made.Warnings) != 0 {
		t.Errorf("it warns: %q", made.Warnings)
	}
}

// TestShortfallIsTold warns of a part that some GPUs give noticeably less of.
func TestShortfallIsTold(t *testing.T) {
	translator := newTranslator(t, "{plain: {}}")
	var inventory Inventory
	for n := range uint64(10) {
		inventory.Sizes = append(inventory.Sizes, (n+1)<<33)
	}
	made, err := translator.Translate(limitsOf(t, "divvy.dev/gpu-memory-percent: 50"), inventory)
	if err != nil {
		t.Fatal(err)
	}
	if len(made.Warnings) != 1 || !strings.Contains(made.Warnings[0], `container "main"`) || strings.ContainsAny(made.Warnings[0], "\n\r") {
		t.Errorf("warnings %q", made.Warnings)
	}
	if made, err = translator.Translate(limitsOf(t, "divvy.dev/gpu-memory: 4Gi"), inventory); err != nil || len(made.Warnings) != 0 {
		t.Errorf("an amount: %q, %v", made.Warnings, err)
	}
}
