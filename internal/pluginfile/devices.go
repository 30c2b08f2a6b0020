package pluginfile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The names of GPUs, and those of MIG devices, of which the last is that of older drivers: the UUID of the GPU, and the
// numbers of the GPU instance and of the compute instance.
var (
	uuid     = regexp.MustCompile(`^GPU-` + hex + `$`)
	index    = regexp.MustCompile(`^(0|[1-9][0-9]{0,3})$`)
	migIndex = regexp.MustCompile(`^(0|[1-9][0-9]{0,3}):(0|[1-9][0-9]{0,3})$`)
	migUUID  = regexp.MustCompile(`^MIG-(` + hex + `|GPU-` + hex + `/[0-9]{1,4}/[0-9]{1,4})$`)
)

const hex = `[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`

func ofMIG(name string) bool { return migIndex.MatchString(name) || migUUID.MatchString(name) }

func ofGPU(name string) bool { return index.MatchString(name) || uuid.MatchString(name) }

func (r *reader) devices(node *yaml.Node, field string) {
	e := r.entry("devices")
	switch {
	case node.Kind == yaml.SequenceNode:
		r.deviceList(e, node, field)
		return
	case node.Kind == yaml.ScalarNode && node.Value == "all":
	case node.Kind == yaml.ScalarNode && node.Tag == "!!int":
		n, err := strconv.Atoi(node.Value)
		if err != nil || n < 1 {
			r.fault(node, field, "%s is no number of GPUs: give 1 or more, all, or a list", node.Value)
			return
		}
		e.devices.Count = n
	default:
		r.fault(node, field, "%q is neither all, nor a number of GPUs, nor a list of indexes and UUIDs", oneLine(node))
		return
	}
	r.later = append(r.later, func() { r.note(node, field, Works, "%s", e.meant(r.config.Strategy)) })
}

func (r *reader) deviceList(e *entry, node *yaml.Node, field string) {
	if len(node.Content) == 0 {
		r.fault(node, field, "names no GPU: leave it out for all of them")
		return
	}
	for i, one := range node.Content {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch name := one.Value; {
		case one.Kind != yaml.ScalarNode || !ofGPU(name) && !ofMIG(name):
			r.fault(one, at, "%q is neither an index nor a UUID", oneLine(one))
		case slices.ContainsFunc(e.devices.List, func(o string) bool { return strings.EqualFold(o, name) }):
			r.fault(one, at, "names the same GPU twice")
		default:
			e.devices.List = append(e.devices.List, name)
			r.later = append(r.later, func() { r.listed(e, one, at) })
		}
	}
	r.later = append(r.later, func() {
		if slices.ContainsFunc(e.devices.List, ofMIG) && e.resource == GPUResource && r.config.Strategy != StrategySingle {
			r.note(node, field, Refused, "it names MIG devices")
			return
		}
		r.note(node, field, Works, "%s", e.meant(r.config.Strategy))
	})
}

// listed judges the name of a device by what the entry's resource counts.
func (r *reader) listed(e *entry, node *yaml.Node, field string) {
	switch {
	case ofGPU(node.Value) && e.resource != GPUResource:
		r.fault(node, field, "%s is a GPU, and %s counts MIG devices: name them by index, such as 0:1, or by UUID", node.Value, e.resource)
	case ofMIG(node.Value) && e.resource == GPUResource && r.config.Strategy != StrategySingle:
		e.refused = true
		r.note(node, field, Refused, "MIG devices count as %s with flags.migStrategy single alone, and it is %s", GPUResource, r.config.Strategy)
	}
}

// meant says in words which devices an entry is for.
func (e *entry) meant(strategy Strategy) string {
	d := e.devices
	if e.resource != GPUResource || strategy == StrategySingle {
		switch {
		case d.All():
			return "every device of this name"
		case d.Count > 0:
			return fmt.Sprintf("the first %d devices of this name, by the indexes of their GPUs and their places", d.Count)
		}
		return "these devices alone; others are given out whole"
	}
	switch {
	case d.All():
		return "every GPU of the node"
	case d.Count == 1:
		return "the GPU with index 0"
	case d.Count > 1:
		return fmt.Sprintf("the GPUs with indexes 0 to %d", d.Count-1)
	}
	return "these GPUs alone; others are given out whole"
}

// has reports whether the GPU with an index is meant by count or index.
func (d Devices) has(index int) bool {
	return d.All() || index < d.Count || slices.Contains(d.List, strconv.Itoa(index))
}
