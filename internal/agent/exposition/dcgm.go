package exposition

import (
	"strconv"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// exporterAgain is how long it is taken to be known whether DCGM's exporter runs.
const exporterAgain = 30 * time.Second

// exporter finds out whether DCGM's exporter runs on the node: both at once would tell everything twice.
type exporter struct {
	runs func() bool // nil where nobody knows

	mu    sync.Mutex
	found bool
	at    time.Time
}

func (e *exporter) present() bool {
	if e.runs == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at.IsZero() || time.Since(e.at) >= exporterAgain {
		e.found, e.at = e.runs(), time.Now()
	}
	return e.found
}

// dcgmGPU is a GPU with what DCGM's names need.
type dcgmGPU struct {
	*control.GPU
	nvml.Reading
	lastXID uint64
	labels  string
}

// dcgmFamily is a metric under the name of a field of DCGM's, in its unit.
type dcgmFamily struct {
	family
	value func(g *dcgmGPU) (float64, bool)
}

func ofDCGM(field string, k kind, help string, value func(g *dcgmGPU) (float64, bool)) dcgmFamily {
	return dcgmFamily{family{"DCGM_FI_DEV_" + field, k, help}, value}
}

var dcgmFamilies = []dcgmFamily{
	ofDCGM("SM_CLOCK", gauge, "Clock of the multiprocessors (MHz).", func(g *dcgmGPU) (float64, bool) { return scaled(g.ClockMHz, 1, 1) }),
	ofDCGM("MEM_CLOCK", gauge, "Clock of the memory (MHz).", func(g *dcgmGPU) (float64, bool) { return scaled(g.MemoryClockMHz, 1, 1) }),
	ofDCGM("GPU_TEMP", gauge, "Temperature of the chip (degrees Celsius).", func(g *dcgmGPU) (float64, bool) { return scaled(g.Temperature, 1, 1) }),
	ofDCGM("POWER_USAGE", gauge, "Power that the GPU draws (W).", func(g *dcgmGPU) (float64, bool) { return scaled(g.Milliwatts, 1, 1000) }),
	ofDCGM("TOTAL_ENERGY_CONSUMPTION", counter, "Energy drawn since the driver was loaded (mJ).", func(g *dcgmGPU) (float64, bool) { return scaled(g.Millijoules, 1, 1) }),
	ofDCGM("GPU_UTIL", gauge, "Part of the time in which anything executed (%).", func(g *dcgmGPU) (float64, bool) { return scaled(g.Utilisation, 1, 1) }),
	ofDCGM("MEM_COPY_UTIL", gauge, "Part of the time in which memory was read or written (%).", func(g *dcgmGPU) (float64, bool) { return scaled(g.MemoryUtilisation, 1, 1) }),
	ofDCGM("XID_ERRORS", gauge, "The last XID that the driver reported, 0 without any.", func(g *dcgmGPU) (float64, bool) { return float64(g.lastXID), true }),
	ofDCGM("FB_USED", gauge, "Memory in use (MiB).", func(g *dcgmGPU) (float64, bool) { return scaled(g.Used, 1, mebibyte) }),
	ofDCGM("FB_FREE", gauge, "Memory that is free (MiB).", func(g *dcgmGPU) (float64, bool) {
		if g.Used == nil {
			return 0, false
		}
		return (float64(g.Total) - float64(g.Reserved) - float64(*g.Used)) / mebibyte, true
	}),
	ofDCGM("FB_RESERVED", gauge, "Memory that the driver keeps for itself (MiB).", func(g *dcgmGPU) (float64, bool) { return float64(g.Reserved) / mebibyte, true }),
}

const mebibyte = 1 << 20

// writeDCGM tells of GPUs under the names of DCGM's exporter, for dashboards and autoscalers that ask for these.
func writeDCGM(p *page, node string, listed *control.Listing, xids map[string]health.XIDs) {
	shown := make([]dcgmGPU, 0, len(listed.GPUs))
	for i := range listed.GPUs {
		g := dcgmGPU{GPU: &listed.GPUs[i], lastXID: xids[listed.GPUs[i].UUID].Last}
		if g.GPU.Reading != nil {
			g.Reading = *g.GPU.Reading
		}
		index := strconv.Itoa(g.Index)
		namespace, pod, container := onlyPod(listed, g.UUID)
		g.labels = labels("gpu", index, "UUID", g.UUID, "pci_bus_id", g.PCI, "device", "nvidia"+index, "modelName", g.Name, "Hostname", node,
			"DCGM_FI_DRIVER_VERSION", listed.Info.Driver, "namespace", namespace, "pod", pod, "container", container)
		shown = append(shown, g)
	}
	for _, f := range dcgmFamilies {
		p.family(f.name, f.kind, f.help)
		for i := range shown {
			if value, ok := f.value(&shown[i]); ok {
				p.sample(shown[i].labels, value)
			}
		}
	}
}

// onlyPod is the pod that alone has shares of a GPU, and its container; empty where several have.
func onlyPod(listed *control.Listing, uuid string) (namespace, pod, container string) {
	found := false
	for i := range listed.Tenants {
		t := &listed.Tenants[i]
		for k := range t.Shares {
			if t.Shares[k].UUID != uuid {
				continue
			}
			if found && (namespace != t.Namespace || pod != podOf(t)) || podOf(t) == "" {
				return "", "", ""
			}
			if found && container != t.Container {
				container = ""
				break
			}
			found, namespace, pod, container = true, t.Namespace, podOf(t), t.Container
			break
		}
	}
	return namespace, pod, container
}
