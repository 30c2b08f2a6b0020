package demand

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Attributes as constraints name them.
const (
	uuidOf      = v1alpha1.Driver + "/" + v1alpha1.AttributeUUID
	parentOf    = v1alpha1.Driver + "/" + v1alpha1.AttributeParent
	nvidiasUUID = v1alpha1.NVIDIADriver + "/uuid"
	nvidiasGPU  = v1alpha1.NVIDIADriver + "/parentUUID"
	nvidiasNUMA = "resource.kubernetes.io/numaNode"
)

// whose says which devices have an attribute, as far as a claim's class tells.
type whose uint8

const (
	ofGPUs whose = 1 << iota
	ofInstances
	ofNVIDIAsClasses // and of no others for certain
)

// places are the attributes by which the allocator can keep GPUs together, and apart those by which it can keep them apart:
// the same kind of place.
var places = map[string]struct {
	kind  alloc.Places
	whose whose
}{
	v1alpha1.Driver + "/" + v1alpha1.AttributeNUMANode: {alloc.PlaceNUMA, ofGPUs | ofInstances},
	nvidiasNUMA: {alloc.PlaceNUMA, ofGPUs | ofInstances | ofNVIDIAsClasses},
	string(deviceattribute.StandardDeviceAttributePCIeRoot): {alloc.PlaceRoot, ofGPUs | ofInstances},
	v1alpha1.Driver + "/" + v1alpha1.AttributePCIeSwitch:    {alloc.PlaceSwitch, ofGPUs},
	v1alpha1.Driver + "/" + v1alpha1.AttributeNVLinkClique:  {alloc.PlaceClique, ofGPUs},
	uuidOf:      {alloc.PlaceGPU, ofGPUs},
	nvidiasUUID: {alloc.PlaceGPU, ofGPUs | ofNVIDIAsClasses},
	parentOf:    {alloc.PlaceGPU, ofInstances},
	nvidiasGPU:  {alloc.PlaceGPU, ofInstances | ofNVIDIAsClasses},
}

// constrain applies the constraints of a claim to what it asks, which is what the demand has from first on.
func (r *reader) constrain(first int) error {
	for i := range r.claim.Spec.Devices.Constraints {
		if err := r.demand.constrain(&r.claim.Spec.Devices.Constraints[i], first); err != nil {
			return fmt.Errorf("claim %s, constraint %d: %w", r.claim.Name, i, err)
		}
	}
	return nil
}

func (d *Demand) constrain(c *resourcev1.DeviceConstraint, first int) error {
	attribute := c.MatchAttribute
	if attribute == nil {
		attribute = c.DistinctAttribute
	}
	if attribute == nil {
		return fmt.Errorf("%w: it names no attribute", ErrElsewhere)
	}
	place, known := places[string(*attribute)]
	if !known || c.MatchAttribute == nil && place.kind != alloc.PlaceGPU {
		return fmt.Errorf("%w: GPUs are not compared by %s", ErrElsewhere, *attribute)
	}
	bond := alloc.Bond{Apart: c.MatchAttribute == nil}
	if !bond.Apart {
		bond.Together = place.kind
	}
	wants, partly := 0, false
	for i := first; i < len(d.wants) && i < alloc.MostClaims; i++ {
		covered, err := d.cover(i, c.Requests, place.whose, bond.Together)
		if err != nil {
			return fmt.Errorf("%w, by which devices are compared: %s", err, *attribute)
		}
		if covered > 0 {
			wants++
			bond.Claims |= 1 << i
			partly = partly || covered < len(d.wants[i].ways)
		}
	}
	switch {
	case wants < 2:
	case partly:
		return fmt.Errorf("%w: it is for some alternatives of a request and for other requests", ErrElsewhere)
	default:
		d.pod.Bonds = append(d.pod.Bonds, bond)
	}
	return nil
}

// cover keeps the GPUs of each alternative of a request together that a constraint for these requests is for, and returns
// how many these are.
func (d *Demand) cover(want int, requests []string, whose whose, together alloc.Places) (covered int, err error) {
	for k := range d.wants[want].ways {
		w, request := &d.wants[want].ways[k], &d.pod.Claims[want][k]
		if !isFor(requests, w.name) {
			continue
		}
		if !whose.has(w, request) {
			return 0, fmt.Errorf("%w: request %s can get devices without the attribute", ErrElsewhere, w.name)
		}
		covered++
		request.Together |= together
		if request.Count == 1 {
			request.Together &^= alloc.PlaceGPU // which is itself
		}
	}
	return covered, nil
}

// has reports whether all devices that a way can get have an attribute of which this is told, where they know it.
func (v whose) has(w *way, request *alloc.Request) bool {
	kind := ofGPUs
	if request.Profile != "" || v1alpha1.IsInstanceClass(w.class) {
		kind = ofInstances
	}
	nvidias := w.class == v1alpha1.ClassNVIDIA || w.class == v1alpha1.ClassNVIDIAMIG
	return v&kind != 0 && (v&ofNVIDIAsClasses == 0 || nvidias)
}
