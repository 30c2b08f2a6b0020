package dialect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Requests of a claim for pairs are gpu-0, nic-0, gpu-1, nic-1 and so on. A claim has a request for each device of each pair,
// because a constraint for a request of several devices puts all of them into one place.
const (
	pairGPU = "gpu-"
	pairNIC = "nic-"
)

// level is one kind of place in which the two devices of a pair are together. Its name is that of the alternative of the GPU's
// request.
type level struct {
	name      string
	attribute resourcev1.FullyQualifiedName
}

// levels are the kinds of places, from near to far, in the order of [v1alpha1.PairReaches].
var levels = []level{
	{string(v1alpha1.ReachStrict), v1alpha1.Driver + "/" + v1alpha1.AttributeSwitch},
	{string(v1alpha1.ReachBridge), resourcev1.FullyQualifiedName(deviceattribute.StandardDeviceAttributePCIeRoot)},
	{string(v1alpha1.ReachSocket), v1alpha1.Driver + "/" + v1alpha1.AttributeNUMANode},
}

// apart keeps the shares of a claim on different GPUs.
const apart = resourcev1.FullyQualifiedName(v1alpha1.Driver + "/" + v1alpha1.AttributeUUID)

// choosePairs gives requests for pairs the reach that the pod's annotation names.
func (t *Translator) choosePairs(pod *corev1.Pod, requests []Request) error {
	text, named := pod.Annotations[v1alpha1.PairsFallbackAnnotation]
	if len(requests) == 0 {
		return nil
	}
	reach, err := v1alpha1.ParsePairReach(text)
	if err != nil || named && text == "" {
		return refuse("annotation %s: %q is none of %s", v1alpha1.PairsFallbackAnnotation, text, "strict, bridge and socket")
	}
	some := false
	for i := range requests {
		r := &requests[i]
		if r.Pairs == "" {
			continue
		}
		some, r.Pairs = true, reach
		if err := t.checkPairs(pod, r); err != nil {
			return err
		}
	}
	if named && !some && !carries(pod) {
		return refuse("annotation %s is for pods that ask for %s: leave it out", v1alpha1.PairsFallbackAnnotation, v1alpha1.ResourcePairs)
	}
	return nil
}

// carries reports whether a pod carries claims of an earlier translation, whose annotations are still there.
func carries(pod *corev1.Pod) bool {
	_, templates := pod.Annotations[v1alpha1.TemplatesAnnotation]
	_, claims := pod.Annotations[v1alpha1.ClaimsAnnotation]
	return templates || claims
}

// checkPairs refuses pairs that no claim can ask for.
func (t *Translator) checkPairs(pod *corev1.Pod, r *Request) error {
	name := r.Container.of(pod).Name
	_, isPart := r.Memory.Part()
	most, hint := v1alpha1.MostPairs(r.Pairs), ""
	if !t.places(pod) && mostSearched[r.Pairs] < most {
		most, hint = mostSearched[r.Pairs], ", or have Divvy's scheduler place the pod"
	}
	switch {
	case t.mode == ModeSlots:
		return refuse("container %q asks for pairs of GPU and card, which need claims: Kubernetes has them from 1.36 on", name)
	case r.instance():
		return refuse("container %q asks for pairs with backend mig, and a MIG instance is none of a pair: use slice, or leave out the annotation", name)
	case r.Count > most:
		return refuse("container %q asks for more pairs than the %d that one claim has with annotation %s at %s: ask for fewer%s", name, most, v1alpha1.PairsFallbackAnnotation, r.Pairs, hint)
	case isPart && r.Pairs != v1alpha1.ReachStrict:
		return refuse("container %q asks for a part of each GPU's memory and for pairs that fall back to %s: ask for an amount of memory, or for strict pairs", name, r.Pairs)
	}
	return nil
}

// mostSearched is how many pairs a claim has that Kubernetes' own allocator places. It tries every order of the GPUs that are
// left before it gives up a node with too few, which with more pairs takes longer than a scheduler waits (10 s).
var mostSearched = map[v1alpha1.PairReach]int{v1alpha1.ReachStrict: 8, v1alpha1.ReachBridge: 4, v1alpha1.ReachSocket: 4}

// pairUp makes of a request for one GPU the requests and constraints of so many pairs. Of several kinds of places, each GPU has an
// alternative for each, the nearest first; the card is bound to the kind of the alternative that its GPU gets.
func pairUp(r Request, gpu resourcev1.DeviceRequest) resourcev1.DeviceClaim {
	var claim resourcev1.DeviceClaim
	allowed := levels[:r.Pairs.Levels()]
	var ones, nics []resourcev1.DeviceRequest
	var names []string
	for i := range r.Count {
		one := *gpu.DeepCopy()
		one.Name = PairRequest(i, false)
		nic := resourcev1.DeviceRequest{Name: PairRequest(i, true), Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: v1alpha1.ClassNIC, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		}}
		if len(allowed) > 1 {
			one.FirstAvailable, one.Exactly = waysTo(allowed, one.Exactly), nil
		}
		for k := range allowed {
			name := one.Name
			if len(allowed) > 1 {
				name += "/" + allowed[k].name
			}
			claim.Constraints = append(claim.Constraints, resourcev1.DeviceConstraint{Requests: []string{name, nic.Name}, MatchAttribute: &allowed[k].attribute})
		}
		ones, nics, names = append(ones, one), append(nics, nic), append(names, one.Name)
	}
	claim.Requests = inOrder(ones, nics, len(allowed) == 1)
	if !r.Whole && r.Count > 1 {
		distinct := apart
		claim.Constraints = append(claim.Constraints, resourcev1.DeviceConstraint{Requests: names, DistinctAttribute: &distinct})
	}
	return claim
}

// inOrder puts the requests into the order in which Kubernetes' allocator tries devices for them, so that it gives up early. The first
// pair tells a node without cards. After that, strict pairs have all GPUs first: a node with too few of them is the usual case.
// With alternatives each card follows its GPU, whose kind of place it may refuse.
func inOrder(gpus, nics []resourcev1.DeviceRequest, strict bool) []resourcev1.DeviceRequest {
	all := []resourcev1.DeviceRequest{gpus[0], nics[0]}
	if strict {
		return slices.Concat(all, gpus[1:], nics[1:])
	}
	for i := range gpus[1:] {
		all = append(all, gpus[i+1], nics[i+1])
	}
	return all
}

// waysTo are the alternatives of a GPU's request, one for each kind of place.
func waysTo(allowed []level, e *resourcev1.ExactDeviceRequest) []resourcev1.DeviceSubRequest {
	var ways []resourcev1.DeviceSubRequest
	for _, l := range allowed {
		ways = append(ways, resourcev1.DeviceSubRequest{
			Name: l.name, DeviceClassName: e.DeviceClassName, AllocationMode: e.AllocationMode, Count: e.Count, Selectors: e.Selectors, Capacity: e.Capacity,
		})
	}
	return ways
}

// Pairs is what a claim for pairs asks.
type Pairs struct {
	// GPU is what each GPU's request asks, with one alternative alone, and without the kind of place.
	GPU resourcev1.DeviceRequest
	// Count is how many pairs, Reach how far the cards may be.
	Count int
	Reach v1alpha1.PairReach
	// Whole is true for whole GPUs.
	Whole bool
}

// PairsOf reads a claim for pairs as a translation writes it; ok is false for every other claim. Its configuration and
// what each GPU's request asks are for the caller to check.
func PairsOf(spec *resourcev1.ResourceClaimSpec) (pairs Pairs, ok bool) {
	requests := spec.Devices.Requests
	if len(requests) == 0 || len(requests)%2 != 0 || requests[0].Name != pairGPU+"0" {
		return Pairs{}, false
	}
	pairs = Pairs{GPU: *requests[0].DeepCopy(), Count: len(requests) / 2, Reach: v1alpha1.ReachStrict}
	pairs.GPU.Name = requestName
	if ways := pairs.GPU.FirstAvailable; len(ways) > 1 && len(ways) <= len(levels) && ways[0].Name == levels[0].name {
		pairs.Reach = v1alpha1.PairReaches()[len(ways)-1]
		w := &ways[0]
		pairs.GPU.Exactly = &resourcev1.ExactDeviceRequest{DeviceClassName: w.DeviceClassName, AllocationMode: w.AllocationMode, Count: w.Count, Selectors: w.Selectors, Capacity: w.Capacity, Tolerations: w.Tolerations}
		pairs.GPU.FirstAvailable = nil
	}
	if e := pairs.GPU.Exactly; e != nil {
		pairs.Whole = v1alpha1.IsWholeClass(e.DeviceClassName)
	}
	if pairs.Count > v1alpha1.MostPairs(pairs.Reach) {
		return Pairs{}, false
	}
	again := pairUp(Request{Count: pairs.Count, Pairs: pairs.Reach, Whole: pairs.Whole}, pairs.GPU)
	return pairs, equal(again.Requests, requests) && equal(again.Constraints, spec.Devices.Constraints)
}

// PairRequest is the name of the request for the GPU or the card of a pair.
func PairRequest(pair int, nic bool) string {
	if nic {
		return pairNIC + strconv.Itoa(pair)
	}
	return pairGPU + strconv.Itoa(pair)
}

// Level is the nearest kind of place in which two devices are together, by its place in [v1alpha1.PairReaches]; their number for none.
func Level(a, b *resourcev1.Device) int {
	for i, l := range levels {
		x, ok := attributeOn(a, l.attribute)
		y, too := attributeOn(b, l.attribute)
		if ok && too && equal(x, y) {
			return i
		}
	}
	return len(levels)
}

// attributeOn is an attribute of a device of ours, which may be written without its domain.
func attributeOn(d *resourcev1.Device, name resourcev1.FullyQualifiedName) (resourcev1.DeviceAttribute, bool) {
	if a, ok := d.Attributes[resourcev1.QualifiedName(name)]; ok {
		return a, true
	}
	short, _ := strings.CutPrefix(string(name), v1alpha1.Driver+"/")
	a, ok := d.Attributes[resourcev1.QualifiedName(short)]
	return a, ok
}

// PairOf reads the name of a request of a claim for pairs, as results name it: the number of the pair, and whether it is the
// card's. ok is false for other names.
func PairOf(request string) (pair int, nic, ok bool) {
	for _, start := range []string{pairGPU, pairNIC} {
		if len(request) <= len(start) || request[:len(start)] != start {
			continue
		}
		number := request[len(start):]
		for i := range number {
			if number[i] == '/' {
				number = number[:i]
				break
			}
		}
		n, err := strconv.Atoi(number)
		return n, start == pairNIC, err == nil && strconv.Itoa(n) == number && n >= 0
	}
	return 0, false, false
}

// names lists the requests of a claim for pairs for GPUs, in their order.
func (p Pairs) names() []string {
	var names []string
	for i := range p.Count {
		names = append(names, PairRequest(i, false))
	}
	return names
}

// checkPaired is the part of CheckTranslated for a claim for pairs.
func checkPaired(spec *resourcev1.ResourceClaimSpec, pairs Pairs) error {
	if err := checkRequest(&pairs.GPU); err != nil {
		return err
	}
	if e := pairs.GPU.Exactly; e != nil && (e.Count != 1 || e.DeviceClassName == v1alpha1.ClassMIG) {
		return fmt.Errorf("each of its pairs has %d GPUs of class %s", e.Count, e.DeviceClassName)
	}
	for _, w := range pairs.GPU.FirstAvailable {
		if w.Count != 1 {
			return fmt.Errorf("each of its pairs has %d GPUs", w.Count)
		}
	}
	return checkConfigs(spec.Devices.Config, pairs.names())
}

// checkConfigs checks that a claim has no configuration but one of a translation for these requests.
func checkConfigs(configs []resourcev1.DeviceClaimConfiguration, requests []string) error {
	for _, c := range configs {
		ours := c.Opaque != nil && c.Opaque.Driver == v1alpha1.Driver && len(c.Opaque.Parameters.Raw) <= longestConfig
		if !ours || len(configs) > 1 || !slices.Equal(c.Requests, requests) {
			return fmt.Errorf("it has a configuration that no dialect writes")
		}
	}
	return nil
}

// equal reports whether two values of Kubernetes' API say the same.
func equal(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }
