package pool

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Host is a node whose GPUs others reach through the network.
type Host struct {
	Node    string
	Address netip.AddrPort
	// Nodes are those that reach it, all of them where it is empty.
	Nodes labels.Requirements
}

// RemoteSpec describes the GPUs of a host that others reach, all of form Remote: one slice, which is the pool, so that no reader
// ever sees a part of it. It says nothing of where in the host a GPU is: a claim compares such attributes with those of devices
// of the pod's node.
func RemoteSpec(host Host, gpus []GPU) (*resourcev1.ResourceSliceSpec, error) {
	if err := host.validate(); err != nil {
		return nil, err
	}
	if len(gpus) > resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures {
		return nil, fmt.Errorf("%w: %d GPUs of one host: others can reach %d of them", ErrGPU, len(gpus), resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures)
	}
	spec := &resourcev1.ResourceSliceSpec{Driver: v1alpha1.Driver, Pool: resourcev1.ResourcePool{Name: v1alpha1.RemotePool(host.Node), Generation: 1, ResourceSliceCount: 1}}
	if len(host.Nodes) == 0 {
		spec.AllNodes = ptr.To(true)
	} else {
		spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: expressions(host.Nodes)}}}
	}
	sorted := slices.SortedFunc(slices.Values(gpus), func(a, b GPU) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.UUID, b.UUID))
	})
	for _, g := range sorted {
		if g.form() != Remote {
			return nil, fmt.Errorf("%w: %s is of form %s and not remote", ErrGPU, g.UUID, g.form())
		}
		g.Location, g.NVIDIANames, g.Held, g.host = nil, false, nil, host
		if err := g.validate(); err != nil {
			return nil, err
		}
		spec.Devices = append(spec.Devices, g.device())
	}
	return spec, nil
}

func (h *Host) validate() error {
	if h.Node == "" || len(h.Node) > resourcev1.DeviceAttributeMaxValueLength {
		return fmt.Errorf("%w: node %q: others can reach GPUs of nodes whose names have 1 to %d letters", ErrGPU, h.Node, resourcev1.DeviceAttributeMaxValueLength)
	}
	if len(validation.IsDNS1123Subdomain(h.Node)) > 0 {
		return fmt.Errorf("%w: node %q has no valid name", ErrGPU, h.Node)
	}
	if at := h.Address; !at.IsValid() || at.Port() == 0 || at.Addr().IsUnspecified() || at.Addr().Zone() != "" || at.Addr().IsMulticast() {
		return fmt.Errorf("%w: %s is not where others reach node %s", ErrGPU, at, h.Node)
	}
	return nil
}

// operators are those of node selectors, by those of label selectors.
var operators = map[selection.Operator]corev1.NodeSelectorOperator{
	selection.Equals: corev1.NodeSelectorOpIn, selection.DoubleEquals: corev1.NodeSelectorOpIn, selection.In: corev1.NodeSelectorOpIn,
	selection.NotEquals: corev1.NodeSelectorOpNotIn, selection.NotIn: corev1.NodeSelectorOpNotIn,
	selection.Exists: corev1.NodeSelectorOpExists, selection.DoesNotExist: corev1.NodeSelectorOpDoesNotExist,
	selection.GreaterThan: corev1.NodeSelectorOpGt, selection.LessThan: corev1.NodeSelectorOpLt,
}

// expressions are a label selector as a node selector has it.
func expressions(all labels.Requirements) []corev1.NodeSelectorRequirement {
	var found []corev1.NodeSelectorRequirement
	for i := range all {
		found = append(found, corev1.NodeSelectorRequirement{
			Key: all[i].Key(), Operator: operators[all[i].Operator()], Values: all[i].ValuesUnsorted(),
		})
		slices.Sort(found[i].Values)
	}
	return found
}

// reached are the attributes by which a node finds the host of a GPU.
func (h *Host) reached(all map[resourcev1.QualifiedName]resourcev1.DeviceAttribute) {
	all[v1alpha1.AttributeHost] = resourcev1.DeviceAttribute{StringValue: ptr.To(h.Node)}
	all[v1alpha1.AttributeAddress] = resourcev1.DeviceAttribute{StringValue: ptr.To(h.Address.String())}
}
