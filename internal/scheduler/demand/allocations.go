package demand

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// ErrPlace marks a place that the demand did not ask for, or whose devices are not published as they were when the place
// was chosen.
var ErrPlace = errors.New("place does not fit the claims")

// nodeField selects a node by its name.
const nodeField = "metadata.name"

// Allocation is what a claim is to get.
type Allocation struct {
	Claim  Claim
	Result *resourcev1.AllocationResult
}

// Allocations writes a place as the allocations of the claims that have none, in the order of [Demand.Claims]. The same
// place gives equal allocations each time. Its errors are [ErrPlace].
func (d *Demand) Allocations(a alloc.Assignment, published Published) ([]Allocation, error) {
	if d.elsewhere {
		return nil, fmt.Errorf("%w: the claims are placed elsewhere", ErrPlace)
	}
	given := make([][]alloc.Share, len(d.wants))
	for _, s := range a.Shares {
		if s.Claim < 0 || s.Claim >= len(d.wants) {
			return nil, fmt.Errorf("%w: it has a share for request %d of %d", ErrPlace, s.Claim, len(d.wants))
		}
		given[s.Claim] = append(given[s.Claim], s)
	}
	all := make([]Allocation, len(d.claims))
	chosen := make([][]*way, len(d.claims))
	for i := range all {
		all[i] = Allocation{Claim: d.claims[i], Result: &resourcev1.AllocationResult{}}
	}
	for i := range d.wants {
		want := &d.wants[i]
		w, err := want.chosen(given[i])
		if err != nil {
			return nil, err
		}
		one := &all[want.claim]
		one.Result.NodeSelector = selectorOf(a.Name) // not of a claim without requests, which binds to no node
		if want.pairs {
			chosen[want.claim], err = one.addPairs(a.Name, w, given[i], published)
		} else {
			err = one.add(a.Name, w, given[i], published)
			chosen[want.claim] = append(chosen[want.claim], w)
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range all {
		all[i].configure(chosen[i], published)
	}
	return all, nil
}

// Part is what one claim gets of a place.
type Part struct {
	Claim Claim
	// Assignment has nothing of the host.
	Assignment alloc.Assignment
}

// Parts divides a place among the claims that have no allocation, in the order of [Demand.Claims].
func (d *Demand) Parts(a alloc.Assignment) []Part {
	all := make([]Part, len(d.claims))
	for i := range all {
		one := a
		one.CPU, one.Memory, one.Shares = 0, 0, nil
		for _, s := range a.Shares {
			if s.Claim >= 0 && s.Claim < len(d.wants) && d.wants[s.Claim].claim == i {
				one.Shares = append(one.Shares, s)
			}
		}
		all[i] = Part{d.claims[i], one}
	}
	return all
}

// chosen is the way that the shares of a request are of.
func (w *want) chosen(shares []alloc.Share) (*way, error) {
	if len(shares) == 0 {
		return nil, fmt.Errorf("%w: it has nothing for request %s", ErrPlace, w.ways[0].name)
	}
	at := shares[0].Alternative
	if at < 0 || at >= len(w.ways) || int64(len(shares)) != max(1, w.ways[at].count) {
		return nil, fmt.Errorf("%w: it has %d shares for alternative %d of request %s", ErrPlace, len(shares), at, w.ways[0].name)
	}
	return &w.ways[at], nil
}

// selectorOf lets one node.
func selectorOf(node string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: nodeField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}
}

// add writes the devices of a request, in the order of the node's GPUs.
func (a *Allocation) add(node string, w *way, shares []alloc.Share, published Published) error {
	shares = inOrder(shares)
	for i := range shares {
		s := &shares[i]
		pool, device, ok := published.Device(node, s)
		if !ok {
			return fmt.Errorf("%w: node %s does not publish GPU %s so", ErrPlace, node, s.UUID)
		}
		result := resourcev1.DeviceRequestAllocationResult{
			Request: w.name, Driver: v1alpha1.Driver, Pool: pool, Device: device.Name, Tolerations: w.tolerations,
			BindingConditions: device.BindingConditions, BindingFailureConditions: device.BindingFailureConditions,
		}
		if device.AllowMultipleAllocations != nil && *device.AllowMultipleAllocations {
			all, err := consumed(w.capacity, device)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrPlace, err)
			}
			result.ConsumedCapacity = all
			result.ShareID = a.shareID(&result, len(a.Result.Devices.Results))
		}
		if err := agrees(s, &result); err != nil {
			return err
		}
		a.Result.Devices.Results = append(a.Result.Devices.Results, result)
	}
	return nil
}

// inOrder sorts shares by the node's order of GPUs.
func inOrder(shares []alloc.Share) []alloc.Share {
	shares = slices.Clone(shares)
	slices.SortStableFunc(shares, func(x, y alloc.Share) int { return cmp.Compare(x.GPU, y.GPU) })
	return shares
}

// agrees returns an error if a result takes another amount than the place does.
func agrees(s *alloc.Share, result *resourcev1.DeviceRequestAllocationResult) error {
	if s.Profile != "" {
		return nil
	}
	memory, cores := amountOf(result, v1alpha1.CapacityMemory), amountOf(result, v1alpha1.CapacityCores)
	if swap := amountOf(result, v1alpha1.CapacitySwapMemory); swap != s.SwapMemory {
		return fmt.Errorf("%w: device %s gives %d bytes of swapMemory, not %d", ErrPlace, result.Device, swap, s.SwapMemory)
	}
	if memory != s.Limit || !s.Whole && cores != uint64(s.Cores) {
		return fmt.Errorf("%w: device %s gives %d bytes and %d cores, not %d and %d", ErrPlace, result.Device, memory, cores, s.Limit, s.Cores)
	}
	return nil
}

func amountOf(result *resourcev1.DeviceRequestAllocationResult, name resourcev1.QualifiedName) uint64 {
	q := result.ConsumedCapacity[name]
	return uint64(max(0, q.Value()))
}

// shareID tells shares of a device apart. It is a UUID made of what it stands for, so that writing an allocation again
// gives the same.
func (a *Allocation) shareID(result *resourcev1.DeviceRequestAllocationResult, place int) *types.UID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %d", a.Claim.Key(), a.Claim.UID, result.Pool, result.Device, result.Request, place))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // version 8, of one's own making
	text := hex.EncodeToString(sum[:16])
	id := types.UID(text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:])
	return &id
}

// configure writes the configurations of classes and claim, in the order and with the repetitions in which Kubernetes'
// allocator has them.
func (a *Allocation) configure(ways []*way, published Published) {
	devices := &a.Result.Devices
	type span struct{ start, end int }
	of := map[string]span{}
	for _, w := range ways {
		class := published.DeviceClass(w.class)
		if class == nil {
			continue
		}
		if s, again := of[class.Name]; again {
			for i := s.start; i < s.end; i++ {
				devices.Config[i].Requests = append(devices.Config[i].Requests, w.name)
			}
			continue
		}
		start := len(devices.Config)
		for _, c := range class.Spec.Config {
			devices.Config = append(devices.Config, resourcev1.DeviceAllocationConfiguration{
				Source: resourcev1.AllocationConfigSourceClass, Requests: []string{w.name}, DeviceConfiguration: c.DeviceConfiguration,
			})
		}
		of[class.Name] = span{start, len(devices.Config)}
	}
	for _, c := range a.Claim.Spec.Devices.Config {
		times := 1
		if len(c.Requests) > 0 {
			times = 0
			for _, w := range ways {
				if isFor(c.Requests, w.name) {
					times++
				}
			}
		}
		for range times {
			devices.Config = append(devices.Config, resourcev1.DeviceAllocationConfiguration{
				Source: resourcev1.AllocationConfigSourceClaim, Requests: c.Requests, DeviceConfiguration: c.DeviceConfiguration,
			})
		}
	}
}
