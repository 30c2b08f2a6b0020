package nodelabels

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// DiscoveryManager is the field manager of the labels under the names of NVIDIA's GPU feature discovery. The API server
// records who wrote a label, so that those of another writer are neither replaced nor removed.
const DiscoveryManager = "divvy-agent-discovery"

// Machine is what the labels of GPU feature discovery say about a node.
type Machine struct {
	// Driver is such as 550.90.07; CUDA is 12040 for 12.4.
	Driver string
	CUDA   int
	// Product is the machine's name; empty is unknown.
	Product string
	// GPUs are in the order of their indexes.
	GPUs []DiscoveredGPU
}

// DiscoveredGPU is one of its GPUs.
type DiscoveredGPU struct {
	Model string
	// Memory is all of it, in bytes.
	Memory uint64
	// Capability is such as 8.0; empty is unknown.
	Capability string
	// MIGCapable and MIG say whether the GPU can be divided by MIG, and whether it is in that mode.
	MIGCapable, MIG bool
	// Class is the PCI class, such as 0x030200; 0 is unknown.
	Class uint32
	// Replicas is how many the node's policy makes of the GPU: 0 where there is no policy.
	Replicas int
	// Backend is that of the replicas.
	Backend v1alpha1.Backend
	// Renamed is true where replicas have a resource of their own.
	Renamed bool
}

// prefix begins the name of each of these labels.
const prefix = "nvidia.com/"

// Discovery returns the labels that GPU feature discovery would write, but for the time and for those of MIG devices;
// without GPUs there are none. Of several models, those of the first GPU count.
func Discovery(m Machine) map[string]string {
	if len(m.GPUs) == 0 {
		return nil
	}
	labels := map[string]string{}
	set := func(name, value string) { labels[prefix+name] = value }
	versions(m, set)
	set("gpu.machine", product(m.Product))
	set("mig.capable", strconv.FormatBool(slices.ContainsFunc(m.GPUs, func(g DiscoveredGPU) bool { return g.MIGCapable })))
	set("mps.capable", strconv.FormatBool(mpsCapable(m.GPUs)))
	set("gpu.mode", mode(m.GPUs))
	set("vgpu.present", "false")
	resource(m.GPUs, set)
	return labels
}

func versions(m Machine, set func(name, value string)) {
	if parts := strings.Split(m.Driver, "."); len(parts) == 2 || len(parts) == 3 {
		parts = append(parts, "")
		for i, name := range []string{"major", "minor", "rev"} {
			set("cuda.driver."+name, parts[i])
			set("cuda.driver-version."+strings.Replace(name, "rev", "revision", 1), parts[i])
		}
		set("cuda.driver-version.full", m.Driver)
	}
	if m.CUDA == 0 {
		return
	}
	major, minor := strconv.Itoa(m.CUDA/1000), strconv.Itoa(m.CUDA%1000/10)
	for _, name := range []string{"cuda.runtime", "cuda.runtime-version"} {
		set(name+".major", major)
		set(name+".minor", minor)
	}
	set("cuda.runtime-version.full", major+"."+minor)
}

// resource labels the resource nvidia.com/gpu. A GPU in MIG mode has no replicas, and GPUs beside it are told first.
func resource(gpus []DiscoveredGPU, set func(name, value string)) {
	told := gpus[0]
	if i := slices.IndexFunc(gpus, func(g DiscoveredGPU) bool { return !g.MIG }); i >= 0 {
		told = gpus[i]
	}
	count := 0
	for _, g := range gpus {
		if g.Model == told.Model {
			count++
		}
	}
	name, replicas, strategy := cleaned(told.Model), max(told.Replicas, 1), "none"
	if told.MIG {
		replicas = 0
	}
	if replicas > 1 {
		strategy = strategies[told.Backend]
		if !told.Renamed {
			name += "-SHARED"
		}
	}
	if value := bounded(name); value != "" {
		set("gpu.product", value)
	}
	set("gpu.count", strconv.Itoa(count))
	set("gpu.replicas", strconv.Itoa(replicas))
	set("gpu.sharing-strategy", strategy)
	if told.Memory > 0 {
		set("gpu.memory", strconv.FormatUint(told.Memory>>20, 10))
	}
	major, minor, ok := strings.Cut(told.Capability, ".")
	if !ok {
		return
	}
	set("gpu.family", family(major, minor))
	set("gpu.compute.major", major)
	set("gpu.compute.minor", minor)
}

// strategies are theirs by our backends: both slice and timeslice let tenants take turns.
var strategies = map[v1alpha1.Backend]string{
	v1alpha1.BackendSlice: "time-slicing", v1alpha1.BackendTimeslice: "time-slicing", v1alpha1.BackendMPS: "mps",
}

// family is the generation of a compute capability.
func family(major, minor string) string {
	switch {
	case major == "7" && minor >= "5":
		return "turing"
	case major == "8" && minor >= "9":
		return "ada-lovelace"
	}
	if name, ok := families[major]; ok {
		return name
	}
	return "undefined"
}

var families = map[string]string{
	"1": "tesla", "2": "fermi", "3": "kepler", "5": "maxwell", "6": "pascal", "7": "volta", "8": "ampere", "9": "hopper",
	"10": "blackwell", "12": "blackwell", "13": "rubin",
}

// mpsCapable says, as theirs does, whether the node's policy shares GPUs by MPS and none of them is in MIG mode.
func mpsCapable(gpus []DiscoveredGPU) bool {
	shared := slices.ContainsFunc(gpus, func(g DiscoveredGPU) bool { return g.Backend == v1alpha1.BackendMPS && g.Replicas > 1 })
	return shared && !slices.ContainsFunc(gpus, func(g DiscoveredGPU) bool { return g.MIG })
}

// mode follows from the PCI classes of the GPUs: 0x0300 is a VGA controller, 0x0302 a 3D controller.
func mode(gpus []DiscoveredGPU) string {
	if slices.ContainsFunc(gpus, func(g DiscoveredGPU) bool { return g.Class != gpus[0].Class }) {
		return "unknown"
	}
	switch gpus[0].Class >> 8 {
	case 0x0300:
		return "graphics"
	case 0x0302:
		return "compute"
	}
	return "unknown"
}

func product(name string) string {
	if value := bounded(cleaned(name)); value != "" {
		return value
	}
	return "unknown"
}

// cleaned drops the characters that a label cannot have, and joins words by dashes.
func cleaned(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_', r == ' ':
			return r
		}
		return -1
	}, text)
	return strings.Join(strings.Fields(text), "-")
}

// bounded keeps what a label's value can have; the suffix of a shared GPU stays.
func bounded(value string) string {
	const shared = "-SHARED"
	if len(value) > longest {
		name, suffix := value, ""
		if strings.HasSuffix(value, shared) {
			name, suffix = strings.TrimSuffix(value, shared), shared
		}
		value = strings.TrimRight(name[:longest-len(suffix)], "-._") + suffix
	}
	return strings.Trim(value, "-._")
}

// ApplyDiscovery replaces the labels that this package wrote under [DiscoveryManager]; none removes them. If somebody
// else wrote one of these names otherwise, nothing is written and what this package wrote earlier is removed; others
// says then what the API server answered.
func ApplyDiscovery(ctx context.Context, nodes Nodes, node string, labels map[string]string) (others, err error) {
	_, err = nodes.Apply(ctx, corev1ac.Node(node).WithLabels(labels), metav1.ApplyOptions{FieldManager: DiscoveryManager})
	if apierrors.IsConflict(err) && len(labels) > 0 {
		others = err
		_, err = nodes.Apply(ctx, corev1ac.Node(node), metav1.ApplyOptions{FieldManager: DiscoveryManager})
	}
	if err != nil {
		return others, fmt.Errorf("label node %s as GPU feature discovery does: %w", node, err)
	}
	return others, nil
}
