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
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// Division is how a GPU of form [MIG] is divided, as the cluster is told of it.
type Division struct {
	// Dynamic has Instances be all that the GPU could have. They take counters, so that the scheduler allocates together
	// only what can be there together. Otherwise they are those that are there.
	Dynamic   bool
	Instances []Instance
	// Multiprocessors are those of the GPU, 0 where unknown.
	Multiprocessors int
	// Taken has a bit for each memory slice, and Used the engines, that belong to instances of which the scheduler does not
	// know. They are for a GPU with Dynamic.
	Taken uint32
	Used  layouts.Amounts
}

// Instance is a MIG instance, or a place for one.
type Instance struct {
	// Profile is the driver's name, such as 1g.10gb, and Start and Size are its memory slices.
	Profile     string
	Start, Size int
	// UUID is the driver's, MIG-…, "" for an instance that is not there.
	UUID string
	// Memory is in bytes.
	Memory          uint64
	Multiprocessors int
	Takes           layouts.Amounts
	// Fault is nil where the instance is as the GPU is.
	Fault *Fault
	// Stays is true for an instance of a GPU with Dynamic that stays where it is: it takes no counters, and is in Taken and
	// Used.
	Stays bool
	// Rank orders the instances of GPUs with Dynamic: the scheduler takes the first that fits.
	Rank int
}

// instanceMark divides the GPU's UUID from the instance in a device's name.
const instanceMark = v1alpha1.InstanceMark

// InstanceName is the name of the device that stands for an instance with a profile that begins at a memory slice. It is
// the same whether the instance is there or can be made.
func InstanceName(uuid, profile string, start int) string {
	return strings.ToLower(uuid) + instanceMark + profileLetters.Replace(profile) + "-" + strconv.Itoa(start)
}

// profileLetters has a profile's name in a device's name, which has no other characters than letters, digits and dashes:
// 1g.24gb+me.all is 1g24gbpme-all.
var profileLetters = strings.NewReplacer("g.", "g", "+", "p", "gb-", "gbm", ".", "-")

// writtenProfile is a profile in a device's name.
var writtenProfile = regexp.MustCompile(`^([1-9][0-9]?g)([1-9][0-9]{0,3}gb)(?:([pm])([a-z]+)(?:-([a-z]+))?)?$`)

// ParseInstance returns the instance that a device's name stands for; ok is false for a name of another form.
func ParseInstance(name string) (profile string, start int, ok bool) {
	if _, form, known := Parse(name); !known || form != MIG {
		return "", 0, false
	}
	_, profile, start, ok = cutInstance(strings.TrimPrefix(name, "gpu-"))
	return profile, start, ok
}

// cutInstance divides a name into what is before the mark and the instance.
func cutInstance(name string) (stem, profile string, start int, ok bool) {
	at := strings.LastIndex(name, instanceMark)
	end := strings.LastIndexByte(name, '-')
	if at <= 0 || end < at+len(instanceMark) {
		return "", "", 0, false
	}
	start, err := strconv.Atoi(name[end+1:])
	parts := writtenProfile.FindStringSubmatch(name[at+len(instanceMark) : end])
	if err != nil || start < 0 || start >= layouts.MaxSlices || strconv.Itoa(start) != name[end+1:] || parts == nil {
		return "", "", 0, false
	}
	profile = parts[1] + "." + parts[2]
	if parts[3] != "" {
		profile += map[string]string{"p": "+", "m": "-"}[parts[3]] + parts[4]
	}
	if parts[5] != "" {
		profile += "." + parts[5]
	}
	return name[:at], profile, start, true
}

// validateInstances returns why the instances cannot be published.
func (g *GPU) validateInstances() error {
	if g.form() != MIG || g.Division == nil {
		return nil
	}
	for i := range g.Division.Instances {
		one := &g.Division.Instances[i]
		name := InstanceName(g.UUID, one.Profile, one.Start)
		profile, start, ok := ParseInstance(name)
		if !ok || profile != one.Profile || start != one.Start || len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("%w: %s: no device can be named after an instance %q at %d", ErrGPU, g.UUID, one.Profile, one.Start)
		}
		if one.Memory < LeastMemory || one.Size < 1 || one.Start+one.Size > layouts.MaxSlices ||
			one.Fault != nil && len(validation.IsValidLabelValue(one.Fault.Reason)) > 0 {
			return fmt.Errorf("%w: %s: instance %s at %d has %d bytes and %d memory slices", ErrGPU, g.UUID, one.Profile, one.Start, one.Memory, one.Size)
		}
	}
	return nil
}

// listed is an instance in a list of devices.
type listed struct {
	gpu *GPU
	*Instance
}

// fixed are the instances of GPUs whose layout is fixed. Smaller ones come first: who asks for an amount gets the smallest
// that has it.
func fixed(gpus []GPU) (devices []resourcev1.Device) {
	var all []listed
	for i := range gpus {
		if g := &gpus[i]; g.form() == MIG && g.Division != nil && !g.Division.Dynamic {
			for k := range g.Division.Instances {
				all = append(all, listed{g, &g.Division.Instances[k]})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b listed) int {
		return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Takes[layouts.ComputeSlices], b.Takes[layouts.ComputeSlices]), cmp.Compare(a.Profile, b.Profile))
	})
	for _, l := range all {
		devices = append(devices, l.gpu.instance(l.Instance))
	}
	return devices
}

// instance is the device of one.
func (g *GPU) instance(i *Instance) resourcev1.Device {
	device := g.base(MIG)
	device.Name = InstanceName(g.UUID, i.Profile, i.Start)
	set := func(name resourcev1.QualifiedName, value string) {
		delete(device.Attributes, name)
		if value != "" {
			device.Attributes[name] = resourcev1.DeviceAttribute{StringValue: ptr.To(value)}
		}
	}
	set(v1alpha1.AttributeUUID, i.UUID)
	set(v1alpha1.AttributeParent, g.UUID)
	set(v1alpha1.AttributeProfile, i.Profile)
	// No instance reaches another GPU without the host, and a device has room for 32 attributes and capacities.
	set(v1alpha1.AttributePCIeSwitch, "")
	set(v1alpha1.AttributeNVLinkClique, "")
	memory := inBlocks(i.Memory)
	device.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{v1alpha1.CapacityMemory: {Value: memory}}
	if g.Division.Multiprocessors > 0 {
		cores := int64(i.Multiprocessors) * v1alpha1.MaxCores / int64(g.Division.Multiprocessors)
		device.Capacity[v1alpha1.CapacityCores] = resourcev1.DeviceCapacity{Value: number(cores)}
	}
	if g.NVIDIANames {
		set(nvidiaType, "mig")
		set(nvidiaUUID, i.UUID)
		set(nvidiaParent, g.UUID)
		set(nvidiaProfile, i.Profile)
		set(nvidiaIndex, "")
		device.Capacity[nvidiaMemory] = resourcev1.DeviceCapacity{Value: memory}
		device.Capacity[nvidiaProcessors] = resourcev1.DeviceCapacity{Value: number(int64(i.Multiprocessors))}
		for counter, name := range nvidiaEngines {
			device.Capacity[name] = resourcev1.DeviceCapacity{Value: number(int64(i.Takes[counter]))}
		}
	}
	device.Taints = append(append(device.Taints, i.Fault.taints()...), changing(g.Changing)...)
	return device
}
