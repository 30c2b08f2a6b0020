package demand

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// mostAlternatives is how many alternatives the allocator takes for a claim. Those that are wanted least are left out.
const mostAlternatives = 8

// Of reads what a pod asks with these claims. Its errors are [ErrDemand] and [ErrElsewhere]; with the latter the demand has
// what can be expressed, by which nodes can be put in order, and no allocations.
func Of(pod *corev1.Pod, claims []Claim, published Published) (Demand, error) {
	var d Demand
	d.pod.CPU, d.pod.HostMemory = Host(pod)
	wishes, err := wishesOf(pod.Annotations)
	if err != nil {
		return d, invalid("%w", err)
	}
	elsewhere := d.extended(pod, wishes, published)
	seen := map[string]bool{}
	for i := range claims {
		claim := &claims[i]
		if seen[claim.Key()] {
			continue
		}
		seen[claim.Key()] = true
		if claim.Allocation != nil {
			err = d.force(claim)
		} else {
			r := reader{claim: claim, published: published, wishes: wishes, demand: &d}
			err = r.read()
		}
		switch {
		case errors.Is(err, ErrElsewhere):
			elsewhere = err
		case err != nil:
			return d, err
		}
	}
	err = d.pod.Validate()
	switch {
	case elsewhere != nil && err != nil:
		d.pod.Claims, d.pod.Bonds, err = nil, nil, elsewhere
	case elsewhere != nil:
		err = elsewhere
	case err != nil:
		return d, invalid("%w", err)
	}
	d.elsewhere = elsewhere != nil
	return d, err
}

// invalid is [ErrDemand] in one line.
func invalid(format string, args ...any) error {
	text := fmt.Errorf(format, args...).Error()
	return fmt.Errorf("%w: %s", ErrDemand, strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}

// force notes the node of a claim that is allocated.
func (d *Demand) force(claim *Claim) error {
	for i := range claim.Allocation.Devices.Results {
		if r := &claim.Allocation.Devices.Results[i]; isReached(r) {
			return fmt.Errorf("claim %s: %w: nodes reach device %s through the network", claim.Name, ErrElsewhere, r.Device)
		}
	}
	node := onlyNode(claim.Allocation.NodeSelector)
	switch {
	case node == "":
	case d.node != "" && d.node != node:
		return invalid("claim %s is allocated on node %s, and another claim of the pod on node %s: no pod can have both", claim.Name, node, d.node)
	default:
		d.node = node
	}
	return nil
}

// onlyNode is the one node that a selector lets, "" where it lets several.
func onlyNode(selector *corev1.NodeSelector) string {
	if selector == nil || len(selector.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, field := range selector.NodeSelectorTerms[0].MatchFields {
		if field.Key == nodeField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
			return field.Values[0]
		}
	}
	return ""
}

// reader reads one claim.
type reader struct {
	claim     *Claim
	published Published
	wishes    wishes
	demand    *Demand
}

// read adds to the demand what a claim asks. Of a claim that is for elsewhere it adds what can be expressed.
func (r *reader) read() error {
	if r.claim.Spec == nil {
		return invalid("claim %s: nothing says what it asks", r.claim.Name)
	}
	d := r.demand
	place, first := len(d.claims), len(d.wants)
	d.claims = append(d.claims, *r.claim)
	if pairs, ok := dialect.PairsOf(r.claim.Spec); ok {
		return r.readPairs(place, pairs)
	}
	var elsewhere error
	for i := range r.claim.Spec.Devices.Requests {
		request := &r.claim.Spec.Devices.Requests[i]
		w := want{claim: place}
		var all []alloc.Request
		ways, err := waysOf(request)
		for k := 0; k < len(ways) && err == nil; k++ {
			var some []alloc.Request
			some, err = r.expand(&ways[k])
			for range some {
				w.ways = append(w.ways, ways[k])
			}
			all = append(all, some...)
		}
		switch {
		case errors.Is(err, ErrElsewhere):
			elsewhere = fmt.Errorf("claim %s, request %s: %w", r.claim.Name, request.Name, err)
			continue
		case err != nil:
			return invalid("claim %s, request %s: %w", r.claim.Name, request.Name, err)
		}
		n := min(len(all), mostAlternatives)
		w.ways = w.ways[:n]
		d.pod.Claims, d.wants = append(d.pod.Claims, all[:n]), append(d.wants, w)
	}
	if elsewhere != nil {
		return elsewhere
	}
	return r.constrain(first)
}

// way is a request, or one alternative of it.
type way struct {
	name        string // as results name it: request, or request/alternative
	class       string
	count       int64
	selectors   []resourcev1.DeviceSelector
	capacity    *resourcev1.CapacityRequirements
	tolerations []resourcev1.DeviceToleration
}

// waysOf lists the alternatives of a request.
func waysOf(request *resourcev1.DeviceRequest) ([]way, error) {
	elsewhere := func(mode resourcev1.DeviceAllocationMode, admin bool) error {
		switch {
		case admin:
			return fmt.Errorf("%w: it asks for admin access", ErrElsewhere)
		case mode != resourcev1.DeviceAllocationModeExactCount && mode != "":
			return fmt.Errorf("%w: it asks for %s devices", ErrElsewhere, mode)
		}
		return nil
	}
	if e := request.Exactly; e != nil {
		w := way{request.Name, e.DeviceClassName, e.Count, e.Selectors, e.Capacity, e.Tolerations}
		return []way{w}, elsewhere(e.AllocationMode, e.AdminAccess != nil && *e.AdminAccess)
	}
	var all []way
	for i := range request.FirstAvailable {
		s := &request.FirstAvailable[i]
		if err := elsewhere(s.AllocationMode, false); err != nil {
			return nil, err
		}
		all = append(all, way{request.Name + "/" + s.Name, s.DeviceClassName, s.Count, s.Selectors, s.Capacity, s.Tolerations})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: it has neither exactly nor firstAvailable", ErrElsewhere)
	}
	return all, nil
}
