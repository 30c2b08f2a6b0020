package pool

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/ptr"
)

// The capacities of a shared device; a whole one has its memory only.
const (
	CapacityMemory = "memory" // bytes
	CapacityCores  = "cores"  // guaranteed percent of the GPU's time
	CapacitySlots  = "slots"  // shares, or places that a share keeps from others
)

// Slots is how many shares a GPU has room for, if each takes one. The driver keeps about half a GiB for each process,
// and equal time slices of 64 neighbours come round every 130 ms: more would be of no use to anybody.
const Slots = 64

// UnhealthyTaint is the key of the taint on devices of GPUs that are not healthy; its value is the reason.
const UnhealthyTaint = Driver + "/unhealthy"

const (
	mebibyte = 1 << 20
	// counter is the one counter of every GPU's counter set.
	counter = "gpu"
	// allCores is all of a GPU's time, in percent.
	allCores = 100
)

func (g *GPU) counterSet() resourcev1.CounterSet {
	return resourcev1.CounterSet{Name: Name(g.UUID, Whole), Counters: one()}
}

func one() map[string]resourcev1.Counter {
	return map[string]resourcev1.Counter{counter: {Value: *resource.NewQuantity(1, resource.DecimalSI)}}
}

func (g *GPU) shared() resourcev1.Device {
	device := g.device(Shared)
	device.AllowMultipleAllocations = ptr.To(true)
	if g.Fault == nil {
		device.Taints = g.SharesFault.taints()
	}
	memory := g.memory()
	device.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
		CapacityMemory: capacity(memory, memory, *resource.NewQuantity(mebibyte, resource.BinarySI), mebibyte),
		CapacityCores:  capacity(number(allCores), number(int64(g.DefaultCores)), number(1), 0),
		CapacitySlots:  capacity(number(Slots), number(1), number(1), 1),
	}
	return device
}

func (g *GPU) whole() resourcev1.Device {
	device := g.device(Whole)
	device.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{CapacityMemory: {Value: g.memory()}}
	return device
}

// memory is in whole MiB: the amount that a share has by default must be a multiple of the step.
func (g *GPU) memory() resource.Quantity {
	return *resource.NewQuantity(int64(g.Memory/mebibyte*mebibyte), resource.BinarySI)
}

func number(n int64) resource.Quantity {
	return *resource.NewQuantity(n, resource.DecimalSI)
}

// capacity is an amount that shares take from, in steps from a minimum on.
func capacity(value, unasked, step resource.Quantity, least int64) resourcev1.DeviceCapacity {
	return resourcev1.DeviceCapacity{Value: value, RequestPolicy: &resourcev1.CapacityRequestPolicy{
		Default:    &unasked,
		ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: resource.NewQuantity(least, step.Format), Step: &step},
	}}
}

// device is what both forms have in common.
func (g *GPU) device(form Form) resourcev1.Device {
	return resourcev1.Device{
		Name:             Name(g.UUID, form),
		Attributes:       g.attributes(form),
		ConsumesCounters: []resourcev1.DeviceCounterConsumption{{CounterSet: Name(g.UUID, Whole), Counters: one()}},
		Taints:           g.Fault.taints(),
	}
}

// attributes leaves out what is not known: a selector that names a missing attribute is an error to the scheduler, and
// one that compares with an invented value would be a lie.
func (g *GPU) attributes(form Form) map[resourcev1.QualifiedName]resourcev1.DeviceAttribute {
	all := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"index": {IntValue: ptr.To(int64(g.Index))}}
	text := func(name resourcev1.QualifiedName, value string) {
		if value != "" {
			all[name] = resourcev1.DeviceAttribute{StringValue: ptr.To(clip(value))}
		}
	}
	text("uuid", g.UUID)
	text("form", string(form))
	text("model", g.Model)
	text("architecture", g.Architecture)
	for name, version := range map[resourcev1.QualifiedName]string{"driverVersion": Semver(g.DriverVersion), "cudaVersion": cudaSemver(g.CUDA)} {
		if version != "" {
			all[name] = resourcev1.DeviceAttribute{VersionValue: ptr.To(version)}
		}
	}
	if g.Place == nil {
		return all
	}
	text("pcieSwitch", g.Place.Switch)
	text("nvlinkClique", g.Place.Clique)
	text(deviceattribute.StandardDeviceAttributePCIeRoot, g.Place.Root)
	text(deviceattribute.StandardDeviceAttributePCIBusID, g.Place.PCI)
	if g.Place.NUMANode >= 0 {
		all["numaNode"] = resourcev1.DeviceAttribute{IntValue: ptr.To(int64(g.Place.NUMANode))}
	}
	return all
}

// clip cuts a text to what the API takes.
func clip(text string) string {
	if len(text) <= resourcev1.DeviceAttributeMaxValueLength {
		return text
	}
	return strings.ToValidUTF8(text[:resourcev1.DeviceAttributeMaxValueLength], "")
}

// taints keep new pods away, and send away those that use a GPU which is lost.
func (f *Fault) taints() []resourcev1.DeviceTaint {
	if f == nil {
		return nil
	}
	effect := resourcev1.DeviceTaintEffectNoSchedule
	if f.Lost {
		effect = resourcev1.DeviceTaintEffectNoExecute
	}
	return []resourcev1.DeviceTaint{{Key: UnhealthyTaint, Value: f.Reason, Effect: effect}}
}
