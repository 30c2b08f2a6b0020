package ledger

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// variety is all GPUs that are alike but for what tells single GPUs from each other. Its number is the class of its GPUs in
// the inventory.
type variety struct {
	number uint16
	alike  v1alpha1.NodeGPU
	uses   int
	sample *resourcev1.Device
	// answers are what expressions say of it that read nothing else.
	answers map[*selector]bool
}

// varieties numbers the varieties of GPUs.
type varieties struct {
	by map[v1alpha1.NodeGPU]*variety
	// byNumber has nil where a number is free. The first stands for GPUs beyond the last number, which are not served.
	byNumber []*variety
	// changed counts changes of varieties, and gpus changes of GPUs.
	changed, gpus int
}

func (v *varieties) init() {
	v.by, v.byNumber = map[v1alpha1.NodeGPU]*variety{}, []*variety{{}}
}

// alike is a GPU without what tells it from others of its variety, and without what no selector reads.
func alike(g v1alpha1.NodeGPU) v1alpha1.NodeGPU {
	return v1alpha1.NodeGPU{
		Model: g.Model, Memory: g.Memory, Architecture: g.Architecture, DriverVersion: g.DriverVersion, CUDAVersion: g.CUDAVersion, Suspends: g.Suspends, Slots: g.Slots,
	}
}

// enter finds the varieties of GPUs, or makes them.
func (v *varieties) enter(gpus []v1alpha1.NodeGPU) (all []*variety) {
	v.gpus++
	for i := range gpus {
		id := alike(gpus[i])
		one := v.by[id]
		if one == nil {
			at := slices.Index(v.byNumber, nil)
			if at < 0 {
				at = len(v.byNumber)
				if at > math.MaxUint16 {
					all = append(all, v.byNumber[0])
					continue
				}
				v.byNumber = append(v.byNumber, nil)
			}
			one = &variety{number: uint16(at), alike: id, sample: device(&id), answers: map[*selector]bool{}}
			v.byNumber[at], v.by[id] = one, one
			v.changed++
		}
		one.uses++
		all = append(all, one)
	}
	return all
}

// leave takes GPUs from their varieties.
func (v *varieties) leave(all []*variety) {
	for _, one := range all {
		if one.number == 0 {
			continue
		}
		if one.uses--; one.uses == 0 {
			delete(v.by, one.alike)
			v.byNumber[one.number] = nil
			v.changed++
		}
	}
}

// models are the models of the GPUs of some classes, empty where these are all models or where one has no name that a
// request can have. They let no other GPUs than the classes do, and tell the policy that a request is for some models, which it
// keeps less room for than for a request that few nodes can serve.
func (v *varieties) models(of alloc.Classes) alloc.Names {
	let, all := map[string]bool{}, map[string]bool{}
	for id, one := range v.by {
		all[id.Model] = true
		if of.Has(one.number) {
			let[id.Model] = true
		}
	}
	if len(let) == len(all) || let[""] || slices.ContainsFunc(slices.Collect(maps.Keys(let)), func(m string) bool { return strings.Contains(m, "|") }) {
		return ""
	}
	return alloc.Names(strings.Join(slices.Sorted(maps.Keys(let)), "|"))
}

// device is a GPU as claims have it, for what was written to select devices there.
func device(g *v1alpha1.NodeGPU) *resourcev1.Device {
	yes := true
	d := &resourcev1.Device{
		AllowMultipleAllocations: &yes,
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			v1alpha1.AttributeWhole: {BoolValue: &yes},
		},
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
			v1alpha1.CapacityMemory: {Value: *resource.NewQuantity(int64(min(g.Memory, math.MaxInt64)), resource.BinarySI)},
			v1alpha1.CapacityCores:  {Value: *resource.NewQuantity(v1alpha1.MaxCores, resource.DecimalSI)},
			v1alpha1.CapacitySlots:  {Value: *resource.NewQuantity(int64(g.Slots), resource.DecimalSI)},
		},
	}
	for name, value := range map[resourcev1.QualifiedName]string{
		v1alpha1.AttributeUUID: g.UUID, v1alpha1.AttributeForm: v1alpha1.FormShared, v1alpha1.AttributeModel: g.Model,
		v1alpha1.AttributeArchitecture: g.Architecture, v1alpha1.AttributePCIeSwitch: g.PCIeSwitch, v1alpha1.AttributeNVLinkClique: g.NVLinkClique,
		deviceattribute.StandardDeviceAttributePCIeRoot: g.PCIeRoot, deviceattribute.StandardDeviceAttributePCIBusID: g.PCIBusID,
	} {
		if value != "" {
			d.Attributes[name] = resourcev1.DeviceAttribute{StringValue: &value}
		}
	}
	for name, value := range map[resourcev1.QualifiedName]string{v1alpha1.AttributeDriverVersion: g.DriverVersion, v1alpha1.AttributeCUDAVersion: g.CUDAVersion} {
		if value != "" {
			d.Attributes[name] = resourcev1.DeviceAttribute{VersionValue: &value}
		}
	}
	index, numa := int64(g.Index), int64(g.NUMANode)
	d.Attributes[v1alpha1.AttributeIndex] = resourcev1.DeviceAttribute{IntValue: &index}
	if g.NUMANode >= 0 {
		d.Attributes[v1alpha1.AttributeNUMANode] = resourcev1.DeviceAttribute{IntValue: &numa}
	}
	if g.Suspends {
		d.Attributes[v1alpha1.AttributeSuspends] = resourcev1.DeviceAttribute{BoolValue: &yes}
	}
	return d
}

// single is equal for GPUs of one variety of which an expression that reads these attributes reads the same.
func single(g *v1alpha1.NodeGPU, names []resourcev1.QualifiedName) string {
	text := ""
	for _, name := range names {
		switch name {
		case v1alpha1.Driver + "/" + v1alpha1.AttributeUUID:
			text += fmt.Sprintf("%q ", g.UUID)
		case v1alpha1.Driver + "/" + v1alpha1.AttributeIndex:
			text += fmt.Sprintf("%d ", g.Index)
		case v1alpha1.Driver + "/" + v1alpha1.AttributeNUMANode:
			text += fmt.Sprintf("%d ", g.NUMANode)
		case v1alpha1.Driver + "/" + v1alpha1.AttributePCIeSwitch:
			text += fmt.Sprintf("%q ", g.PCIeSwitch)
		case v1alpha1.Driver + "/" + v1alpha1.AttributeNVLinkClique:
			text += fmt.Sprintf("%q ", g.NVLinkClique)
		case resourcev1.QualifiedName(deviceattribute.StandardDeviceAttributePCIeRoot):
			text += fmt.Sprintf("%q ", g.PCIeRoot)
		case resourcev1.QualifiedName(deviceattribute.StandardDeviceAttributePCIBusID):
			text += fmt.Sprintf("%q ", g.PCIBusID)
		} // the others no GPU has here
	}
	return text
}
