package demand

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// readPairs adds to the demand what a claim for pairs asks: all pairs are one request for the allocator, which finds GPUs and
// cards for all of them together.
func (r *reader) readPairs(place int, pairs dialect.Pairs) error {
	if class := r.published.DeviceClass(v1alpha1.ClassNIC); class == nil {
		return invalid("claim %s: there is no device class %s: Divvy's chart makes it", r.claim.Name, v1alpha1.ClassNIC)
	}
	ways, err := waysOf(&pairs.GPU)
	w := want{claim: place, pairs: true}
	var all []alloc.Request
	for k := 0; k < len(ways) && err == nil; k++ {
		one := ways[k]
		one.name = dialect.PairRequest(0, false) // a configuration names the requests of the claim, which are all as the first is
		var some []alloc.Request
		some, err = r.expand(&one)
		for i := range some {
			some[i].Count, some[i].Pair = pairs.Count, alloc.RelationOf(pairs.Reach)
			one.name, one.count = ways[k].name, int64(pairs.Count)
			w.ways = append(w.ways, one)
		}
		all = append(all, some...)
	}
	switch {
	case errors.Is(err, ErrElsewhere):
		return fmt.Errorf("claim %s: %w", r.claim.Name, err)
	case err != nil:
		return invalid("claim %s: %w", r.claim.Name, err)
	case len(all) == 0 || all[0].Profile != "":
		return fmt.Errorf("claim %s: %w: its pairs are of MIG instances", r.claim.Name, ErrElsewhere)
	}
	n := min(len(all), mostAlternatives)
	w.ways = w.ways[:n]
	r.demand.pod.Claims, r.demand.wants = append(r.demand.pod.Claims, all[:n]), append(r.demand.wants, w)
	return nil
}

// addPairs writes the devices of pairs in the order of the claim's requests, and returns which alternative each of these got. Pairs are
// in the order of the node's GPUs.
func (a *Allocation) addPairs(node string, w *way, shares []alloc.Share, published Published) (chosen []*way, err error) {
	shares = inOrder(shares)
	for i := range a.Claim.Spec.Devices.Requests {
		request := &a.Claim.Spec.Devices.Requests[i]
		pair, nic, ok := dialect.PairOf(request.Name)
		if !ok || pair >= len(shares) {
			return nil, fmt.Errorf("%w: it has %d pairs and none for request %s", ErrPlace, len(shares), request.Name)
		}
		got, err := pairWay(w, request, node, &shares[pair], published)
		if err != nil {
			return nil, err
		}
		one := shares[pair]
		if one.NIC = ""; nic {
			one = alloc.Share{NIC: shares[pair].NIC}
		}
		if err := a.add(node, got, []alloc.Share{one}, published); err != nil {
			return nil, err
		}
		chosen = append(chosen, got)
	}
	return chosen, nil
}

// pairWay is the alternative that one request of a claim gets with a pair. An alternative for a size of GPU is that of w; one
// for a kind of place is the nearest in which GPU and card are together.
func pairWay(w *way, request *resourcev1.DeviceRequest, node string, share *alloc.Share, published Published) (*way, error) {
	ways, err := waysOf(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlace, err)
	}
	if len(ways) == 1 {
		return &ways[0], nil
	}
	if _, size, sized := strings.Cut(w.name, "/"); sized {
		if k := slices.IndexFunc(ways, func(one way) bool { return one.name == request.Name+"/"+size }); k >= 0 {
			return &ways[k], nil
		}
	}
	_, gpu, ok := published.Device(node, &alloc.Share{UUID: share.UUID})
	_, card, known := published.Device(node, &alloc.Share{NIC: share.NIC})
	if !ok || !known {
		return nil, fmt.Errorf("%w: node %s does not publish GPU %s and card %s", ErrPlace, node, share.UUID, share.NIC)
	}
	level := dialect.Level(gpu, card)
	if level >= len(ways) {
		return nil, fmt.Errorf("%w: card %s of node %s is too far from GPU %s", ErrPlace, share.NIC, node, share.UUID)
	}
	return &ways[level], nil
}
