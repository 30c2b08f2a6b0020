package dialect

import (
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// instance checks a request for MIG instances. The amounts that it names are the least that the instance has.
func (v *validation) instance(a ask) {
	if a.admin {
		v.fault("request %s: admin access is to GPUs and not to MIG instances: ask for it by class %s", a.name, v1alpha1.ClassWhole)
		return
	}
	if a.count > 1 {
		v.fault("request %s: %d MIG instances: ask for one in each request and name one request in each container, because a process can use one instance only", a.name, a.count)
	}
	if a.capacity == nil {
		return
	}
	for _, name := range sortedKeys(a.capacity.Requests) {
		quantity := a.capacity.Requests[name]
		switch name {
		case v1alpha1.CapacityMemory, v1alpha1.CapacityCores:
			if n, ok := WholeNumber(quantity); !ok || n <= 0 || name == v1alpha1.CapacityCores && n > v1alpha1.MaxCores {
				v.fault("request %s: %s %s: give a positive whole number, at most what an instance can have", a.name, name, quantity.String())
			}
		default:
			v.fault("request %s: a MIG instance has memory and cores, and no %q", a.name, name)
		}
	}
}

// isInstance reports whether a device of Divvy's is a MIG instance.
func isInstance(device string) bool { return strings.Contains(device, v1alpha1.InstanceMark) }

// instanceOf is what a MIG instance of so many bytes counts for: a GPU with that memory, and no part of any GPU's time. One
// that is asked for by its profile counts without memory until it is known which it is.
func instanceOf(memory uint64) Use { return Use{GPUs: 1, Memory: memory, Instances: 1} }
