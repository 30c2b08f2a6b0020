package dialect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// isAdmins reports whether a request asks for admin access.
func isAdmins(r *resourcev1.ExactDeviceRequest) bool { return r.AdminAccess != nil && *r.AdminAccess }

// TakesNothing returns an error unless all amounts that a request with admin access names are 0: it is no share, and who
// names an amount expects a limit.
func TakesNothing(amounts map[resourcev1.QualifiedName]resource.Quantity) error {
	var named []string
	for _, name := range sortedKeys(amounts) {
		if quantity := amounts[name]; !quantity.IsZero() {
			named = append(named, fmt.Sprintf("%s %s", name, quantity.String()))
		}
	}
	if len(named) == 0 {
		return nil
	}
	return fmt.Errorf("admin access takes nothing of a GPU and has no limit: leave out %s", strings.Join(named, " and "))
}

// OpenPatch makes requests for admin access to Divvy's devices take nothing of them. Kubernetes 1.36 allocates a request
// with admin access only where what it asks is free, and without amounts that is all of a GPU. Path leads to the claim's
// specification in its object.
func (c Classes) OpenPatch(spec *resourcev1.ResourceClaimSpec, path ...string) Patch {
	var p Patch
	for i := range spec.Devices.Requests {
		e := spec.Devices.Requests[i].Exactly
		if e == nil || !isAdmins(e) || e.Capacity != nil || c.instance(e.DeviceClassName) || !c.Ours(e.DeviceClassName) {
			continue
		}
		nothing := map[string]string{v1alpha1.CapacityMemory: "0", v1alpha1.CapacityCores: "0", v1alpha1.CapacitySlots: "0"}
		p.add(map[string]any{"requests": nothing}, slices.Concat(path, []string{"devices", "requests", strconv.Itoa(i), "exactly", "capacity"})...)
	}
	return p
}
