package pluginfile

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// given is why the ways to hand devices over have no effect.
const given = "the agent itself puts GPUs into containers, by CDI for claims and by NRI for slots"

// check reports whether a value is valid; if not it says so as a fault.
type check func(r *reader, node *yaml.Node, field string) bool

// told reads a valid value that has no effect.
func told(valid check, why string) func(*reader, *yaml.Node, string) {
	return func(r *reader, node *yaml.Node, field string) {
		if valid(r, node, field) {
			r.note(node, field, NoEffect, "%s", why)
		}
	}
}

func boolean(r *reader, node *yaml.Node, field string) bool {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!bool" {
		r.fault(node, field, "must be true or false")
		return false
	}
	return true
}

// isTrue is for values that boolean found valid.
func isTrue(node *yaml.Node) bool {
	var b bool
	return node.Decode(&b) == nil && b
}

func text(r *reader, node *yaml.Node, field string) bool {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!str" {
		r.fault(node, field, "must be a text")
		return false
	}
	return true
}

func oneOf(choices ...string) check {
	return func(r *reader, node *yaml.Node, field string) bool {
		if node.Kind != yaml.ScalarNode || !slices.Contains(choices, node.Value) {
			r.fault(node, field, "%q is not one of %s", oneLine(node), strings.Join(choices, ", "))
			return false
		}
		return true
	}
}

// duration is a Go duration, a number of nanoseconds, or infinite.
func duration(r *reader, node *yaml.Node, field string) bool {
	valid := node.Kind == yaml.ScalarNode
	if _, err := time.ParseDuration(node.Value); err != nil {
		valid = valid && (node.Tag == "!!int" || node.Tag == "!!float" || node.Value == "infinite")
	}
	if !valid {
		r.fault(node, field, "%q is not a time such as 60s, nor infinite", oneLine(node))
	}
	return valid
}

func (r *reader) version(node *yaml.Node, field string) {
	if node.Value != "v1" {
		r.fault(node, field, "%q is not what this version of Divvy reads, which is v1", oneLine(node))
		return
	}
	r.note(node, field, Works, "the file is read as of this version")
}

func (r *reader) migStrategy(node *yaml.Node, field string) {
	if !oneOf("none", "single", "mixed")(r, node, field) {
		return
	}
	r.config.Strategy = Strategy(node.Value)
	switch r.config.Strategy {
	case StrategyNone:
		r.note(node, field, Works, "MIG devices are not offered, and no GPU in MIG mode is given out")
	case StrategySingle:
		r.note(node, field, Works, "in mode slots MIG devices count as %s, where all GPUs of a node have devices of one profile; claims name a profile", GPUResource)
	case StrategyMixed:
		r.note(node, field, Works, "in mode slots MIG devices count as %sPROFILE, and GPUs that are not in MIG mode as %s; claims name a profile", MIGPrefix, GPUResource)
	}
}

func (r *reader) driverRoot(node *yaml.Node, field string) {
	switch {
	case !text(r, node, field):
	case !path.IsAbs(node.Value):
		r.fault(node, field, "%q is not an absolute path", node.Value)
	default:
		r.config.DriverRoot = path.Clean(node.Value)
		r.note(node, field, Works, "the chart's agent.driverRoot, or `divvy agent --driver-root`")
	}
}

// deviceRoot is judged once the driver's root is known.
func (r *reader) deviceRoot(node *yaml.Node, field string) {
	if !text(r, node, field) {
		return
	}
	r.devRoot = &Note{Line: node.Line, Field: field, Value: node.Value}
}

func (r *reader) settleDeviceRoot() {
	n := r.devRoot
	if n == nil {
		return
	}
	if cmp.Or(path.Clean(n.Value), "/") == cmp.Or(r.config.DriverRoot, "/") || path.Clean(n.Value) == "/" || n.Value == "" {
		n.Outcome, n.Text = NoEffect, "device files are those of the host, wherever the driver's other files are"
	} else {
		n.Outcome, n.Text = Refused, "device files are taken from the host's /dev alone"
	}
	r.config.Notes = append(r.config.Notes, *n)
}

// device reads a switch for the device files of something beside GPUs.
func device(what string) func(*reader, *yaml.Node, string) {
	return func(r *reader, node *yaml.Node, field string) {
		switch {
		case !boolean(r, node, field):
		case isTrue(node):
			r.note(node, field, Refused, "the agent gives containers no device files of %s", what)
		default:
			r.note(node, field, NoEffect, "the agent gives containers no device files of %s anyway", what)
		}
	}
}

func (r *reader) discovery(node *yaml.Node, field string) {
	switch {
	case !oneOf("auto", "nvml", "tegra")(r, node, field):
	case node.Value == "tegra":
		r.note(node, field, Refused, "integrated GPUs of Tegra have no NVML, which the agent needs")
	default:
		r.note(node, field, NoEffect, "the agent always asks NVML")
	}
}

func (r *reader) listStrategy(node *yaml.Node, field string) {
	all := []*yaml.Node{node}
	if node.Kind == yaml.SequenceNode {
		all = node.Content
	}
	valid := true
	for _, one := range all {
		valid = oneOf("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")(r, one, field) && valid
	}
	if valid {
		r.note(node, field, NoEffect, "%s", given)
	}
}

func (r *reader) allocation(node *yaml.Node, field string) {
	if !oneOf("distributed", "packed")(r, node, field) {
		return
	}
	r.config.Packed = node.Value == "packed"
	r.note(node, field, Works, "in mode slots the kubelet is told to prefer such replicas; claims are placed by the scheduler")
}

const machineFile = "/sys/class/dmi/id/product_name"

func (r *reader) machineType(node *yaml.Node, field string) {
	switch {
	case !text(r, node, field):
	case node.Value == "" || path.Clean(node.Value) == machineFile:
		r.note(node, field, Works, "the label nvidia.com/gpu.machine has what this file says")
	default:
		r.note(node, field, Refused, "the machine's name is read from %s alone", machineFile)
	}
}

// naming judges an entry of resources as a whole: its keys are read by named.
func (r *reader) naming(node *yaml.Node, field string) {
	has := map[string]string{}
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		has[node.Content[i].Value] = node.Content[i+1].Value
	}
	for _, want := range []string{"pattern", "name"} {
		if _, ok := has[want]; !ok {
			r.fault(node, field+"."+want, "missing: an entry has pattern and name")
		}
	}
}

// named reads a key that the device plugin itself reads and drops.
func named(r *reader, node *yaml.Node, field string) {
	if text(r, node, field) {
		r.note(node, field, Refused, "resources cannot be named by model, nor does the device plugin do it: use a node's labels or a claim's selectors")
	}
}

func (r *reader) channels(node *yaml.Node, field string) {
	switch {
	case node.Kind != yaml.SequenceNode:
		r.fault(node, field, "must be [] or [0]")
	case len(node.Content) == 0:
		r.note(node, field, NoEffect, "containers get no IMEX channel anyway")
	case len(node.Content) == 1 && node.Content[0].Value == "0":
		r.note(node, field, Refused, "the agent gives containers no IMEX channels")
	default:
		r.fault(node, field, "must be [] or [0]")
	}
}

func (r *reader) channelRequired(node *yaml.Node, field string) {
	if boolean(r, node, field) {
		r.note(node, field, NoEffect, "it qualifies imex.channelIDs, and the agent gives containers no IMEX channels")
	}
}
