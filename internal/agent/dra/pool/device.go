package pool

import (
	"cmp"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const mebibyte = 1 << 20

// device is the one device that the GPU is published as.
func (g *GPU) device() resourcev1.Device {
	if g.Held != nil && *g.Held == 0 {
		return g.whole()
	}
	return g.shared()
}

// form is the one in which the GPU's shares are made.
func (g *GPU) form() Form { return cmp.Or(g.Form, Shared) }

func (g *GPU) shared() resourcev1.Device {
	device := g.base(g.form())
	device.AllowMultipleAllocations = ptr.To(true)
	if g.form() != Remote { // claims of whole GPUs are for GPUs of the pod's node
		device.Attributes[v1alpha1.AttributeWhole] = resourcev1.DeviceAttribute{BoolValue: ptr.To(true)}
	}
	if g.Location != nil && g.Location.meets() != "" { // MIG instances are none of a pair, and have as many attributes as the API takes
		device.Attributes[v1alpha1.AttributeSwitch] = resourcev1.DeviceAttribute{StringValue: ptr.To(clip(g.Location.meets()))}
	}
	offered := g.Memory - g.turn()
	if g.Held != nil {
		// What the GPU has gained since then must not look free.
		offered = min(offered, max(*g.Held, LeastMemory))
	}
	memory := inBlocks(offered)
	cores, unasked := g.cores()
	// Every amount can be 0, for claims with admin access alone: Kubernetes 1.36 allocates them as if they took what they
	// ask. Shares of nothing are refused by the webhook and by the agent.
	device.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
		v1alpha1.CapacityMemory: capacity(memory, memory, *resource.NewQuantity(mebibyte, resource.BinarySI)),
		v1alpha1.CapacityCores:  capacity(number(cores), number(unasked), number(1)),
		v1alpha1.CapacitySlots:  capacity(number(g.slots()), number(1), number(1)),
	}
	if g.Suspends && g.form() == Shared {
		device.Attributes[v1alpha1.AttributeSuspends] = resourcev1.DeviceAttribute{BoolValue: ptr.To(true)}
	}
	if g.leaves() {
		device.Capacity[v1alpha1.CapacitySwapMemory] = g.swap()
	}
	if g.NVIDIANames {
		// No claim takes of it: the amount is there for selectors.
		device.Capacity[nvidiaMemory] = capacity(memory, *resource.NewQuantity(0, resource.BinarySI), *resource.NewQuantity(mebibyte, resource.BinarySI))
	}
	device.Taints = append(device.Taints, changing(g.Changing)...)
	return device
}

// changing is the taint of a GPU that is to get another form.
func changing(to Form) []resourcev1.DeviceTaint {
	if to == "" {
		return nil
	}
	return []resourcev1.DeviceTaint{{Key: v1alpha1.ChangingTaint, Value: string(to), Effect: resourcev1.DeviceTaintEffectNoSchedule}}
}

// cores returns how much of its time the GPU has for shares, and what a share takes that asks for none. Time slices are
// the driver's, and equal. Under MPS cores are a ceiling, and no ceiling is all.
func (g *GPU) cores() (all, unasked int64) {
	switch g.form() {
	case Timeslice:
		return 0, 0
	case MPS:
		return v1alpha1.MaxCores, 0
	}
	return v1alpha1.MaxCores, int64(g.DefaultCores)
}

// slots is how many shares the GPU has room for. MPS has a limit of clients, of which a share has at least one: 48, and
// 60 from CUDA 13.1 on (docs.nvidia.com/deploy/mps).
func (g *GPU) slots() int64 {
	all := int64(v1alpha1.SlotsPerGPU)
	switch {
	case g.form() != MPS:
	case g.CUDA >= 13010:
		all = 60
	default:
		all = 48
	}
	if g.Replicas > 0 {
		return min(all, int64(g.Replicas))
	}
	return all
}

// whole is the device that is allocated already. Its taints evict its pods from a GPU that is lost, and keep others away
// in the moment between the end of the allocation and that of the device.
func (g *GPU) whole() resourcev1.Device {
	device := g.base(Whole)
	device.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{v1alpha1.CapacityMemory: {Value: inBlocks(g.Memory)}}
	device.Taints = append(device.Taints, resourcev1.DeviceTaint{Key: v1alpha1.HeldTaint, Value: v1alpha1.FormWhole, Effect: resourcev1.DeviceTaintEffectNoSchedule})
	return device
}

// inBlocks is in whole MiB: the amount that a share has by default must be a multiple of the step.
func inBlocks(bytes uint64) resource.Quantity {
	return *resource.NewQuantity(int64(bytes/mebibyte*mebibyte), resource.BinarySI)
}

func number(n int64) resource.Quantity {
	return *resource.NewQuantity(n, resource.DecimalSI)
}

// capacity is an amount that claims take from, in steps. The API refuses a step that is larger than the amount.
func capacity(value, unasked, step resource.Quantity) resourcev1.DeviceCapacity {
	valid := &resourcev1.CapacityRequestPolicyRange{Min: resource.NewQuantity(0, step.Format)}
	if step.Cmp(value) <= 0 {
		valid.Step = &step
	}
	return resourcev1.DeviceCapacity{Value: value, RequestPolicy: &resourcev1.CapacityRequestPolicy{Default: &unasked, ValidRange: valid}}
}

// base is what both forms have in common.
func (g *GPU) base(form Form) resourcev1.Device {
	return resourcev1.Device{Name: Name(g.UUID, form), Attributes: g.attributes(form), Taints: g.Fault.taints()}
}

// attributes leaves out what is not known. The scheduler reports a selector that names a missing attribute; a made-up
// value would match silently.
func (g *GPU) attributes(form Form) map[resourcev1.QualifiedName]resourcev1.DeviceAttribute {
	all := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{v1alpha1.AttributeIndex: {IntValue: ptr.To(int64(g.Index))}}
	text := func(name resourcev1.QualifiedName, value string) {
		if value != "" {
			all[name] = resourcev1.DeviceAttribute{StringValue: ptr.To(clip(value))}
		}
	}
	text(v1alpha1.AttributeUUID, g.UUID)
	text(v1alpha1.AttributeForm, string(form))
	text(v1alpha1.AttributeModel, g.Model)
	text(v1alpha1.AttributeArchitecture, g.Architecture)
	for name, version := range map[resourcev1.QualifiedName]string{v1alpha1.AttributeDriverVersion: Semver(g.DriverVersion), v1alpha1.AttributeCUDAVersion: CUDASemver(g.CUDA)} {
		if version != "" {
			all[name] = resourcev1.DeviceAttribute{VersionValue: ptr.To(version)}
		}
	}
	if g.NVIDIANames {
		g.nvidia(all)
	}
	if g.form() == Remote {
		g.host.reached(all)
	}
	if g.Location == nil {
		return all
	}
	text(v1alpha1.AttributePCIeSwitch, g.Location.Switch)
	text(v1alpha1.AttributeNVLinkClique, g.Location.Clique)
	text(deviceattribute.StandardDeviceAttributePCIeRoot, g.Location.Root)
	text(deviceattribute.StandardDeviceAttributePCIBusID, g.Location.PCI)
	if g.Location.NUMANode >= 0 {
		node := resourcev1.DeviceAttribute{IntValue: ptr.To(int64(g.Location.NUMANode))}
		all[v1alpha1.AttributeNUMANode] = node
		if g.NVIDIANames {
			all[nvidiaNUMANode] = node
		}
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

// taints keep new pods away, and evict those that use a lost GPU.
func (f *Fault) taints() []resourcev1.DeviceTaint {
	if f == nil {
		return nil
	}
	effect := resourcev1.DeviceTaintEffectNoSchedule
	if f.Lost {
		effect = resourcev1.DeviceTaintEffectNoExecute
	}
	return []resourcev1.DeviceTaint{{Key: v1alpha1.UnhealthyTaint, Value: f.Reason, Effect: effect}}
}
