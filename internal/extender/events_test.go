package extender

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/validation"
)

// An event on a node of any name has a name that an API server takes.
func TestNamesOfEvents(t *testing.T) {
	for _, node := range []string{"n", "gpu-1.example.com", strings.Repeat("a", mostOfName), strings.Repeat("a", mostOfName-1) + ".b", strings.Repeat("a", mostOfName-3) + "--.b", strings.Repeat("a", 253)} {
		name := nameOf(node)
		if faults := validation.NameIsDNSSubdomain(name+"x2x4f", false); len(faults) > 0 || !strings.HasPrefix(node, strings.TrimSuffix(name, "-")) {
			t.Errorf("%s: %v", name, faults)
		}
	}
	if name := nameOf("gpu-1"); name != "gpu-1-" {
		t.Errorf("gpu-1: %s", name)
	}
}
