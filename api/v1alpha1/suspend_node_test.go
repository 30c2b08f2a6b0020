package v1alpha1

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestSuspendNode(t *testing.T) {
	long := strings.Repeat("a.", 120) + "b"
	seen := map[string]string{}
	for _, node := range []string{"n1", "gpu-7.example.com", strings.Repeat("n", 63), strings.Repeat("n", 64), long, long + "c"} {
		value := SuspendNode(node)
		if faults := validation.IsValidLabelValue(value); len(faults) > 0 {
			t.Errorf("node %s has the label %s, which is none: %v", node, value, faults)
		}
		if len(node) <= 63 && value != node {
			t.Errorf("node %s has the label %s", node, value)
		}
		if other, twice := seen[value]; twice {
			t.Errorf("%s and %s have one label, %s", node, other, value)
		}
		seen[value] = node
	}
}
