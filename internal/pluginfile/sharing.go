package pluginfile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Bounds of replicas.
const (
	// MaxReplicas is how many shares a GPU has room for.
	MaxReplicas = v1alpha1.SlotsPerGPU
	// MaxMPSReplicas is how many clients NVIDIA's MPS serves on a GPU at once, from Volta on.
	MaxMPSReplicas = 48
)

// sharing is sharing.timeSlicing or sharing.mps.
type sharing struct {
	backend      v1alpha1.Backend
	rename, fail bool
	node         *yaml.Node
}

// entry is one of its resources.
type entry struct {
	of       *sharing
	field    string
	node     *yaml.Node
	resource string
	rename   string
	devices  Devices
	replicas int
	said     map[string]bool
	// refused is true where one of the keys is, so that nothing comes of the entry.
	refused bool
}

func (r *reader) share(node *yaml.Node, field string) {
	backend := v1alpha1.BackendTimeslice
	if strings.HasSuffix(field, ".mps") {
		backend = v1alpha1.BackendMPS
	}
	r.sharing[field] = &sharing{backend: backend, node: node, fail: backend == v1alpha1.BackendMPS}
}

// sharingOf is the one that a key belongs to.
func (r *reader) sharingOf(field string) *sharing {
	parts := strings.SplitN(field, ".", 3)
	return r.sharing[parts[0]+"."+parts[1]]
}

func (r *reader) renameByDefault(node *yaml.Node, field string) {
	if !boolean(r, node, field) {
		return
	}
	r.sharingOf(field).rename = isTrue(node)
	name := GPUResource
	if isTrue(node) {
		name = SharedResource
	}
	r.note(node, field, Works, "replicas go by %s", name)
}

func (r *reader) failGreater(node *yaml.Node, field string) {
	if !boolean(r, node, field) {
		return
	}
	s := r.sharingOf(field)
	s.fail = isTrue(node)
	if s.fail {
		r.note(node, field, Works, "a container that asks for several replicas is refused")
		return
	}
	r.note(node, field, Works, "in mode slots a container gets the parts of all replicas that it asks for; the webhook, for claims, refuses more than one")
}

func (r *reader) beginEntry(node *yaml.Node, field string) {
	e := &entry{of: r.sharingOf(field), field: field, node: node, said: map[string]bool{}}
	r.entries = append(r.entries, e)
}

// entry is the one whose keys are read.
func (r *reader) entry(name string) *entry {
	e := r.entries[len(r.entries)-1]
	e.said[name] = true
	return e
}

func (r *reader) resourceName(node *yaml.Node, field string) {
	e := r.entry("name")
	if !text(r, node, field) {
		return
	}
	e.resource = full(node.Value)
	switch {
	case e.resource == GPUResource:
		r.note(node, field, Works, "GPUs that are not in MIG mode")
	case strings.HasPrefix(e.resource, "nvidia.com/mig-"):
		e.refused = true
		r.note(node, field, Refused, "MIG devices have no replicas here: divide whole GPUs")
	default:
		r.fault(node, field, "%q is no resource of the device plugin: write %s", node.Value, GPUResource)
	}
}

// full adds the prefix that a resource's name may leave out.
func full(name string) string {
	if strings.HasPrefix(name, "nvidia.com/") {
		return name
	}
	return "nvidia.com/" + name
}

func (r *reader) rename(node *yaml.Node, field string) {
	e := r.entry("rename")
	if !text(r, node, field) {
		return
	}
	if node.Value == "" {
		r.note(node, field, NoEffect, "it is empty")
		return
	}
	e.rename = full(node.Value)
	switch e.rename {
	case SharedResource, GPUResource:
		r.note(node, field, Works, "these replicas go by %s", e.rename)
	default:
		e.refused = true
		r.note(node, field, Refused, "replicas go by %s or %s: no part of Divvy knows another name", SharedResource, GPUResource)
	}
}

// uuid is that of a GPU.
var uuid = regexp.MustCompile(`^GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

var index = regexp.MustCompile(`^(0|[1-9][0-9]{0,3})$`)

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
	r.note(node, field, Works, "%s", meant(e.devices))
}

func (r *reader) deviceList(e *entry, node *yaml.Node, field string) {
	if len(node.Content) == 0 {
		r.fault(node, field, "names no GPU: leave it out for all of them")
		return
	}
	for i, one := range node.Content {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch name := one.Value; {
		case one.Kind != yaml.ScalarNode || !index.MatchString(name) && !uuid.MatchString(name) && !ofMIG(name):
			r.fault(one, at, "%q is neither an index nor a UUID", oneLine(one))
		case ofMIG(name):
			e.refused = true
			r.note(one, at, Refused, "MIG devices have no replicas here: divide whole GPUs")
		case slices.ContainsFunc(e.devices.List, func(o string) bool { return strings.EqualFold(o, name) }):
			r.fault(one, at, "names the same GPU twice")
		default:
			e.devices.List = append(e.devices.List, name)
		}
	}
	if len(e.devices.List) > 0 {
		r.note(node, field, Works, "%s", meant(e.devices))
	}
}

var migIndex = regexp.MustCompile(`^[0-9]+:[0-9]+$`)

func ofMIG(name string) bool { return migIndex.MatchString(name) || strings.HasPrefix(name, "MIG-") }

func meant(d Devices) string {
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

func (r *reader) replicas(node *yaml.Node, field string) {
	e := r.entry("replicas")
	n, err := strconv.Atoi(node.Value)
	most, why := MaxReplicas, "shares that a GPU has room for"
	if e.of.backend == v1alpha1.BackendMPS {
		most, why = MaxMPSReplicas, "clients that MPS serves on a GPU"
	}
	switch {
	case node.Kind != yaml.ScalarNode || node.Tag != "!!int" || err != nil:
		r.fault(node, field, "%q is no whole number", oneLine(node))
	case n < 1:
		r.fault(node, field, "%d replicas: give 1 or more", n)
	case n > most:
		r.fault(node, field, "%d replicas are more than the %d %s", n, most, why)
	default:
		e.replicas = n
		r.note(node, field, Works, "%s", e.worth())
	}
}

// worth says what a replica is.
func (e *entry) worth() string {
	switch {
	case e.replicas == 1:
		return "one share of all of the GPU's memory, in this form"
	case e.of.backend == v1alpha1.BackendMPS:
		return fmt.Sprintf("each replica has 1/%d of the memory, which holds, and at most %d percent of the SMs", e.replicas, 100/e.replicas)
	}
	return fmt.Sprintf("each replica has 1/%d of the memory, which holds; the driver divides time", e.replicas)
}
