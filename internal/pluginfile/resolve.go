package pluginfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrStrategy marks a node whose MIG devices do not fit flags.migStrategy.
var ErrStrategy = errors.New("flags.migStrategy")

// GPU is a GPU of a node.
type GPU struct {
	Index int
	UUID  string
	// MIG is true for a GPU in MIG mode, and Instances are its MIG devices then, by their places.
	MIG       bool
	Instances []Instance
}

// Instance is a MIG device: a GPU instance with the compute instance that fills it.
type Instance struct {
	UUID string
	// Profile is the driver's name, such as 1g.10gb.
	Profile string
	// GPUInstance and ComputeInstance are the driver's numbers.
	GPUInstance, ComputeInstance int
}

// Device is a GPU or a MIG device that a node counts.
type Device struct {
	// GPU and Instance are places in what [Config.Resolve] was given; Instance is -1 for a whole GPU.
	GPU, Instance int
	// Resource is its name without replicas.
	Resource string
	// Entry says how many replicas there are of it, nil where it is given out whole.
	Entry *Replicated
	// names are those by which a file may call it, and place what its number of devices counts: a GPU's index, or how
	// many MIG devices of the name come before.
	names []string
	place int
}

// Name is that under which it is counted.
func (d *Device) Name() string {
	if d.Entry != nil {
		return d.Entry.Name()
	}
	return d.Resource
}

// Resolve returns the devices that a node counts, in order, and the names in the file of devices that the node does not
// have, which a file for several nodes may well have. An error says that a device has two entries, or that the node's MIG
// devices do not fit the strategy, which is an [ErrStrategy].
func (c *Config) Resolve(gpus []GPU) (devices []Device, absent []string, err error) {
	if c.Strategy == StrategySingle {
		if err := uniform(gpus); err != nil {
			return nil, nil, err
		}
	}
	devices = c.counted(gpus)
	for i := range c.Replicated {
		e := &c.Replicated[i]
		var of []*Device
		for at := range devices {
			if devices[at].Resource == e.Resource {
				of = append(of, &devices[at])
			}
		}
		absent = append(absent, e.absent(of)...)
		for _, d := range of {
			switch {
			case !e.means(d):
			case d.Entry != nil:
				return nil, nil, fmt.Errorf("%s has replicas by %s and by %s: one entry for each GPU", d.text(gpus), d.Entry.Field, e.Field)
			default:
				d.Entry = e
			}
		}
	}
	return devices, absent, nil
}

// counted are the devices that have a name with the file's strategy, all of them whole.
func (c *Config) counted(gpus []GPU) []Device {
	var devices []Device
	before := map[string]int{}
	for at, gpu := range gpus {
		if !gpu.MIG {
			devices = append(devices, Device{GPU: at, Instance: -1, Resource: GPUResource, place: gpu.Index, names: []string{strconv.Itoa(gpu.Index), gpu.UUID}})
			continue
		}
		for i, one := range gpu.Instances {
			d := Device{GPU: at, Instance: i, names: []string{
				fmt.Sprintf("%d:%d", gpu.Index, i), one.UUID, fmt.Sprintf("MIG-%s/%d/%d", gpu.UUID, one.GPUInstance, one.ComputeInstance),
			}}
			switch c.Strategy {
			case StrategySingle:
				d.Resource = GPUResource
			case StrategyMixed:
				d.Resource = MIGResource(one.Profile)
			default:
				continue
			}
			d.place = before[d.Resource]
			before[d.Resource]++
			devices = append(devices, d)
		}
	}
	return devices
}

// uniform returns an error unless no GPU is in MIG mode, or all of them have devices of one profile.
func uniform(gpus []GPU) error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%w single: %w: divide all GPUs of the node into instances of one profile, or use mixed", ErrStrategy, fmt.Errorf(format, args...))
	}
	var on, off, first *GPU
	for i := range gpus {
		gpu := &gpus[i]
		switch {
		case !gpu.MIG:
			off = cmp.Or(off, gpu)
			continue
		case len(gpu.Instances) == 0:
			return fault("GPU %d is in MIG mode and has no instances", gpu.Index)
		}
		on, first = cmp.Or(on, gpu), cmp.Or(first, gpu)
		for _, one := range gpu.Instances {
			if profile := first.Instances[0].Profile; one.Profile != profile {
				return fault("there are instances of profiles %s and %s", profile, one.Profile)
			}
		}
	}
	if on != nil && off != nil {
		return fault("GPU %d is in MIG mode, and GPU %d is not", on.Index, off.Index)
	}
	return nil
}

// means reports whether an entry is for a device of its resource.
func (r *Replicated) means(d *Device) bool {
	return r.Devices.All() || d.place < r.Devices.Count || slices.ContainsFunc(r.Devices.List, d.is)
}

// is reports whether a file calls the device so.
func (d *Device) is(name string) bool {
	return slices.ContainsFunc(d.names, func(own string) bool { return strings.EqualFold(own, name) })
}

func (d *Device) text(gpus []GPU) string {
	if d.Instance < 0 {
		return fmt.Sprintf("GPU %d", gpus[d.GPU].Index)
	}
	return fmt.Sprintf("MIG device %d:%d", gpus[d.GPU].Index, d.Instance)
}

// absent returns what the entry names beyond the devices of its resource.
func (r *Replicated) absent(of []*Device) []string {
	var names []string
	for i := range r.Devices.Count {
		if !slices.ContainsFunc(of, func(d *Device) bool { return d.place == i }) {
			names = append(names, strconv.Itoa(i))
		}
	}
	for _, name := range r.Devices.List {
		if !slices.ContainsFunc(of, func(d *Device) bool { return d.is(name) }) {
			names = append(names, name)
		}
	}
	return names
}
