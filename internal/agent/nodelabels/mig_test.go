package nodelabels

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/internal/pluginfile"
)

var (
	small = DiscoveredInstance{Profile: "1g.10gb", Memory: 9728 << 20, Multiprocessors: 14, Takes: layouts.Amounts{layouts.ComputeSlices: 1, layouts.CopyEngines: 1, layouts.Decoders: 1}}
	large = DiscoveredInstance{Profile: "3g.40gb", Memory: 40192 << 20, Multiprocessors: 42, Takes: layouts.Amounts{layouts.ComputeSlices: 3, layouts.CopyEngines: 3, layouts.Decoders: 2, layouts.JPEGEngines: 1, layouts.FlowEngines: 1}}
)

// divided is an A100 in MIG mode.
func divided(all ...DiscoveredInstance) DiscoveredGPU {
	g := a100
	g.MIG, g.Instances = true, all
	return g
}

// What GPU feature discovery v0.20.0 writes, by its source, internal/lm/mig-strategy.go, beside what it writes of GPUs.
func TestDiscoveryOfInstances(t *testing.T) {
	halves, media := small, small
	halves.Divided = Divided{Replicas: 2, Backend: "timeslice"}
	media.Profile = "1g.10gb+me"
	smalls := map[string]string{
		"product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "count": "2", "replicas": "1", "sharing-strategy": "none", "memory": "9728", "multiprocessors": "14",
		"slices.gi": "1", "slices.ci": "1", "engines.copy": "1", "engines.decoder": "1", "engines.encoder": "0", "engines.jpeg": "0", "engines.ofa": "0",
	}
	whole := map[string]string{"product": "NVIDIA-A100-SXM4-80GB", "count": "2", "replicas": "1", "sharing-strategy": "none", "memory": "81920"}
	with := func(of map[string]string, more ...string) map[string]string {
		of = maps.Clone(of)
		for i := 0; i < len(more); i += 2 {
			of[more[i]] = more[i+1]
		}
		return of
	}
	invalid := map[string]string{"product": "NVIDIA-A100-SXM4-80GB-MIG-INVALID", "count": "0", "replicas": "0", "sharing-strategy": "", "memory": "0"}
	for name, c := range map[string]struct {
		strategy pluginfile.Strategy
		gpus     []DiscoveredGPU
		want     map[string]map[string]string // by resource
	}{
		"none":                 {"none", []DiscoveredGPU{divided(small), a100}, map[string]map[string]string{"gpu": whole}},
		"single":               {"single", []DiscoveredGPU{divided(small), divided(small)}, map[string]map[string]string{"gpu": smalls}},
		"single without MIG":   {"single", []DiscoveredGPU{a100, a100}, map[string]map[string]string{"gpu": whole}},
		"single, two profiles": {"single", []DiscoveredGPU{divided(small, large)}, map[string]map[string]string{"gpu": invalid}},
		"single beside a GPU":  {"single", []DiscoveredGPU{divided(small), a100}, map[string]map[string]string{"gpu": invalid}},
		"single, one empty":    {"single", []DiscoveredGPU{divided(small), divided()}, map[string]map[string]string{"gpu": invalid}},
		"single, shared": {"single", []DiscoveredGPU{divided(halves, halves)}, map[string]map[string]string{
			"gpu": with(smalls, "product", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED", "replicas", "2", "sharing-strategy", "time-slicing"),
		}},
		"mixed": {"mixed", []DiscoveredGPU{divided(large, small), divided(small, media), a100}, map[string]map[string]string{
			"gpu": with(whole, "count", "3"), "mig-1g.10gb": smalls,
			"mig-1g.10gb.me": with(smalls, "product", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb.me", "count", "1"),
			"mig-3g.40gb": with(smalls, "product", "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "count", "1", "memory", "40192", "multiprocessors", "42", "slices.gi", "3", "slices.ci", "3",
				"engines.copy", "3", "engines.decoder", "2", "engines.jpeg", "1", "engines.ofa", "1"),
		}},
		"mixed, all divided": {"mixed", []DiscoveredGPU{divided(halves, halves)}, map[string]map[string]string{
			"gpu":         with(whole, "count", "1", "replicas", "0"),
			"mig-1g.10gb": with(smalls, "product", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED", "replicas", "2", "sharing-strategy", "time-slicing"),
		}},
	} {
		got := Discovery(Machine{Strategy: c.strategy, GPUs: c.gpus})
		want := map[string]string{"nvidia.com/mig.capable": "true", "nvidia.com/mps.capable": "false", "nvidia.com/gpu.mode": "compute", "nvidia.com/vgpu.present": "false", "nvidia.com/gpu.machine": "unknown"}
		for resource, labels := range c.want {
			for label, value := range labels {
				want["nvidia.com/"+resource+"."+label] = value
			}
		}
		for label, value := range map[string]string{"family": "ampere", "compute.major": "8", "compute.minor": "0"} {
			want["nvidia.com/gpu."+label] = value
		}
		if c.strategy != "none" {
			want["nvidia.com/mig.strategy"] = string(c.strategy)
		}
		for _, label := range slices.Sorted(maps.Keys(want)) {
			if value, ok := got[label]; value != want[label] || !ok {
				t.Errorf("%s: %s is %q, not %q", name, label, value, want[label])
			}
			delete(got, label)
		}
		if len(got) > 0 {
			t.Errorf("%s: beside these there are %v", name, got)
		}
	}
}

// A product that is too long for a label keeps what says that it is a part.
func TestLongProducts(t *testing.T) {
	long := divided(small)
	long.Model = strings.Repeat("x", 80)
	for _, replicas := range []int{1, 2} {
		long.Instances[0].Divided = Divided{Replicas: replicas, Backend: "mps"}
		got := Discovery(Machine{Strategy: "single", GPUs: []DiscoveredGPU{long}})["nvidia.com/gpu.product"]
		if faults := validation.IsValidLabelValue(got); len(faults) > 0 || !strings.HasSuffix(got, "x-MIG-1g.10gb"+[]string{"", "-SHARED"}[replicas-1]) {
			t.Errorf("%q: %v", got, faults)
		}
	}
}
