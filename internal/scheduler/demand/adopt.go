package demand

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Adopt reads what a claim's allocation holds of Divvy's GPUs, as an assignment without a part of the host; ok is false
// where it holds nothing. Devices that are not published are told by their names. Who monitors GPUs with admin access
// holds nothing of them.
func Adopt(claim *Claim, published Published) (a alloc.Assignment, ok bool) {
	if claim.Allocation == nil {
		return a, false
	}
	for i := range claim.Allocation.Devices.Results {
		r := &claim.Allocation.Devices.Results[i]
		if r.Driver != v1alpha1.Driver || r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		node, share, known := locate(r, published)
		if !known {
			continue
		}
		switch {
		case share.Profile != "", share.NIC != "":
		case r.ShareID == nil || v1alpha1.IsWholeClass(classOf(claim.Spec, r.Request)):
			share.Whole, share.Cores, share.Limit = true, v1alpha1.MaxCores, amountOf(r, v1alpha1.CapacityMemory)
			if _, device, ok := published.Device(node, &share); ok && r.ShareID == nil {
				all := device.Capacity[v1alpha1.CapacityMemory]
				share.Limit = uint64(max(0, all.Value.Value()))
			}
		default:
			share.Limit, share.SwapMemory = amountOf(r, v1alpha1.CapacityMemory), amountOf(r, v1alpha1.CapacitySwapMemory)
			share.Cores = int(min(amountOf(r, v1alpha1.CapacityCores), v1alpha1.MaxCores))
		}
		a.Name = node
		a.Shares = append(a.Shares, share)
	}
	return a, len(a.Shares) > 0
}

// locate finds the GPU of a result.
func locate(r *resourcev1.DeviceRequestAllocationResult, published Published) (node string, share alloc.Share, ok bool) {
	if node, share, ok = published.Location(r.Pool, r.Device); ok {
		return node, alloc.Share{UUID: share.UUID, GPU: share.GPU, Profile: share.Profile, Start: share.Start, NIC: share.NIC}, true
	}
	uuid, _, ok := pool.Parse(r.Device)
	share.UUID = uuid
	if profile, start, instance := pool.ParseInstance(r.Device); instance {
		share.Profile, share.Start = profile, start
	}
	return r.Pool, share, ok // a node's pool bears its name
}

// classOf is the class of a request by the name that results give it, "" where it is not known.
func classOf(spec *resourcev1.ResourceClaimSpec, name string) string {
	if spec == nil {
		return ""
	}
	for i := range spec.Devices.Requests {
		ways, _ := waysOf(&spec.Devices.Requests[i])
		for k := range ways {
			if ways[k].name == name {
				return ways[k].class
			}
		}
	}
	return ""
}
