package kube

import (
	"io/fs"
	"strings"

	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/agent/nodelabels"
)

// productOf reads the machine's name, "" where the firmware tells none.
func productOf(sys fs.FS) string {
	text, err := fs.ReadFile(sys, "class/dmi/id/product_name")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// machine is what the labels of GPU feature discovery say about the node, whose GPUs a policy divides unless it is nil.
func (p *publisher) machine(by *policy) nodelabels.Machine {
	faults, _ := p.Health.Faults()
	version := p.Library.Version()
	m := nodelabels.Machine{Driver: version.Driver, CUDA: version.CUDA, Product: p.product}
	for _, gpu := range p.gpus {
		var have part
		if by != nil {
			have = by.part(gpu.UUID)
		}
		m.GPUs = append(m.GPUs, nodelabels.DiscoveredGPU{
			Replicas: have.replicas, Backend: have.backend, Renamed: have.renamed,
			Model: gpu.Name, Memory: gpu.Total, Capability: p.Library.Capability(gpu.Index), Class: p.classes[gpu.UUID],
			MIGCapable: p.Library.MIGCapable(gpu.Index), MIG: faults[gpu.UUID].Reason == health.MIGMode,
		})
	}
	return m
}
