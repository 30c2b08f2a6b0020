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
	// refused is true where one of the keys is, and idle where the node's MIG devices have another name, so that nothing
	// comes of the entry.
	refused, idle bool
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
	s := r.sharingOf(field)
	s.rename = isTrue(node)
	r.later = append(r.later, func() {
		var names []string
		for _, e := range r.entries {
			name := e.resource
			if s.rename {
				name += SharedSuffix
			}
			if e.of == s && e.resource != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		r.note(node, field, Works, "replicas go by %s", strings.Join(names, ", "))
	})
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
	for i := 0; i+1 < len(node.Content); i += 2 {
		if key, value := node.Content[i], node.Content[i+1]; key.Value == "name" && value.Kind == yaml.ScalarNode {
			e.resource = full(value.Value) // which other keys need, and which may come after them
		}
	}
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
	switch {
	case e.resource == GPUResource:
		r.later = append(r.later, func() {
			if r.config.Strategy == StrategySingle {
				r.note(node, field, Works, "the MIG devices of a node, or its GPUs where none is in MIG mode")
				return
			}
			r.note(node, field, Works, "GPUs that are not in MIG mode")
		})
	case partial.MatchString(e.resource):
		e.refused = true
		r.note(node, field, Refused, "compute instances that share a GPU instance are not offered: name MIG devices that are GPU instances, such as %s1g.10gb", MIGPrefix)
	case instances.MatchString(e.resource):
		r.later = append(r.later, func() { r.migResource(e, node, field) })
	default:
		r.fault(node, field, "%q is no resource of the device plugin: write %s, or %s and a profile such as 1g.10gb", node.Value, GPUResource, MIGPrefix)
	}
}

// migResource judges the name of MIG devices by the strategy.
func (r *reader) migResource(e *entry, node *yaml.Node, field string) {
	if r.config.Strategy == StrategyMixed {
		r.note(node, field, Works, "in mode slots, MIG devices of this profile on every GPU that has them")
		return
	}
	e.idle = true
	r.note(node, field, NoEffect, "MIG devices have names of their own with flags.migStrategy mixed alone, and it is %s", r.config.Strategy)
}

// The names of MIG devices: those that are GPU instances, and those that are parts of one.
var (
	instances = regexp.MustCompile(`^nvidia\.com/mig-[1-9][0-9]?g\.[1-9][0-9]{0,3}gb([.-][a-z]+(\.[a-z]+)?)?$`)
	partial   = regexp.MustCompile(`^nvidia\.com/mig-[1-9][0-9]?c\.`)
)

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
	case e.resource + SharedSuffix, e.resource:
		r.note(node, field, Works, "these replicas go by %s", e.rename)
	default:
		e.refused = true
		r.note(node, field, Refused, "replicas go by %s or %s: no part of Divvy knows another name", e.resource+SharedSuffix, e.resource)
	}
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
		return "one share of all of the memory, in this form"
	case e.of.backend == v1alpha1.BackendMPS:
		return fmt.Sprintf("each replica has 1/%d of the memory, which holds, and at most %d percent of the SMs", e.replicas, 100/e.replicas)
	}
	return fmt.Sprintf("each replica has 1/%d of the memory, which holds; the driver divides time", e.replicas)
}
