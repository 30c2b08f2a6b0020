// Package pool describes a node's GPUs to the cluster. It makes the resource slices of the node's pool from a plain
// description of the GPUs, and finds the GPU and the form of a device by the device's name. It is pure: package dra
// publishes the slices, package kube describes the GPUs.
//
// Every GPU is published once, as a device that several claims can have a share of. Its form says how these shares are
// made, and is part of its name. Memory that a request does not name
// is all of it, so a request without amounts takes the whole GPU and fits beside no share. Such devices take no counters: with
// them, Kubernetes 1.36 reads the slices of all nodes for each node that it considers. Devices are named after UUIDs, so
// that a GPU that vanishes changes no other name. They are listed in the order of the GPUs, and the scheduler takes the
// first that fits.
//
// Devices for virtual machines are PCI functions and vGPUs, named after addresses: a GPU that has left its driver has no
// UUID. One claim has such a device alone.
//
// A GPU in MIG mode is published as its instances, each of which one claim has alone. Only where its layout may change are
// the devices all places that an instance can have, with counters that keep apart what cannot be there together.
//
// Earlier versions published a second device for each GPU, which stood for the whole of it. While an allocation of such
// a device lives, it is published instead of the shared one.
package pool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// LeastMemory is what a GPU must have for tenants to be published, in bytes.
const LeastMemory = 2 * mebibyte

// ErrGPU marks a description from which no valid device can be made.
var ErrGPU = errors.New("GPU cannot be published")

// ErrNIC marks a description of a card from which no valid device can be made.
var ErrNIC = errors.New("card cannot be published")

// Form is one of the ways in which a GPU can be published.
type Form string

// The forms, as the attribute form has them. Whole is of earlier versions.
const (
	Shared    Form = v1alpha1.FormShared
	Timeslice Form = v1alpha1.FormTimeslice
	MPS       Form = v1alpha1.FormMPS
	MIG       Form = v1alpha1.FormMIG
	// Remote GPUs are in a pool of their own, see [RemoteSpec].
	Remote Form = v1alpha1.FormRemote
	Whole  Form = v1alpha1.FormWhole
)

// shareable are the forms of which several claims can have a share.
var shareable = []Form{Shared, Timeslice, MPS, Remote}

// GPU is what the cluster is told of a GPU.
type GPU struct {
	// UUID is the driver's, such as GPU-8dd5f44a-1b64-4d3a-9a4f-0d4b4a0a3a3e.
	UUID string
	// Index is NVML's; it orders the devices. It is negative where it is unknown.
	Index int
	// Model is the driver's name of it, Architecture such as "ampere", "" where unknown.
	Model, Architecture string
	// Memory is what there is for tenants, in bytes.
	Memory uint64
	// SwapMemory is what swap shares of it can have of the node's memory, and Turn how much of Memory they have turns in, which is
	// the most that one of them can have, in bytes; both are 0 where none can be.
	SwapMemory, Turn uint64
	// Unswappable is true of a GPU that can have no swap shares though its compute capability would do, and Suspends of one whose
	// shares can be suspended where the node has memory for that.
	Unswappable, Suspends bool
	// DriverVersion is written as the driver does, such as 535.104.05.
	DriverVersion string
	// CUDA is the newest version that the driver serves, 12040 for 12.4; 0 where unknown.
	CUDA int
	// Location is nil where it is not known.
	Location *Location
	// Fault is nil for a healthy GPU.
	Fault *Fault
	// Form is the one in which its shares are made; "" is Shared.
	Form Form
	// Division is how a GPU of form MIG is divided, nil where that is not known: it has no devices then.
	Division *Division
	// Replicas is the most shares that the GPU may have, 0 for as many as the form allows.
	Replicas int
	// Changing is the form that it is to get when no claim has the device any more, "" for none.
	Changing Form
	// Brand is NVIDIA's, such as Tesla; Capability the compute capability, such as 8.0. Both are "" where unknown.
	Brand, Capability string
	// NVIDIANames has the device bear the attributes of NVIDIA's DRA driver as well.
	NVIDIANames bool
	// DefaultCores is what a share takes that asks for no cores, in percent, where the form has cores to give.
	DefaultCores int
	// Held is nil unless a tenancy has the whole GPU. It is how many bytes the scheduler counts for this tenancy, which
	// can be fewer than the GPU has now. It is 0 for the whole device of earlier versions, which has no amounts.
	Held *uint64
	// host is where a GPU of form Remote is reached.
	host Host
}

// Location is where in its machine a GPU is.
type Location struct {
	// PCI is the address in sysfs's form, 0000:3b:00.0.
	PCI string
	// Root is the host bridge as sysfs names it, pci0000:3a; Switch the address of the upstream port below which the
	// GPU reaches others without the host bridge. Both are "" where there is none or it is unknown.
	Root, Switch string
	// NUMANode is negative where it is unknown.
	NUMANode int
	// Clique names the GPUs that all reach each other by NVLink, "" where there are none.
	Clique string
}

// Fault says why nothing more may be placed on a GPU.
type Fault struct {
	// Reason is a few letters and dashes, such as xid-79: it becomes the value of a taint.
	Reason string
	// Lost says that what runs on the GPU cannot go on: pods that use it are evicted.
	Lost bool
}

// Name returns the name of the device that a GPU is in a form.
func Name(uuid string, form Form) string {
	name := strings.ToLower(uuid)
	if form != Whole {
		name += suffix(form)
	}
	return name
}

// suffix ends the names of devices of a form. So an allocation names the form that the scheduler saw.
func suffix(form Form) string { return "-" + string(form) }

// Parse returns the UUID and the form that a device's name stands for; ok is false for a name that is not of this
// package's making. Whether there is such a GPU is another question.
func Parse(name string) (uuid string, form Form, ok bool) {
	rest, ok := strings.CutPrefix(name, "gpu-")
	if !ok || rest == "" || len(validation.IsDNS1123Label(name)) > 0 {
		return "", "", false
	}
	if stem, _, _, instance := cutInstance(rest); instance {
		return "GPU-" + stem, MIG, true
	}
	form = Whole
	for _, f := range shareable {
		if stem, shared := strings.CutSuffix(rest, suffix(f)); shared {
			rest, form = stem, f
			break
		}
	}
	return "GPU-" + rest, form, rest != ""
}

// Resources returns the pool of a node, which bears the node's name, in as many slices as the API's limits need. No GPUs
// make one empty slice, which says that the driver runs. MIG instances follow the GPUs, and more slices follow these.
func Resources(node string, gpus []GPU, more ...resourceslice.Slice) (resourceslice.DriverResources, error) {
	sorted := slices.SortedFunc(slices.Values(gpus), func(a, b GPU) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
	})
	var devices []resourcev1.Device
	for i := range sorted {
		if err := sorted[i].validate(); err != nil {
			return resourceslice.DriverResources{}, err
		}
		if sorted[i].form() == Remote {
			return resourceslice.DriverResources{}, fmt.Errorf("%w: %s is of form remote, and has no device in its node's pool", ErrGPU, sorted[i].UUID)
		}
		if sorted[i].form() != MIG {
			devices = append(devices, sorted[i].device())
		}
	}
	devices = append(devices, fixed(sorted)...)
	var pool resourceslice.Pool
	for chunk := range slices.Chunk(devices, resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: chunk})
	}
	pool.Slices = append(append(pool.Slices, dynamic(sorted)...), more...)
	if len(pool.Slices) == 0 {
		pool.Slices = []resourceslice.Slice{{}}
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}, nil
}

func (g *GPU) validate() error {
	known := slices.Concat(shareable, []Form{MIG})
	if !slices.Contains(known, g.form()) || g.Changing != "" && !IsMachines(g.Changing) && !slices.Contains(known, g.Changing) {
		return fmt.Errorf("%w: %s: form %q, changing to %q", ErrGPU, g.UUID, g.Form, g.Changing)
	}
	for _, form := range append(shareable, Whole) {
		if uuid, parsed, ok := Parse(Name(g.UUID, form)); !ok || uuid != g.UUID || parsed != form {
			return fmt.Errorf("%w: no device can be named after UUID %q", ErrGPU, g.UUID)
		}
	}
	if g.Memory < LeastMemory {
		return fmt.Errorf("%w: %s has %d bytes for tenants", ErrGPU, g.UUID, g.Memory)
	}
	if err := g.validateSwap(); err != nil {
		return err
	}
	if g.DefaultCores < 0 || g.DefaultCores > v1alpha1.MaxCores {
		return fmt.Errorf("%w: %s: a share cannot take %d cores by default", ErrGPU, g.UUID, g.DefaultCores)
	}
	if g.Fault != nil && len(validation.IsValidLabelValue(g.Fault.Reason)) > 0 {
		return fmt.Errorf("%w: %s: %q cannot be the value of a taint", ErrGPU, g.UUID, g.Fault.Reason)
	}
	return g.validateInstances()
}
