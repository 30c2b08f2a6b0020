package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/deviceplugin"
	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/pluginfile"
)

// divisions tells how GPUs are divided by MIG, by UUID, and when that may be otherwise by closing the channel.
type divisions func() (map[string]backend.Division, <-chan struct{})

// undivided is a node without MIG.
func undivided() (map[string]backend.Division, <-chan struct{}) { return nil, nil }

// part is how a GPU or a MIG instance is given out.
type part struct {
	// Replica is the first of its replicas. Of one that is given out whole Of is 0.
	v1alpha1.Replica
	// index is that of the GPU.
	index int
	// resource is the name under which it is counted, and renamed tells that replicas have one of their own.
	resource        string
	renamed, single bool
}

// place is where a share is: a GPU, or the memory slice at which its MIG instance begins.
func place(uuid string, start int, instance bool) string {
	if !instance {
		return uuid
	}
	return fmt.Sprintf("%s@%d", uuid, start)
}

// placesOf are those of tenancies.
func placesOf(tenancies []agent.Tenancy) map[string]bool {
	used := map[string]bool{}
	for _, t := range tenancies {
		for _, s := range t.Shares {
			at := place(s.UUID, 0, false)
			if s.Instance != nil {
				at = place(s.UUID, s.Instance.Start, true)
			}
			used[at] = true
		}
	}
	return used
}

// look reads which GPUs and instances there are.
func (p *policy) look() (gpus []dividedGPU, changed <-chan struct{}) {
	found, changed := p.divisions()
	p.seen = found
	there := map[string]bool{}
	for _, gpu := range p.gpus {
		g := dividedGPU{GPU: gpu}
		g.MIG = found[gpu.UUID].On
		for _, one := range found[gpu.UUID].Parts {
			if !counts(&one) {
				continue
			}
			g.parts = append(g.parts, one)
			g.Instances = append(g.Instances, pluginfile.Instance{UUID: one.UUID, Profile: one.Profile, GPUInstance: one.GPUInstance, ComputeInstance: one.ComputeInstance})
			there[one.UUID] = true
		}
		there[gpu.UUID] = !g.MIG
		gpus = append(gpus, g)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !maps.Equal(there, p.there) {
		p.there = there
		p.tell()
	}
	return gpus, changed
}

// counts reports whether an instance is one that the kubelet counts: programs can use it, and it stays when a share ends.
func counts(one *backend.Part) bool { return one.Half == "" && one.Origin != backend.OriginShare }

// dividedGPU is a GPU with its instances, which both lists have in one order.
type dividedGPU struct {
	pluginfile.GPU
	parts []backend.Part
}

// want takes a configuration. What it gives out as before stays as it is.
func (p *policy) want(name string, config *pluginfile.Config, gpus []dividedGPU) error {
	var plain []pluginfile.GPU
	for _, g := range gpus {
		plain = append(plain, g.GPU)
	}
	devices, absent, err := config.Resolve(plain)
	if err != nil {
		return fmt.Errorf("configuration %s: %w", name, err)
	}
	wanted := map[string]part{}
	for i := range devices {
		one := partOf(&devices[i], gpus)
		wanted[one.Device()] = one
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.config == nil
	if !first && name == p.name && maps.Equal(wanted, p.wanted) {
		p.config = config
		return nil
	}
	p.log.Info("device-plugin configuration", "name", name, "migStrategy", config.Strategy, "absent", absent)
	p.name, p.config, p.wanted = name, config, wanted
	p.tell()
	return nil
}

// partOf is what a configuration makes of a device.
func partOf(d *pluginfile.Device, gpus []dividedGPU) part {
	gpu := gpus[d.GPU]
	one := part{Replica: v1alpha1.Replica{UUID: gpu.UUID}, index: gpu.Index, resource: d.Name()}
	if d.Instance >= 0 {
		at := gpu.parts[d.Instance]
		one.Instance, one.Profile, one.Start, one.Memory = at.UUID, at.Profile, at.Start, at.Bytes
	}
	if e := d.Entry; e != nil {
		if d.Instance >= 0 {
			one.Memory = gpu.parts[d.Instance].Capacity()
		}
		one.Of, one.Backend, one.renamed, one.single = e.Replicas, e.Backend, e.Renamed, e.Single
	}
	return one
}

// divide gives free GPUs and instances the parts that are wanted, forgets those that are gone, and reports whether others
// wait.
func (p *policy) divide() (waiting bool) {
	used := p.used()
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := false
	for uuid, want := range p.wanted {
		have, known := p.divided[uuid]
		switch {
		case known && have == want:
		case p.busy(want, used):
			waiting = true
		default:
			p.divided[uuid], changed = want, true
		}
	}
	for uuid, have := range p.divided {
		switch _, wanted := p.wanted[uuid]; {
		case wanted:
		case p.busy(have, used):
			waiting = true
		default:
			delete(p.divided, uuid)
			changed = true
		}
	}
	if changed {
		p.tell()
	}
	return waiting
}

// busy reports whether a GPU or an instance has a share, or is about to have one. p.mu is held.
func (p *policy) busy(one part, used map[string]bool) bool {
	return used[place(one.UUID, one.Start, one.Instance != "")] || p.now().Sub(p.given[one.Device()]) < givenTime
}

// tell wakes those who look at the units. p.mu is held.
func (p *policy) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// gave notes that the kubelet was told of replicas, which have no shares yet.
func (p *policy) gave(replicas []v1alpha1.Replica) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range replicas {
		p.given[r.Device()] = p.now()
	}
}

// units are what the kubelet counts, and a channel that is closed when that changes. Faults are those of GPUs, which take
// nothing new. What is to be given out otherwise and is used is faulty as it is, and so is an instance that is gone.
func (p *policy) units(faults map[string]health.Fault) ([]deviceplugin.Unit, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []deviceplugin.Unit
	for _, have := range slices.SortedFunc(maps.Values(p.divided), part.compare) {
		unit := deviceplugin.Unit{
			Replica: have.Replica, Resource: have.resource, Single: have.single,
			Faulty: faulted(faults, have) || have != p.wanted[have.Device()] || !p.there[have.Device()],
		}
		for i := range max(have.Of, 1) {
			unit.Number = i
			all = append(all, unit)
		}
	}
	return all, p.changed
}

// faulted reports whether a GPU's fault holds for a part of it. That it is in MIG mode is none to its instances.
func faulted(faults map[string]health.Fault, one part) bool {
	fault, ok := faults[one.UUID]
	return ok && (one.Instance == "" || fault.Reason != health.MIGMode)
}

func (one part) compare(other part) int {
	return cmp.Or(cmp.Compare(one.index, other.index), cmp.Compare(one.Start, other.Start), cmp.Compare(one.Instance, other.Instance), cmp.Compare(one.UUID, other.UUID))
}

// packed reports whether replicas are to fill a GPU before another one is used.
func (p *policy) packed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config != nil && p.config.Packed
}

// strategy is how MIG devices are counted, none until a configuration was read.
func (p *policy) strategy() pluginfile.Strategy {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.config == nil {
		return pluginfile.StrategyNone
	}
	return p.config.Strategy
}

// part is how a GPU or an instance with a UUID is given out.
func (p *policy) part(uuid string) part {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.divided[uuid]
}
