package main

import (
	"errors"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// What is given twice for a moment is found, and what is given, let go and given again is not.
func TestHanded(t *testing.T) {
	const here = "node-0001"
	capacity := map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{v1alpha1.CapacityMemory: {Value: resource.MustParse("16Gi")}}
	slices := []resourcev1.ResourceSlice{*sliceOf(v1alpha1.Driver, 1, 0, []resourcev1.Device{{Name: "one", Capacity: capacity}, {Name: "two", Capacity: capacity}})}
	has := func(name string, all ...granted) *resourcev1.ResourceClaim {
		claim := claimOf(name, all...)
		claim.UID = types.UID(name)
		if len(all) == 0 {
			claim.Status.Allocation = nil
		}
		return &claim
	}
	for name, test := range map[string]struct {
		steps []*resourcev1.ResourceClaim // one without devices has let go, or has gone
		want  string
	}{
		"in turn":         {[]*resourcev1.ResourceClaim{has("a", granted{here, "one", ""}), has("a"), has("b", granted{here, "one", ""})}, ""},
		"for a moment":    {[]*resourcev1.ResourceClaim{has("a", granted{here, "one", ""}), has("b", granted{here, "one", ""}), has("a")}, "2 have it whole"},
		"side by side":    {[]*resourcev1.ResourceClaim{has("a", granted{here, "one", ""}), has("b", granted{here, "two", ""})}, ""},
		"said again":      {[]*resourcev1.ResourceClaim{has("a", granted{here, "one", ""}), has("a", granted{here, "one", ""})}, ""},
		"shares":          {[]*resourcev1.ResourceClaim{has("a", granted{here, "one", "8Gi"}), has("b", granted{here, "one", "8Gi"})}, ""},
		"shares in turn":  {[]*resourcev1.ResourceClaim{has("a", granted{here, "one", "9Gi"}), has("a"), has("b", granted{here, "one", "8Gi"})}, ""},
		"too large":       {[]*resourcev1.ResourceClaim{has("a", granted{here, "one", "9Gi"}), has("b", granted{here, "one", "8Gi"})}, "17Gi of 16Gi memory"},
		"nobody has that": {[]*resourcev1.ResourceClaim{has("a", granted{here, "three", ""})}, "which nobody publishes"},
	} {
		for _, gone := range []bool{false, true} {
			h := newHanded(slices)
			for _, claim := range test.steps {
				h.see(claim, gone && claim.Status.Allocation == nil)
			}
			if err := errors.Join(h.faults...); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, gone=%v: got %v, want %q", name, gone, err, test.want)
			}
		}
	}
}
