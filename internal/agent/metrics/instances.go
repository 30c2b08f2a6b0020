package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// An instance without a compute instance has no name of its own, so its place tells it from others.
var instanceLabels = []string{"gpu", "index", "instance", "profile", "start"}

func instance(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("divvy_instance_"+name, help, append(instanceLabels[:len(instanceLabels):len(instanceLabels)], more...), nil)
}

// The metrics of MIG instances, those of other tools among them.
var (
	instanceInfo            = instance("info", "MIG instance of a GPU, by who made it: share, layout or foreign; always 1.", "origin")
	instanceUsable          = instance("usable", "1 if programs can use the instance, 0 for one that is half made.")
	instanceCapacity        = instance("memory_capacity_bytes", "Memory of the instance.")
	instanceUsed            = instance("memory_used_bytes", "Memory in use by all processes, as reported by the driver; absent where it does not report it.")
	instanceMultiprocessors = instance("multiprocessors", "SMs of the instance.")
	instanceTenants         = instance("tenants", "Tenants with a share on the instance.")
	instanceOutside         = instance("outside_processes", "Processes that use the instance without a share.")
)

func collectInstances(out chan<- prometheus.Metric, g *control.GPU, index string) {
	for i := range g.Instances {
		one := &g.Instances[i]
		labels := []string{g.UUID, index, one.UUID, one.Profile, strconv.Itoa(one.Start)}
		gauge(out, instanceInfo, 1, append(labels[:len(labels):len(labels)], string(one.Origin))...)
		gauge(out, instanceUsable, truth(one.Half == ""), labels...)
		gauge(out, instanceCapacity, float64(one.Bytes), labels...)
		if one.Used != nil {
			gauge(out, instanceUsed, float64(*one.Used), labels...)
		}
		gauge(out, instanceMultiprocessors, float64(one.Multiprocessors), labels...)
		gauge(out, instanceTenants, float64(len(one.Shares)), labels...)
		gauge(out, instanceOutside, float64(len(one.Outside)), labels...)
	}
}
