package chart_test

import (
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/test/chart/render"
	corev1 "k8s.io/api/core/v1"
)

// The example of swap asks for what its comment says: an annotation with another name would be none.
func TestSwapExample(t *testing.T) {
	text, err := os.ReadFile("../../docs/examples/swap.yaml")
	if err != nil {
		t.Fatal(err)
	}
	parts, err := render.Split(text)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, part := range parts {
		pod := podOf(strict(t, part))
		made, err := translator(t, "swap.yaml").Translate(pod, dialect.Inventory{Sizes: []uint64{16 << 30}})
		if err != nil || len(made.Templates) != 1 {
			t.Fatalf("%+v, %v", made, err)
		}
		devices := made.Templates[0].Spec.Spec.Devices
		memory := devices.Requests[0].Exactly.Capacity.Requests
		limit, swapped := memory["memory"], memory["swapMemory"]
		asked = append(asked, limit.String()+" "+swapped.String()+" "+string(devices.Config[0].Opaque.Parameters.Raw))
		if _, limited := pod.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory]; limited {
			t.Error("a limit of memory has to hold what comes back from the GPU")
		}
	}
	if len(asked) != 2 || !strings.HasPrefix(asked[0], "1Gi 7Gi ") || !strings.Contains(asked[0], `"swap":true`) || !strings.HasPrefix(asked[1], "5Gi 0 ") || !strings.Contains(asked[1], `"suspendAfter":"10m`) {
		t.Errorf("it asks for %q", asked)
	}
}
