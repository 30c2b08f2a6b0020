package dialect

import (
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a ResourceQuota can hold of GPUs. Kubernetes gives extended resources no other prefix than "requests.".
const (
	quotaGPUs   = corev1.ResourceName(corev1.DefaultResourceRequestsPrefix + v1alpha1.ResourceGPU)
	quotaMemory = corev1.ResourceName(corev1.DefaultResourceRequestsPrefix + v1alpha1.ResourceMemory)
	quotaCores  = corev1.ResourceName(corev1.DefaultResourceRequestsPrefix + v1alpha1.ResourceCores)
)

// Use is what claims take, summed over their GPUs.
type Use struct {
	// GPUs counts a GPU once for every share of it.
	GPUs uint64
	// Memory is in bytes.
	Memory uint64
	// Cores is in percent of one GPU's time; a whole GPU is 100.
	Cores uint64
	// Unsized is true if the claims take all the memory of a GPU whose size is not known. Uncounted is true if they
	// take all GPUs of a node.
	Unsized, Uncounted bool
}

// Plus returns the sum of both.
func (u Use) Plus(other Use) Use {
	return Use{u.GPUs + other.GPUs, u.Memory + other.Memory, u.Cores + other.Cores, u.Unsized || other.Unsized, u.Uncounted || other.Uncounted}
}

// larger returns the maximum of both, field by field.
func (u Use) larger(other Use) Use {
	return Use{max(u.GPUs, other.GPUs), max(u.Memory, other.Memory), max(u.Cores, other.Cores), u.Unsized || other.Unsized, u.Uncounted || other.Uncounted}
}

// Sizes holds how much memory each published GPU has, and how many cores a share gets that asks for none.
type Sizes struct {
	of      map[deviceID]uint64
	largest uint64
	// cores is the largest default of any GPU for shares that ask for no cores.
	cores uint64
}

type deviceID struct{ pool, device string }

// SizesOf reads the sizes of all devices that the driver published.
func SizesOf(published []resourcev1.ResourceSlice) Sizes {
	sizes := Sizes{of: make(map[deviceID]uint64)}
	for k := range published {
		slice := &published[k]
		if slice.Spec.Driver != v1alpha1.Driver {
			continue
		}
		for i := range slice.Spec.Devices {
			device := &slice.Spec.Devices[i]
			memory, ok := device.Capacity[v1alpha1.CapacityMemory]
			if n, whole := WholeNumber(memory.Value); ok && whole && n > 0 {
				sizes.of[deviceID{slice.Spec.Pool.Name, device.Name}] = uint64(n)
				sizes.largest = max(sizes.largest, uint64(n))
			}
			if policy := device.Capacity[v1alpha1.CapacityCores].RequestPolicy; policy != nil && policy.Default != nil {
				if n, whole := WholeNumber(*policy.Default); whole && n > 0 {
					sizes.cores = max(sizes.cores, uint64(min(n, v1alpha1.MaxCores)))
				}
			}
		}
	}
	return sizes
}

// UseOf returns what a claim takes of Divvy's GPUs: what was allocated to it, or before that the most that its spec can
// come to with GPUs of these sizes.
func UseOf(spec *resourcev1.ResourceClaimSpec, allocation *resourcev1.AllocationResult, sizes Sizes) Use {
	if allocation != nil {
		return allocated(spec, allocation, sizes)
	}
	var sum Use
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		if e := r.Exactly; e != nil && (e.AdminAccess == nil || !*e.AdminAccess) {
			sum = sum.Plus(asked(e.DeviceClassName, e.AllocationMode, e.Count, e.Capacity, sizes))
		}
		var most Use
		for _, way := range r.FirstAvailable {
			most = most.larger(asked(way.DeviceClassName, way.AllocationMode, way.Count, way.Capacity, sizes))
		}
		sum = sum.Plus(most)
	}
	return sum
}

func allocated(spec *resourcev1.ResourceClaimSpec, allocation *resourcev1.AllocationResult, sizes Sizes) Use {
	var sum Use
	asks := requestsOf(spec)
	for i := range allocation.Devices.Results {
		r := &allocation.Devices.Results[i]
		if r.Driver != v1alpha1.Driver || r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		one := Use{GPUs: 1, Memory: sizes.of[deviceID{r.Pool, r.Device}], Cores: 100}
		whole := slices.ContainsFunc(asks, func(a ask) bool { return a.name == r.Request && a.class == v1alpha1.ClassWhole })
		if r.ShareID != nil && !whole {
			one.Cores = amount(r.ConsumedCapacity, v1alpha1.CapacityCores)
		}
		if memory := amount(r.ConsumedCapacity, v1alpha1.CapacityMemory); memory > 0 {
			one.Memory = memory
		}
		sum = sum.Plus(one)
	}
	return sum
}

// asked returns the most that a request, or one alternative of it, can come to.
func asked(class string, mode resourcev1.DeviceAllocationMode, count int64, capacity *resourcev1.CapacityRequirements, sizes Sizes) Use {
	one := Use{GPUs: 1, Memory: sizes.largest, Cores: 100, Unsized: sizes.largest == 0}
	switch class {
	case v1alpha1.ClassWhole:
	case v1alpha1.ClassShare:
		one.Cores = sizes.cores
		if capacity == nil {
			break
		}
		if _, said := capacity.Requests[v1alpha1.CapacityCores]; said {
			one.Cores = amount(capacity.Requests, v1alpha1.CapacityCores)
		}
		if memory := amount(capacity.Requests, v1alpha1.CapacityMemory); memory > 0 {
			one.Memory, one.Unsized = memory, false
		}
	default:
		return Use{}
	}
	n := uint64(min(max(count, 1), MaxGPUs))
	return Use{n, n * one.Memory, n * one.Cores, one.Unsized, mode == resourcev1.DeviceAllocationModeAll}
}

// amount returns a whole quantity, at most 1<<50 so that sums do not overflow, or 0 for any other quantity.
func amount(from map[resourcev1.QualifiedName]resource.Quantity, name resourcev1.QualifiedName) uint64 {
	n, ok := WholeNumber(from[name])
	if !ok || n < 0 {
		return 0
	}
	return uint64(min(n, 1<<50))
}

// CheckQuota refuses a request that would exceed a quota of its namespace. Used is what the namespace's claims take
// already, more is what the request adds. Quotas with scopes are not enforced, because scopes select pods, not claims.
// An error wraps [ErrRefused].
func CheckQuota(quotas []*corev1.ResourceQuota, used, more Use) error {
	sorted := slices.Clone(quotas)
	slices.SortFunc(sorted, func(a, b *corev1.ResourceQuota) int { return compareNames(a, b) })
	for _, quota := range sorted {
		if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
			continue
		}
		for _, held := range []struct {
			name       corev1.ResourceName
			used, more uint64
			unknown    bool
			format     resource.Format
		}{
			{quotaGPUs, used.GPUs, more.GPUs, more.Uncounted, resource.DecimalSI},
			{quotaMemory, used.Memory, more.Memory, more.Uncounted || more.Unsized, resource.BinarySI},
			{quotaCores, used.Cores, more.Cores, more.Uncounted, resource.DecimalSI},
		} {
			hard, ok := quota.Spec.Hard[held.name]
			if !ok || hard.AsApproximateFloat64() >= 1<<62 {
				continue
			}
			if held.unknown {
				return refuse("quota %q limits %s: give the request an amount of memory or a number of GPUs", quota.Name, held.name)
			}
			sum := resource.NewQuantity(int64(held.used+held.more), held.format)
			if held.more > 0 && sum.Cmp(hard) > 0 {
				return refuse("quota %q allows %s of %s: %s are used, and %s more would be %s", quota.Name, hard.String(), held.name,
					resource.NewQuantity(int64(held.used), held.format), resource.NewQuantity(int64(held.more), held.format), sum)
			}
		}
	}
	return nil
}

func compareNames(a, b metav1.Object) int {
	switch {
	case a.GetName() < b.GetName():
		return -1
	case a.GetName() > b.GetName():
		return 1
	}
	return 0
}
