package dialect

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	// mostSelectors is how many selectors one request of a translation has at most, one of each sort.
	mostSelectors = 8
	// longestConfig bounds the configuration of a share in bytes: two lists of 16 models, and some words.
	longestConfig = 4 << 10
	// mostAsked bounds the memory of a request in bytes, as the numbers of limits are bounded.
	mostAsked = 1 << 50
)

// CheckTranslated returns an error unless a translation can ask this: one request for devices of Divvy's classes, or pairs of such a request and one for a card, with
// the selectors, the constraint and the configuration that dialects make, and none of what only administrators may ask.
// Who may write pods' annotations gets so no more by them than by the plain form. The error wraps [ErrClaim], and says
// what a translation never asks.
func CheckTranslated(spec *resourcev1.ResourceClaimSpec) error {
	if pairs, ok := PairsOf(spec); ok {
		if err := checkPaired(spec, pairs); err != nil {
			return fmt.Errorf("%w: %w", ErrClaim, err)
		}
		return Classes{}.ValidateClaim(spec)
	}
	requests := spec.Devices.Requests
	if len(requests) != 1 || requests[0].Name != requestName {
		return fmt.Errorf("%w: it has %d requests instead of one with the name %s", ErrClaim, len(requests), requestName)
	}
	if err := checkRequest(&requests[0]); err != nil {
		return fmt.Errorf("%w: %w", ErrClaim, err)
	}
	if err := checkRest(&spec.Devices); err != nil {
		return fmt.Errorf("%w: %w", ErrClaim, err)
	}
	return Classes{}.ValidateClaim(spec)
}

func checkRequest(r *resourcev1.DeviceRequest) error {
	if e := r.Exactly; e != nil && len(r.FirstAvailable) == 0 {
		if e.AdminAccess != nil {
			return fmt.Errorf("it names admin access")
		}
		return checkWay(carriedWay{e.DeviceClassName, e.AllocationMode, e.Count, e.Selectors, e.Capacity, len(e.Tolerations)})
	}
	if n := len(r.FirstAvailable); r.Exactly != nil || n == 0 || n > resourcev1.FirstAvailableDeviceRequestMaxSize {
		return fmt.Errorf("it has %d alternatives", n)
	}
	for i := range r.FirstAvailable {
		w := &r.FirstAvailable[i]
		if v1alpha1.SharesOf(w.DeviceClassName) == "" || !strings.HasPrefix(w.Name, spanStart) {
			return fmt.Errorf("its alternative %s is not for shares of one size of GPU", w.Name)
		}
		if err := checkWay(carriedWay{w.DeviceClassName, w.AllocationMode, w.Count, w.Selectors, w.Capacity, len(w.Tolerations)}); err != nil {
			return err
		}
	}
	return nil
}

// carriedWay is what a request and an alternative of one have in common.
type carriedWay struct {
	class       string
	mode        resourcev1.DeviceAllocationMode
	count       int64
	selectors   []resourcev1.DeviceSelector
	capacity    *resourcev1.CapacityRequirements
	tolerations int
}

func checkWay(w carriedWay) error {
	shares, instance := v1alpha1.SharesOf(w.class) != "", w.class == v1alpha1.ClassMIG
	switch {
	case !shares && !instance && w.class != v1alpha1.ClassWhole:
		return fmt.Errorf("device class %q is none of Divvy's", w.class)
	case w.mode != resourcev1.DeviceAllocationModeExactCount || w.count < 1 || w.count > MaxGPUs || instance && w.count > 1:
		return fmt.Errorf("it asks for %d devices by mode %s", w.count, w.mode)
	case w.tolerations > 0:
		return fmt.Errorf("it tolerates taints")
	case shares != hasSlot(w.capacity):
		return fmt.Errorf("a share takes one slot, and nothing else does")
	case w.class == v1alpha1.ClassWhole && w.capacity != nil:
		return fmt.Errorf("a whole GPU has no amounts")
	}
	if err := checkAmounts(w.capacity); err != nil {
		return err
	}
	return checkSelectors(w.selectors)
}

func checkAmounts(capacity *resourcev1.CapacityRequirements) error {
	if capacity == nil {
		return nil
	}
	for _, name := range sortedKeys(capacity.Requests) {
		if n, ok := WholeNumber(capacity.Requests[name]); !ok || n < 1 || n > mostAsked {
			return fmt.Errorf("it has an amount of %s that nobody can have", name)
		}
	}
	return nil
}

func checkSelectors(all []resourcev1.DeviceSelector) error {
	if len(all) > mostSelectors {
		return fmt.Errorf("it has %d selectors", len(all))
	}
	for _, s := range all {
		if s.CEL == nil || !selectorOf.MatchString(s.CEL.Expression) {
			return fmt.Errorf("it has a selector that no dialect has")
		}
	}
	return nil
}

func hasSlot(capacity *resourcev1.CapacityRequirements) bool {
	if capacity == nil {
		return false
	}
	_, ok := capacity.Requests[v1alpha1.CapacitySlots]
	return ok
}

// checkRest checks what a claim has beside its requests.
func checkRest(devices *resourcev1.DeviceClaim) error {
	for _, c := range devices.Constraints {
		same := c.MatchAttribute != nil && (*c.MatchAttribute == sameNUMA || *c.MatchAttribute == sameHost) && c.DistinctAttribute == nil
		if !same || len(devices.Constraints) > 1 || !slices.Equal(c.Requests, []string{requestName}) {
			return fmt.Errorf("it has a constraint that no dialect has")
		}
	}
	return checkConfigs(devices.Config, []string{requestName})
}

// selectorOf matches every selector that a dialect writes, and no other.
var selectorOf = selectorPattern()

func selectorPattern() *regexp.Regexp {
	const text = `"[A-Za-z0-9 ._()/+-]{1,64}"`
	expression := func(written string) string {
		return strings.ReplaceAll(regexp.QuoteMeta(written), "%s", text)
	}
	var terms []string
	for _, written := range []string{
		attributeOf(v1alpha1.AttributeUUID) + " == %s", attributeOf(v1alpha1.AttributeParent) + " == %s", hamiModel, managerModel,
	} {
		terms = append(terms, expression(written))
	}
	term := "(?:" + strings.Join(terms, "|") + ")"
	list := fmt.Sprintf(`%s(?: \|\| %s){0,%d}`, term, term, longestList-1)
	size := strings.ReplaceAll(regexp.QuoteMeta(memoryIs("==", 0)), "==", "(?:==|>=|<=)")
	size = strings.Replace(size, `"0"`, `"[0-9]{1,19}"`, 1)
	return regexp.MustCompile("^(?:" + strings.Join([]string{
		list, `!\(` + list + `\)`, size + "(?: && " + size + ")?",
		expression(attributeOf(v1alpha1.AttributeProfile) + " == %s"), expression("has(" + attributeOf(v1alpha1.AttributeNUMANode) + ")"), expression(canSuspend),
	}, "|") + ")$")
}
