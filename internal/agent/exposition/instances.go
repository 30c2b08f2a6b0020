package exposition

import (
	"strconv"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// instanceFamily is a metric of MIG instances, those of other tools among them.
type instanceFamily struct {
	family
	value func(i *control.Instance) (value float64, ok bool)
}

func ofInstance(name, help string, value func(i *control.Instance) (float64, bool)) instanceFamily {
	return instanceFamily{family{"divvy_instance_" + name, gauge, help}, value}
}

const instanceInfo = "divvy_instance_info"

var instanceFamilies = []instanceFamily{
	ofInstance("info", "MIG instance of a GPU, by who made it: share, layout or foreign; always 1.",
		func(*control.Instance) (float64, bool) { return 1, true }),
	ofInstance("usable", "1 if programs can use the instance, 0 for one that is half made.",
		func(i *control.Instance) (float64, bool) { return truth(i.Half == ""), true }),
	ofInstance("memory_capacity_bytes", "Memory of the instance.",
		func(i *control.Instance) (float64, bool) { return float64(i.Bytes), true }),
	ofInstance("memory_used_bytes", "Memory in use by all processes, as reported by the driver; absent where it does not report it.",
		func(i *control.Instance) (float64, bool) { return bytesOf(i.Used) }),
	ofInstance("multiprocessors", "SMs of the instance.",
		func(i *control.Instance) (float64, bool) { return float64(i.Multiprocessors), true }),
	ofInstance("tenants", "Tenants with a share on the instance.",
		func(i *control.Instance) (float64, bool) { return float64(len(i.Shares)), true }),
	ofInstance("outside_processes", "Processes that use the instance without a share.",
		func(i *control.Instance) (float64, bool) { return float64(len(i.Outside)), true }),
}

func writeInstances(p *page, node string, listed *control.Listing) {
	for _, f := range instanceFamilies {
		p.family(f.name, f.kind, f.help)
		for i := range listed.GPUs {
			g := &listed.GPUs[i]
			for k := range g.Instances {
				one := &g.Instances[k]
				value, ok := f.value(one)
				if !ok {
					continue
				}
				// An instance without a compute instance has no name of its own, so its place tells it from others.
				of := gpuLabels(node, g.UUID, g.Index) + "," + labels("instance_uuid", one.UUID, "profile", one.Profile, "start", strconv.Itoa(one.Start))
				if f.name == instanceInfo {
					of += "," + labels("origin", string(one.Origin))
				}
				p.sample(of, value)
			}
		}
	}
}
