package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// NIC is what the cluster is told of an RDMA card, or of a virtual function of one.
type NIC struct {
	// Key names its device: small letters, digits and dashes. It stays when the adapter is renamed.
	Key string
	// Adapter is the kernel's name of it, Netdev that of its network device, "" where none is there.
	Adapter, Netdev string
	// LinkType is ethernet or infiniband, "" where unknown.
	LinkType string
	// Rail is the card's number on its node.
	Rail int
	// Function is true for a virtual function, which one claim has alone; Slots is how many claims can have a part of another.
	Function bool
	Slots    int
	// Location is nil where it is on no PCI device.
	Location *Location
	// Fault is why nothing more may be placed on it, "" for nothing.
	Fault string
}

// MostNICSlots is the most slots that a card can have.
const MostNICSlots = 1024

// nicPrefix begins the names of cards' devices; the key and the form follow.
const nicPrefix = "nic-"

// Device returns the name of the device that a card is.
func (n *NIC) Device() string {
	if n.Function {
		return nicPrefix + n.Key + "-vf"
	}
	return nicPrefix + n.Key + "-shared"
}

// IsNIC reports whether a device's name is that of a card, and whether of a virtual function. Whether there is such a card is another
// question.
func IsNIC(name string) (function, ok bool) {
	rest, ok := strings.CutPrefix(name, nicPrefix)
	if !ok || len(validation.IsDNS1123Label(name)) > 0 {
		return false, false
	}
	if key, is := strings.CutSuffix(rest, "-vf"); is {
		return true, key != ""
	}
	key, is := strings.CutSuffix(rest, "-shared")
	return false, is && key != ""
}

// WithNICs adds cards to a node's pool, in slices of their own behind those of the GPUs.
func WithNICs(resources resourceslice.DriverResources, node string, nics []NIC) error {
	var devices []resourcev1.Device
	sorted := slices.SortedFunc(slices.Values(nics), func(a, b NIC) int {
		return cmp.Or(cmp.Compare(a.Rail, b.Rail), cmp.Compare(a.Key, b.Key))
	})
	for i := range sorted {
		n := &sorted[i]
		if _, ok := IsNIC(n.Device()); !ok {
			return fmt.Errorf("publish adapter %q: %w: no device can be named after %q", n.Adapter, ErrNIC, n.Key)
		}
		if n.Fault != "" && len(validation.IsValidLabelValue(n.Fault)) > 0 {
			return fmt.Errorf("publish adapter %q: %w: %q cannot be the value of a taint", n.Adapter, ErrNIC, n.Fault)
		}
		if !n.Function && (n.Slots < 1 || n.Slots > MostNICSlots) {
			return fmt.Errorf("publish adapter %q: %w: %d slots", n.Adapter, ErrNIC, n.Slots)
		}
		devices = append(devices, n.device())
	}
	if len(devices) == 0 {
		return nil
	}
	all := resources.Pools[node]
	if len(all.Slices) == 1 && len(all.Slices[0].Devices) == 0 && len(all.Slices[0].SharedCounters) == 0 {
		all.Slices = nil // the one that says that there is no GPU
	}
	for chunk := range slices.Chunk(devices, resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures) {
		all.Slices = append(all.Slices, resourceslice.Slice{Devices: chunk})
	}
	resources.Pools[node] = all
	return nil
}

func (n *NIC) device() resourcev1.Device {
	d := resourcev1.Device{Name: n.Device(), Attributes: n.attributes()}
	if n.Fault != "" {
		d.Taints = []resourcev1.DeviceTaint{{Key: v1alpha1.UnhealthyTaint, Value: n.Fault, Effect: resourcev1.DeviceTaintEffectNoSchedule}}
	}
	if !n.Function {
		d.AllowMultipleAllocations = ptr.To(true)
		d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
			v1alpha1.CapacitySlots: capacity(number(int64(n.Slots)), number(1), number(1)),
		}
	}
	return d
}

// attributes leaves out what is not known, as those of a GPU do. Where a card is, is said in the same words.
func (n *NIC) attributes() map[resourcev1.QualifiedName]resourcev1.DeviceAttribute {
	all := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{v1alpha1.AttributeRail: {IntValue: ptr.To(int64(n.Rail))}}
	text := func(name resourcev1.QualifiedName, value string) {
		if value != "" {
			all[name] = resourcev1.DeviceAttribute{StringValue: ptr.To(clip(value))}
		}
	}
	form, resource := v1alpha1.FormNIC, v1alpha1.RailResource+strconv.Itoa(n.Rail)
	if n.Function {
		// A network definition that moves functions must find no card that others have a part of.
		form, resource = v1alpha1.FormNICFunction, resource+"-vf"
	}
	text(v1alpha1.AttributeForm, form)
	text(v1alpha1.AttributeRDMADevice, n.Adapter)
	text(v1alpha1.AttributeNetdev, n.Netdev)
	text(v1alpha1.AttributeLinkType, n.LinkType)
	if n.Location == nil {
		return all
	}
	text(v1alpha1.AttributePCIeSwitch, n.Location.Switch)
	text(v1alpha1.AttributeSwitch, n.Location.meets())
	text(deviceattribute.StandardDeviceAttributePCIeRoot, n.Location.Root)
	text(deviceattribute.StandardDeviceAttributePCIBusID, n.Location.PCI)
	text(v1alpha1.AttributeMultusDevice, n.Location.PCI)
	text(v1alpha1.AttributeMultusResource, resource)
	if n.Location.NUMANode >= 0 {
		all[v1alpha1.AttributeNUMANode] = resourcev1.DeviceAttribute{IntValue: ptr.To(int64(n.Location.NUMANode))}
	}
	return all
}
