package claimed

import (
	"fmt"
	"math"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// amount is what a claim has of one GPU: bytes and percent.
type amount struct {
	memory uint64
	cores  int
}

// allotted is what a claim was given of a node's GPUs that others reach, by UUID. It is pure.
func allotted(claim *resourcev1.ResourceClaim, node string) (map[string]amount, error) {
	all := map[string]amount{}
	if claim.Status.Allocation == nil {
		return all, nil
	}
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		uuid, form, ok := pool.Parse(r.Device)
		if r.Driver != v1alpha1.Driver || r.Pool != v1alpha1.RemotePool(node) || ptr.Deref(r.AdminAccess, false) || !ok || form != pool.Remote {
			continue
		}
		memory, known := r.ConsumedCapacity[v1alpha1.CapacityMemory]
		cores := r.ConsumedCapacity[v1alpha1.CapacityCores]
		bytes, whole := dialect.WholeNumber(memory)
		percent, round := dialect.WholeNumber(cores)
		if !known || !whole || !round || bytes <= 0 || percent < 0 || percent > v1alpha1.MaxCores {
			return nil, fmt.Errorf("its scheduler did not say what it has of device %s", r.Device)
		}
		had := all[uuid]
		all[uuid] = amount{had.memory + uint64(bytes), had.cores + int(percent)}
	}
	return all, nil
}

// wished is what a request would take of each GPU. The GPUs must be named: the scheduler chose them.
func wished(r v1alpha1.ShareRequest) (map[string]amount, error) {
	r.Default()
	if len(r.Among) == 0 || len(r.Among) != r.GPUs {
		return nil, refused("it names %d GPUs and asks for %d of them: the scheduler has chosen which", len(r.Among), r.GPUs)
	}
	if r.Overcommit || r.Profile != "" {
		return nil, refused("a claim's share neither overcommits a GPU nor is a MIG instance")
	}
	all := map[string]amount{}
	for _, uuid := range r.Among {
		if _, twice := all[uuid]; twice {
			return nil, refused("GPU %s is named twice", uuid)
		}
		// A part of a GPU is relative to what this node has, so it counts as more than any claim was given.
		all[uuid] = amount{r.Memory.Of(math.MaxUint64), r.Guaranteed(r.Cores)}
	}
	return all, nil
}

// permit returns why a claim with these amounts, of which it uses some already, may not have what it wishes. It is pure.
func permit(has, held, wish map[string]amount) error {
	for uuid, w := range wish {
		a, ok := has[uuid]
		h := held[uuid]
		switch {
		case !ok:
			return refused("GPU %s of this node is not allocated to the claim", uuid)
		case w.memory > a.memory-min(h.memory, a.memory):
			return refused("the claim was given %s of GPU %s, and asks for %s while it has %s", v1alpha1.FormatBytes(a.memory), uuid, v1alpha1.FormatBytes(w.memory), v1alpha1.FormatBytes(h.memory))
		case w.cores > a.cores-min(h.cores, a.cores):
			return refused("the claim was given %d cores of GPU %s, and asks for %d while it has %d", a.cores, uuid, w.cores, h.cores)
		}
	}
	return nil
}

func refused(format string, args ...any) error {
	return &wire.Refused{Code: wire.CodeBounds, Text: fmt.Sprintf(format, args...)}
}
