package nodelabels

import (
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/internal/pluginfile"
)

// DiscoveredInstance is a MIG device of a GPU.
type DiscoveredInstance struct {
	// Profile is the driver's name, such as 1g.10gb+me.
	Profile string
	// Memory is in bytes.
	Memory          uint64
	Multiprocessors int
	// Takes has its compute slices and engines.
	Takes layouts.Amounts
	Divided
}

// engines are the names of labels by what they count.
var engines = map[layouts.Counter]string{
	layouts.ComputeSlices: "slices.gi", layouts.CopyEngines: "engines.copy", layouts.Decoders: "engines.decoder",
	layouts.Encoders: "engines.encoder", layouts.JPEGEngines: "engines.jpeg", layouts.FlowEngines: "engines.ofa",
}

// instances labels the MIG devices: with strategy single as the GPUs that they stand for, with mixed each profile under a
// name of its own. Where the strategy does not fit the node, the labels of single say that it is invalid.
func instances(m Machine, set func(name, value string)) {
	if m.Strategy == "" || m.Strategy == pluginfile.StrategyNone {
		return
	}
	set("mig.strategy", string(m.Strategy))
	if m.Strategy == pluginfile.StrategyMixed {
		mixed(m.GPUs, set)
		return
	}
	at := slices.IndexFunc(m.GPUs, func(g DiscoveredGPU) bool { return g.MIG })
	if at < 0 {
		return // as with none
	}
	first := m.GPUs[at]
	if !uniform(m.GPUs) {
		if value := bounded(cleaned(first.Model) + "-MIG-INVALID"); value != "" {
			set("gpu.product", value)
		}
		for name, value := range map[string]string{"count": "0", "replicas": "0", "sharing-strategy": "", "memory": "0"} {
			set("gpu."+name, value)
		}
		return
	}
	count := 0
	for _, g := range m.GPUs {
		count += len(g.Instances)
	}
	instance("gpu", first, first.Instances[0], count, set)
}

// uniform reports whether all GPUs are in MIG mode and have devices of one profile.
func uniform(gpus []DiscoveredGPU) bool {
	return !slices.ContainsFunc(gpus, func(g DiscoveredGPU) bool {
		return len(g.Instances) == 0 || slices.ContainsFunc(g.Instances, func(i DiscoveredInstance) bool { return i.Profile != gpus[0].Instances[0].Profile })
	})
}

func mixed(gpus []DiscoveredGPU, set func(name, value string)) {
	counts := map[string]int{}
	for _, g := range gpus {
		for _, i := range g.Instances {
			counts[i.Profile]++
		}
	}
	told := map[string]bool{}
	for _, g := range gpus {
		for _, i := range g.Instances {
			if !told[i.Profile] {
				told[i.Profile] = true
				instance(strings.TrimPrefix(pluginfile.MIGResource(i.Profile), prefix), g, i, counts[i.Profile], set)
			}
		}
	}
}

// instance labels a resource whose devices are instances of one profile.
func instance(resource string, g DiscoveredGPU, i DiscoveredInstance, count int, set func(name, value string)) {
	counted(resource, g.Model+" MIG "+strings.ReplaceAll(i.Profile, "+", "."), count, i.Divided, set)
	set(resource+".memory", strconv.FormatUint(i.Memory>>20, 10))
	set(resource+".multiprocessors", strconv.Itoa(i.Multiprocessors))
	for counter, name := range engines {
		set(resource+"."+name, strconv.Itoa(int(i.Takes[counter])))
	}
	set(resource+".slices.ci", strconv.Itoa(int(i.Takes[layouts.ComputeSlices]))) // one compute instance fills it
}
