package main

import (
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// place is where an instance begins, by its profile's name.
type place struct {
	profile string
	start   int
}

// layout is how each GPU of a node is divided.
type layout struct {
	name   string
	places []place
}

// The layouts: as many devices as a GPU can have, and one with instances of three sizes.
var (
	sevenths = layout{"seven 1g.10gb", []place{
		{"1g.10gb", 0}, {"1g.10gb", 1}, {"1g.10gb", 2}, {"1g.10gb", 3}, {"1g.10gb", 4}, {"1g.10gb", 5}, {"1g.10gb", 6},
	}}
	balanced = layout{"two 1g.10gb, 2g.20gb, 3g.40gb", []place{{"1g.10gb", 0}, {"1g.10gb", 1}, {"2g.20gb", 2}, {"3g.40gb", 4}}}
)

// fixed is the same machine with its GPUs in MIG mode and divided so.
func (in inventory) fixed(l layout) (inventory, error) {
	all, err := profiles()
	if err != nil {
		return nil, err
	}
	var instances []pool.Instance
	for _, p := range l.places {
		i := slices.IndexFunc(all, func(one simgpu.MIGProfile) bool { return one.Name == p.profile })
		if i < 0 || !slices.Contains(all[i].Starts, uint32(p.start)) {
			return nil, fmt.Errorf("divide machine %s: it has no instance %s at %d", machineName, p.profile, p.start)
		}
		instances = append(instances, instanceOf(all[i], p.start))
	}
	return in.divided(pool.Division{Instances: instances, Multiprocessors: processors(all)}), nil
}

// dynamic is the same machine with all instances that its GPUs could have.
func (in inventory) dynamic() (inventory, error) {
	all, err := profiles()
	if err != nil {
		return nil, err
	}
	var instances []pool.Instance
	for _, p := range all {
		for _, start := range p.Starts {
			one := instanceOf(p, int(start))
			one.Rank = len(instances)
			instances = append(instances, one)
		}
	}
	return in.divided(pool.Division{Dynamic: true, Instances: instances, Multiprocessors: processors(all)}), nil
}

func (in inventory) divided(d pool.Division) inventory {
	gpus := slices.Clone(in)
	for i := range gpus {
		gpus[i].Form, gpus[i].Division = pool.MIG, &d
	}
	return gpus
}

// profiles are those of the machine's GPUs.
func profiles() ([]simgpu.MIGProfile, error) {
	machine, err := simgpu.Load(machineName)
	if err != nil {
		return nil, err
	}
	if len(machine.GPU.MIGProfiles) == 0 {
		return nil, fmt.Errorf("read machine %s: its GPUs have no MIG", machineName)
	}
	return machine.GPU.MIGProfiles, nil
}

// processors are those of the widest instance, which is the whole GPU.
func processors(all []simgpu.MIGProfile) (most int) {
	for _, p := range all {
		most = max(most, int(p.Multiprocessors))
	}
	return most
}

func instanceOf(p simgpu.MIGProfile, start int) pool.Instance {
	one := pool.Instance{
		Profile: p.Name, Start: start, Size: int(p.Size), Memory: uint64(p.Memory), Multiprocessors: int(p.Multiprocessors),
	}
	for counter, n := range map[layouts.Counter]uint32{
		layouts.ComputeSlices: p.Slices, layouts.CopyEngines: p.CopyEngines, layouts.Decoders: p.Decoders,
		layouts.JPEGEngines: p.JPEGs, layouts.FlowEngines: p.OFAs,
	} {
		one.Takes[counter] = uint8(n)
	}
	return one
}

// instancesOf names the instances of one GPU of the world that are there.
func instancesOf(d *pool.Division, node, gpu int) *pool.Division {
	if d == nil || d.Dynamic {
		return d
	}
	own := *d
	own.Instances = slices.Clone(d.Instances)
	for i := range own.Instances {
		own.Instances[i].UUID = fmt.Sprintf("MIG-%08x-%04x-5333-8444-%012x", node, gpu, i)
	}
	return &own
}
