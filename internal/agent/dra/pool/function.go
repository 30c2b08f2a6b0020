package pool

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// The forms of devices for virtual machines.
const (
	Passthrough Form = v1alpha1.FormPassthrough
	VF          Form = v1alpha1.FormVF
	VGPU        Form = v1alpha1.FormVGPU
)

// machineForms are those forms. One claim has such a device alone.
var machineForms = []Form{Passthrough, VF, VGPU}

// IsMachines reports whether a form is one of devices for virtual machines.
func IsMachines(form Form) bool { return slices.Contains(machineForms, form) }

// NoGroup is the IOMMU group of a device that has none yet.
const NoGroup = -1

// FunctionID says which device for a virtual machine one is. It is what the device's name stands for.
type FunctionID struct {
	Form Form
	// Address is that of the PCI function. Of a mediated device it is the function's on which it is made.
	Address pci.Address
	// Type is the number of a vGPU's type, "" for another form.
	Type string
	// Mediated is true for a mediated device, and Number tells it from others of its type on the function.
	Mediated bool
	Number   int
}

// Function is what the cluster is told of a device for virtual machines.
type Function struct {
	FunctionID
	// Parent is the physical function of a virtual one, the zero address for others.
	Parent pci.Address
	// Vendor and Product are PCI's numbers.
	Vendor, Product uint16
	// Model and TypeName are the driver's, "" where unknown.
	Model, TypeName string
	// Group is the IOMMU group's number, [NoGroup] for a mediated device, which is in one of its own once it is made.
	Group int
	// Location is nil where it is not known. Its PCI is not used.
	Location *Location
	// Fault is nil where it can be given away.
	Fault *Fault
	// Changing is the form that its GPU is to get when no claim has the device any more, "" for none.
	Changing Form
}

// maxNumber bounds the mediated devices of one function and type.
const maxNumber = 1023

// Name is the name of the device: passthrough-0000-3b-00-0, vf-0000-3b-00-4, vgpu-0000-3b-00-4-471 for a virtual function
// with a type, and vgpu-0000-3b-00-0-471-2 for a mediated device.
func (f FunctionID) Name() string {
	name := string(f.Form) + "-" + addressMarks.Replace(f.Address.String())
	if f.Type != "" {
		name += "-" + f.Type
	}
	if f.Mediated {
		name += "-" + strconv.Itoa(f.Number)
	}
	return name
}

var addressMarks = strings.NewReplacer(":", "-", ".", "-")

// writtenFunction is a name that Name makes.
var writtenFunction = regexp.MustCompile(`^(passthrough|vf|vgpu)-([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])(?:-([1-9][0-9]{0,5}))?(?:-(0|[1-9][0-9]{0,3}))?$`)

// ParseFunction returns which device a name stands for; ok is false for a name that is not of [FunctionID.Name].
func ParseFunction(name string) (id FunctionID, ok bool) {
	parts := writtenFunction.FindStringSubmatch(name)
	if parts == nil {
		return FunctionID{}, false
	}
	address, err := pci.ParseAddress(parts[2] + ":" + parts[3] + ":" + parts[4] + "." + parts[5])
	if err != nil {
		return FunctionID{}, false
	}
	id = FunctionID{Form: Form(parts[1]), Address: address, Type: parts[6]}
	if parts[7] != "" {
		id.Mediated = true
		id.Number, _ = strconv.Atoi(parts[7]) // four digits
	}
	return id, id.valid() && id.Name() == name
}

// valid tells whether the parts fit together.
func (f FunctionID) valid() bool {
	return IsMachines(f.Form) && (f.Form == VGPU) == (f.Type != "") && (!f.Mediated || f.Type != "" && f.Number >= 0 && f.Number <= maxNumber)
}

// Functions returns the slices of devices for virtual machines, in the order of their addresses. Devices of one IOMMU group
// go to one virtual machine together or not at all, so where a group has several, each takes the group's one counter.
func Functions(functions []Function) ([]resourceslice.Slice, error) {
	functions = slices.SortedFunc(slices.Values(functions), func(a, b Function) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Form, b.Form), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Number, b.Number))
	})
	members := map[int]int{}
	for i := range functions {
		members[functions[i].Group]++
	}
	delete(members, NoGroup)
	var sets []resourcev1.CounterSet
	var alone, together []resourcev1.Device
	for i := range functions {
		f := &functions[i]
		if err := f.validate(); err != nil {
			return nil, err
		}
		device := f.device()
		if members[f.Group] < 2 {
			alone = append(alone, device)
			continue
		}
		name := "iommu-group-" + strconv.Itoa(f.Group)
		if !slices.ContainsFunc(sets, func(s resourcev1.CounterSet) bool { return s.Name == name }) {
			sets = append(sets, resourcev1.CounterSet{Name: name, Counters: map[string]resourcev1.Counter{groupCounter: counter(1)}})
		}
		device.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: name, Counters: map[string]resourcev1.Counter{groupCounter: counter(1)}}}
		together = append(together, device)
	}
	var all []resourceslice.Slice
	for chunk := range slices.Chunk(sets, resourcev1.ResourceSliceMaxCounterSets) {
		all = append(all, resourceslice.Slice{SharedCounters: chunk})
	}
	for _, devices := range [][]resourcev1.Device{alone, together} {
		for chunk := range slices.Chunk(devices, resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures) {
			all = append(all, resourceslice.Slice{Devices: chunk})
		}
	}
	return all, nil
}

// groupCounter is the one counter of an IOMMU group.
const groupCounter = "group"

func (f *Function) validate() error {
	if id, ok := ParseFunction(f.Name()); !ok || id != f.FunctionID {
		return fmt.Errorf("%w: %s has no device of form %s, type %q and number %d", ErrGPU, f.Address, f.Form, f.Type, f.Number)
	}
	if f.Fault != nil && len(validation.IsValidLabelValue(f.Fault.Reason)) > 0 {
		return fmt.Errorf("%w: %s: %q cannot be the value of a taint", ErrGPU, f.Address, f.Fault.Reason)
	}
	return nil
}

// device is what is published. It has no capacities: one claim has all of it.
func (f *Function) device() resourcev1.Device {
	return resourcev1.Device{Name: f.Name(), Attributes: f.Attributes(), Taints: append(f.Fault.taints(), changing(f.Changing)...)}
}

// Attributes are those that are published and that a claim's metadata have. The address of the PCI function that a virtual
// machine gets is its PCI bus ID. A mediated device is no PCI function, so it has a parent alone.
func (f *Function) Attributes() map[resourcev1.QualifiedName]resourcev1.DeviceAttribute {
	all := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
	text := func(name resourcev1.QualifiedName, value string) {
		if value != "" {
			all[name] = resourcev1.DeviceAttribute{StringValue: ptr.To(clip(value))}
		}
	}
	whole := func(name resourcev1.QualifiedName, value int) {
		if value >= 0 {
			all[name] = resourcev1.DeviceAttribute{IntValue: ptr.To(int64(value))}
		}
	}
	text(v1alpha1.AttributeForm, string(f.Form))
	text(v1alpha1.AttributePCIID, fmt.Sprintf("%04x:%04x", f.Vendor, f.Product))
	text(v1alpha1.AttributeModel, f.Model)
	text(v1alpha1.AttributeVGPUType, f.Type)
	text(v1alpha1.AttributeVGPUName, f.TypeName)
	whole(v1alpha1.AttributeIOMMUGroup, f.Group)
	switch {
	case f.Mediated:
		text(v1alpha1.AttributePCIParent, f.Address.String())
	case f.Parent != pci.Address{}:
		text(v1alpha1.AttributePCIParent, f.Parent.String())
		fallthrough
	default:
		text(deviceattribute.StandardDeviceAttributePCIBusID, f.Address.String())
	}
	if f.Location != nil {
		text(v1alpha1.AttributePCIeSwitch, f.Location.Switch)
		text(deviceattribute.StandardDeviceAttributePCIeRoot, f.Location.Root)
		whole(v1alpha1.AttributeNUMANode, f.Location.NUMANode)
	}
	return all
}
