package nodelabels

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pluginfile"
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
	// Strategy is how MIG devices are counted: none, single or mixed; left out it is none.
	Strategy pluginfile.Strategy
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
	// Instances are its MIG devices, by their places.
	Instances []DiscoveredInstance
	// Class is the PCI class, such as 0x030200; 0 is unknown.
	Class uint32
	Divided
}

// Divided is what the node's policy makes of a GPU or of a MIG device.
type Divided struct {
	// Replicas is how many: 0 where there is no policy.
	Replicas int
	// Backend is that of the replicas.
	Backend v1alpha1.Backend
	// Renamed is true where replicas have a resource of their own.
	Renamed bool
}

// prefix begins the name of each of these labels.
const prefix = "nvidia.com/"

// Discovery returns the labels that GPU feature discovery would write, but for the time; without GPUs there are none. Of
// several models, those of the first GPU count.
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
	instances(m, set)
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
	if told.MIG {
		told.Divided = Divided{}
	}
	counted("gpu", told.Model, count, told.Divided, set)
	if told.MIG {
		set("gpu.replicas", "0")
	}
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

// counted labels a resource with what it is, how many there are, and how they are shared.
func counted(resource, name string, count int, by Divided, set func(name, value string)) {
	name, replicas, strategy := cleaned(name), max(by.Replicas, 1), "none"
	if replicas > 1 {
		strategy = strategies[by.Backend]
		if !by.Renamed {
			name += "-SHARED"
		}
	}
	if value := bounded(name); value != "" {
		set(resource+".product", value)
	}
	set(resource+".count", strconv.Itoa(count))
	set(resource+".replicas", strconv.Itoa(replicas))
	set(resource+".sharing-strategy", strategy)
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

// bounded keeps what a label's value can have; the suffixes of a MIG device and of a shared one stay.
func bounded(value string) string {
	if len(value) > longest {
		name, suffix := value, ""
		if at := suffixes.FindStringIndex(value); at != nil && at[1]-at[0] < longest {
			name, suffix = value[:at[0]], value[at[0]:]
		}
		value = strings.TrimRight(name[:min(len(name), longest-len(suffix))], "-._") + suffix
	}
	return strings.Trim(value, "-._")
}

// suffixes end the product of what is not a whole GPU for one tenant.
var suffixes = regexp.MustCompile(`(-MIG-(INVALID|[0-9]+g[a-z0-9.-]*))?(-SHARED)?$`)

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
