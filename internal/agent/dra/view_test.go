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

// The container that a part of a claim is for is named where there is one.
func TestContainerOfAView(t *testing.T) {
	of := func(container string, requests ...string) use {
		return use{pod: "p", container: container, requests: requests}
	}
	all := []string{"r", "s"}
	for _, c := range []struct {
		view view
		uses []use
		want string
	}{
		{view{"r", "s"}, []use{of("main")}, "main"},
		{view{"r", "s"}, []use{of("main"), of("side")}, ""},
		{view{"r", "s"}, []use{of("main"), {pod: "another", container: "main"}}, "main"},
		{view{"r"}, []use{of("main", "r"), of("side", "s")}, "main"},
		{view{"s"}, []use{of("main", "r"), of("side", "s"), of("logs", "another")}, "side"},
		{view{"s"}, []use{of("main", "r")}, ""},
		{view{"r"}, nil, ""},
	} {
		if got := containerOf(c.view, all, c.uses); got != c.want {
			t.Errorf("%v for %+v is for %q, want %q", c.view, c.uses, got, c.want)
		}
	}
}
