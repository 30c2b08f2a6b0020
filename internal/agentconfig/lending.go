package agentconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// Lending is what a node of a cluster offers to virtual machines of one PCI function, or of all GPUs. Functions are named by
// their addresses: index and UUID are the driver's, and a GPU that has left the driver has neither.
type Lending struct {
	// Form is one of passthrough, vf and vgpu.
	Form v1alpha1.Backend
	// Address is the physical function's. Every is true for all GPUs that no lending names, and then there is no address.
	Address pci.Address
	Every   bool
	// Type is the number of the vGPUs' type, and Replicas the most of them at once, 0 for no bound. Other forms have neither.
	Type     string
	Replicas int
	// Functions is how many virtual functions the agent enables where there are none, [pci.AllFunctions] for as many as there can be,
	// and 0 for none. Only vf and vgpu have them.
	Functions int
}

// machineBackends are those of virtual machines.
var machineBackends = []v1alpha1.Backend{v1alpha1.BackendPassthrough, v1alpha1.BackendVF, v1alpha1.BackendVGPU}

// Lendings are what is offered to virtual machines, in the order of the file.
func (c *Config) Lendings() []Lending {
	if c == nil {
		return nil
	}
	return slices.Clone(c.lendings)
}

// LendingOf returns the lending of a function, and whether there is one. GPU is whether one that is offered as any GPU is meant.
func LendingOf(lendings []Lending, address pci.Address, gpu bool) (Lending, bool) {
	every := -1
	for i, o := range lendings {
		switch {
		case !o.Every && o.Address == address:
			return o, true
		case o.Every && gpu:
			every = i
		}
	}
	if every < 0 {
		return Lending{}, false
	}
	return lendings[every], true
}

// vgpuType is a type as mdev or as vendor VFIO has it.
var vgpuType = regexp.MustCompile(`^(?:nvidia-)?([1-9][0-9]{0,5})$`)

// lendingsOf reads what is offered in one form: a list of addresses, or fields, once or several times.
func (r *reader) lendingsOf(b v1alpha1.Backend, node *yaml.Node, path string) {
	switch {
	case node.Kind == yaml.MappingNode:
		r.lendingOf(b, node, path)
	case node.Kind == yaml.SequenceNode && len(node.Content) > 0 && node.Content[0].Kind == yaml.MappingNode:
		for i, one := range node.Content {
			r.lendingOf(b, one, fmt.Sprintf("%s[%d]", path, i))
		}
	case b == v1alpha1.BackendVGPU:
		r.Fault(node, path, "must have a type, such as {gpus: [\"0000:3b:00.0\"], type: nvidia-471}")
	default:
		r.functions(Lending{Form: b}, node, path)
	}
}

// lendingOf reads addresses with what is offered of them.
func (r *reader) lendingOf(b v1alpha1.Backend, node *yaml.Node, path string) {
	lending := Lending{Form: b}
	var gpus *yaml.Node
	of := known{"gpus": func(n *yaml.Node, _ string) { gpus = n }}
	if b != v1alpha1.BackendPassthrough {
		of["functions"] = func(n *yaml.Node, f string) { lending.Functions = r.functionCount(n, f) }
	}
	if b == v1alpha1.BackendVGPU {
		of["replicas"] = func(n *yaml.Node, f string) { lending.Replicas = r.number(n, f, MaxReplicas) }
		of["type"] = func(n *yaml.Node, f string) {
			text, ok := r.scalar(n, f, "the type of the vGPUs, such as nvidia-471")
			parts := vgpuType.FindStringSubmatch(text)
			if ok && parts == nil {
				r.Fault(n, f, "%q is no type of vGPUs: write such as nvidia-471, as the host driver numbers them", text)
			} else if ok {
				lending.Type = parts[1]
			}
		}
	}
	before := len(r.Faults)
	r.Fields(node, path, of)
	switch {
	case len(r.Faults) > before:
	case gpus == nil:
		r.Fault(node, path, "names no GPUs: add gpus, such as [\"0000:3b:00.0\"], or all")
	case b == v1alpha1.BackendVGPU && lending.Type == "":
		r.Fault(node, path, "names no type: add such as type: nvidia-471")
	case gpus.Kind == yaml.ScalarNode && gpus.Value == allGPUs:
		lending.Every = true
		r.lending(gpus, path+".gpus", lending)
	default:
		r.functions(lending, gpus, path+".gpus")
	}
}

// mostFunctions is how many virtual functions PCI Express lets a device have.
const mostFunctions = 65535

// functionCount reads how many virtual functions are enabled.
func (r *reader) functionCount(node *yaml.Node, field string) int {
	if node.Kind == yaml.ScalarNode && node.Value == allGPUs {
		return pci.AllFunctions
	}
	if node.Kind != yaml.ScalarNode {
		r.Fault(node, field, "must be a whole number from 1 to %d, or %s", mostFunctions, allGPUs)
		return 0
	}
	return r.number(node, field, mostFunctions)
}

// functions reads the addresses of one lending.
func (r *reader) functions(lending Lending, node *yaml.Node, path string) {
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		r.Fault(node, path, "must be a list of PCI addresses, such as [\"0000:3b:00.0\"]")
		return
	}
	for i, one := range node.Content {
		field := fmt.Sprintf("%s[%d]", path, i)
		address, err := pci.ParseAddress(strings.ToLower(one.Value))
		if one.Kind != yaml.ScalarNode || err != nil {
			r.Fault(one, field, "%q is no PCI address such as 0000:3b:00.0: index and UUID are the driver's, which a GPU for a virtual machine leaves", one.Value)
			continue
		}
		lending.Address = address
		r.lending(one, field, lending)
	}
}

// lending adds one, unless its functions are offered already.
func (r *reader) lending(at *yaml.Node, field string, lending Lending) {
	for _, other := range r.config.lendings {
		if other.Every == lending.Every && other.Address == lending.Address {
			r.Fault(at, field, "is offered twice: a GPU has one form")
			return
		}
	}
	r.config.lendings = append(r.config.lendings, lending)
}
