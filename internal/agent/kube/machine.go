package kube

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/agent/nodelabels"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// productOf reads the machine's name, "" where the firmware tells none.
func productOf(sys fs.FS) string {
	text, err := fs.ReadFile(sys, "class/dmi/id/product_name")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// machine is what the labels of GPU feature discovery say about the node, whose GPUs a policy gives out unless it is nil.
func (p *publisher) machine(by *policy) nodelabels.Machine {
	faults, _ := p.Health.Faults()
	version := p.Library.Version()
	m := nodelabels.Machine{Driver: version.Driver, CUDA: version.CUDA, Product: p.product}
	var divided map[string]backend.Division
	if by != nil {
		m.Strategy = by.strategy()
		divided, _ = by.divisions()
	}
	for _, gpu := range p.gpus {
		m.GPUs = append(m.GPUs, nodelabels.DiscoveredGPU{
			Divided: by.discovered(gpu.UUID), Instances: by.instances(divided[gpu.UUID]),
			Model: gpu.Name, Memory: gpu.Total, Capability: p.Library.Capability(gpu.Index), Class: p.classes[gpu.UUID],
			MIGCapable: p.Library.MIGCapable(gpu.Index), MIG: divided[gpu.UUID].On || faults[gpu.UUID].Reason == health.MIGMode,
		})
	}
	return m
}

// discovered is what a policy makes of a GPU or an instance, nothing where there is none.
func (p *policy) discovered(uuid string) nodelabels.Divided {
	if p == nil {
		return nodelabels.Divided{}
	}
	one := p.part(uuid)
	return nodelabels.Divided{Replicas: one.Of, Backend: one.Backend, Renamed: one.renamed}
}

// instances are those of a GPU that are counted.
func (p *policy) instances(d backend.Division) []nodelabels.DiscoveredInstance {
	var all []nodelabels.DiscoveredInstance
	for _, one := range d.Parts {
		if !counts(&one) {
			continue
		}
		i := nodelabels.DiscoveredInstance{Profile: one.Profile, Memory: one.Bytes, Multiprocessors: one.Multiprocessors, Divided: p.discovered(one.UUID)}
		if at := slices.IndexFunc(d.Profiles, func(p alloc.Profile) bool { return p.Name == one.Profile }); at >= 0 {
			i.Takes = d.Profiles[at].Takes
		}
		all = append(all, i)
	}
	return all
}
