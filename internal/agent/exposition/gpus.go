package exposition

import (
	"maps"
	"slices"
	"strconv"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// shownGPU is a GPU with what is counted of it.
type shownGPU struct {
	*control.GPU
	labels  string
	fault   string // why it is faulty, for programs
	ill     bool
	tenants int
	outside int
}

// gpuFamily is a metric of GPUs. Value is not ok for a GPU that has none; more, if not nil, renders labels beside those
// of the GPU.
type gpuFamily struct {
	family
	value func(g *shownGPU) (value float64, ok bool)
	more  func(g *shownGPU) string
}

func ofGPU(name, help string, value func(g *shownGPU) (float64, bool)) gpuFamily {
	return gpuFamily{family: family{"divvy_gpu_" + name, gauge, help}, value: value}
}

// marked is a family whose value is 1, and which says something by its label.
func (f gpuFamily) marked(label string, of func(g *shownGPU) string) gpuFamily {
	f.more = func(g *shownGPU) string { return labels(label, of(g)) }
	return f
}

var gpuFamilies = []gpuFamily{
	ofGPU("form", "Backend of the GPU's shares, or the one that it is given; always 1, and absent where its first share decides.",
		func(g *shownGPU) (float64, bool) { return 1, g.Form != "" }).
		marked("form", func(g *shownGPU) string { return string(g.Form) }),
	ofGPU("replicas", "Most shares that the GPU is given; absent where as many may be there as fit.",
		func(g *shownGPU) (float64, bool) { return float64(g.Replicas), g.Replicas > 0 }),
	ofGPU("info", "Model of a GPU of the node; always 1.",
		func(*shownGPU) (float64, bool) { return 1, true }).
		marked("model", func(g *shownGPU) string { return g.Name }),
	ofGPU("healthy", "1 if the GPU is healthy and takes new tenants, else 0.",
		func(g *shownGPU) (float64, bool) { return truth(!g.ill), true }),
	ofGPU("fault", "Why the GPU is faulty; always 1, and absent for a healthy GPU.",
		func(g *shownGPU) (float64, bool) { return 1, g.ill }).
		marked("reason", func(g *shownGPU) string { return g.fault }),
	ofGPU("memory_capacity_bytes", "Memory available to tenants.",
		func(g *shownGPU) (float64, bool) { return float64(g.Capacity), true }),
	ofGPU("memory_granted_bytes", "Sum of the memory limits of the GPU's shares; of swap shares what they keep there, and the room for their turns.",
		func(g *shownGPU) (float64, bool) { return float64(g.Granted), true }),
	ofGPU("memory_turn_room_bytes", "The part of the granted memory in which swap shares take turns; absent without such shares.",
		func(g *shownGPU) (float64, bool) { return float64(g.TurnRoom), g.TurnRoom > 0 }),
	ofGPU("memory_used_bytes", "Memory in use by all processes, as reported by the driver; absent while it does not answer.",
		func(g *shownGPU) (float64, bool) { return bytesOf(g.Used) }),
	ofGPU("memory_excess", "1 if more of the GPU's memory is in use than anybody accounts for, else 0.",
		func(g *shownGPU) (float64, bool) { return truth(g.Excess != ""), true }),
	ofGPU("thrashing", "1 if memory of swap shares moved there for more than half of the last minute, else 0.",
		func(g *shownGPU) (float64, bool) { return truth(g.Thrashing != ""), true }),
	ofGPU("granted_cores", "Sum of the guaranteed cores of the GPU's shares; 100 is all of its time.",
		func(g *shownGPU) (float64, bool) { return float64(g.Cores), true }),
	ofGPU("tenants", "Tenants with a share of the GPU.",
		func(g *shownGPU) (float64, bool) { return float64(g.tenants), true }),
	ofGPU("outside_processes", "Processes that use the GPU without a share; absent while the driver does not answer.",
		func(g *shownGPU) (float64, bool) { return float64(g.outside), g.Used != nil }),
	ofReading("utilization_ratio", gauge, "Part of the driver's last window in which anything executed, 0 to 1; absent where the driver does not tell, as in MIG mode.",
		func(r *nvml.Reading) (float64, bool) { return scaled(r.Utilisation, 1, 100) }),
	ofReading("memory_utilization_ratio", gauge, "Part of the driver's last window in which memory was read or written, 0 to 1; absent where the driver does not tell.",
		func(r *nvml.Reading) (float64, bool) { return scaled(r.MemoryUtilisation, 1, 100) }),
	ofReading("temperature_celsius", gauge, "Temperature of the chip.",
		func(r *nvml.Reading) (float64, bool) { return scaled(r.Temperature, 1, 1) }),
	ofReading("power_watts", gauge, "Power that the GPU draws.",
		func(r *nvml.Reading) (float64, bool) { return scaled(r.Milliwatts, 1, 1000) }),
	ofReading("power_limit_watts", gauge, "Most power that the GPU may draw.",
		func(r *nvml.Reading) (float64, bool) { return scaled(r.LimitMilliwatts, 1, 1000) }),
	ofReading("energy_joules_total", counter, "Energy that the GPU has drawn since the driver was loaded.",
		func(r *nvml.Reading) (float64, bool) { return scaled(r.Millijoules, 1, 1000) }),
	ofReading("sm_clock_hertz", gauge, "Clock of the multiprocessors.",
		func(r *nvml.Reading) (float64, bool) { return scaled(r.ClockMHz, 1e6, 1) }),
	ofReading("memory_clock_hertz", gauge, "Clock of the memory.",
		func(r *nvml.Reading) (float64, bool) { return scaled(r.MemoryClockMHz, 1e6, 1) }),
	ofReading("uncorrected_errors_total", counter, "Memory errors since the driver was loaded that ECC could not correct; absent without ECC.",
		func(r *nvml.Reading) (float64, bool) { return scaled(r.Uncorrected, 1, 1) }),
	ofGPU("mig_mode", "1 if the GPU is in MIG mode, else 0.",
		func(g *shownGPU) (float64, bool) { return truth(g.MIG), true }),
}

// ofReading is a metric that the driver may not tell of a GPU.
func ofReading(name string, k kind, help string, value func(r *nvml.Reading) (float64, bool)) gpuFamily {
	return gpuFamily{family: family{"divvy_gpu_" + name, k, help}, value: func(g *shownGPU) (float64, bool) {
		if g.Reading == nil {
			return 0, false
		}
		return value(g.Reading)
	}}
}

// scaled is a figure in another unit, absent where it is not known.
func scaled[N int | uint64](figure *N, times, by float64) (float64, bool) {
	if figure == nil {
		return 0, false
	}
	return float64(*figure) * times / by, true
}

// bytesOf is a figure that is absent where it is not known.
func bytesOf(figure *uint64) (float64, bool) {
	if figure == nil {
		return 0, false
	}
	return float64(*figure), true
}

// writeXIDs tells of the errors that the driver reported.
func writeXIDs(p *page, node string, listed *control.Listing, xids map[string]health.XIDs) {
	p.family("divvy_gpu_xid_errors_total", counter, "Errors that the driver reported of the GPU since the agent started, by XID.")
	for i := range listed.GPUs {
		g := &listed.GPUs[i]
		of := xids[g.UUID].Count
		for _, xid := range slices.Sorted(maps.Keys(of)) {
			p.sample(gpuLabels(node, g.UUID, g.Index)+","+labels("xid", strconv.FormatUint(xid, 10)), float64(of[xid]))
		}
	}
}

func writeGPUs(p *page, node string, listed *control.Listing, faults map[string]string) {
	shown := showGPUs(node, listed, faults)
	for _, f := range gpuFamilies {
		p.family(f.name, f.kind, f.help)
		for i := range shown {
			g := &shown[i]
			value, ok := f.value(g)
			switch {
			case !ok:
			case f.more != nil:
				p.sample(g.labels+","+f.more(g), value)
			default:
				p.sample(g.labels, value)
			}
		}
	}
}

func showGPUs(node string, listed *control.Listing, faults map[string]string) []shownGPU {
	tenants, outside := map[string]int{}, map[string]int{}
	for i := range listed.Tenants {
		counted := map[string]bool{}
		for _, s := range listed.Tenants[i].Shares {
			if !counted[s.UUID] {
				tenants[s.UUID]++
			}
			counted[s.UUID] = true
		}
	}
	for _, o := range listed.Outside {
		outside[o.UUID]++
	}
	shown := make([]shownGPU, 0, len(listed.GPUs))
	for i := range listed.GPUs {
		g := &listed.GPUs[i]
		reason, ill := faults[g.UUID]
		shown = append(shown, shownGPU{
			GPU: g, labels: gpuLabels(node, g.UUID, g.Index), fault: reason,
			ill:     ill && (!g.MIG || reason != health.MIGMode), // its instances are served
			tenants: tenants[g.UUID], outside: outside[g.UUID],
		})
	}
	return shown
}
