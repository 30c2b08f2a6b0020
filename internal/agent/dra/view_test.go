package dra

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
)

// A share is refused to a container on a kernel of its own, what it does not name is not, and a whole GPU is not.
func TestKernelsOfTheirOwn(t *testing.T) {
	allocations, err := allocationsOf(claimWith(result("r", firstID, "4Gi", "0"), wholeResult("w", otherID)), nodeName, noDefaults)
	if err != nil {
		t.Fatal(err)
	}
	r := newMachine(t).start()
	for _, c := range []struct {
		class   *string
		request string
		refused bool
	}{{ptr.To("kata-qemu"), "r", true}, {ptr.To("kata-qemu"), "", true}, {ptr.To("kata-qemu"), "w", false}, {ptr.To("nvidia"), "r", false}, {nil, "r", false}} {
		pod := podOf("p", map[string][]ref{"main": {{"a", c.request}}})
		pod.Spec.RuntimeClassName = c.class
		uses, err := usesOf(pod, claimWith())
		if err != nil || len(uses) != 1 {
			t.Fatal(uses, err)
		}
		err = r.checkKernel(t.Context(), &uses[0], allocations)
		if (err != nil) != c.refused || err != nil && (!errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), `runtime class "kata-qemu"`)) {
			t.Errorf("request %q: %v", c.request, err)
		}
	}
}
