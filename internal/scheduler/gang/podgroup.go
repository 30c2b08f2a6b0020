package gang

import (
	"fmt"

	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// PodGroups are the objects that describe gangs in other forms than annotations and labels.
type PodGroups interface {
	// PodGroup returns an object, and false where there is none.
	PodGroup(form Form, namespace, name string) (PodGroup, bool)
}

// PodGroup is what an object says about a gang.
type PodGroup struct {
	// Minimum is how many members must be placed together; 0 is of pods that are no gang.
	Minimum  int
	Topology []Level
	// Fault says what the object asks that cannot be had; it is empty for most.
	Fault string
}

// FromKubernetes reads Kubernetes' own object.
func FromKubernetes(o *schedulingv1alpha2.PodGroup) PodGroup {
	var g PodGroup
	if len(o.Spec.ResourceClaims) > 0 {
		return PodGroup{Fault: "has resourceClaims, which " + v1alpha1.SchedulerName + " does not share among pods: give each pod its claims"}
	}
	gang := o.Spec.SchedulingPolicy.Gang
	if gang == nil {
		return g
	}
	g.setMinimum("schedulingPolicy.gang.minCount", int64(gang.MinCount))
	if constraints := o.Spec.SchedulingConstraints; constraints != nil {
		for _, t := range constraints.Topology {
			g.Topology = append(g.Topology, Level{Label: t.Key, Required: true})
		}
		if len(g.Topology) > mostLevels {
			g = PodGroup{Fault: fmt.Sprintf("has %d topology constraints: give at most %d", len(constraints.Topology), mostLevels)}
		}
	}
	return g
}

func (g *PodGroup) setMinimum(field string, n int64) {
	if n < 1 || n > v1alpha1.MostGangMembers {
		g.Fault = fmt.Sprintf("has %s %d: give 1 to %d", field, n, v1alpha1.MostGangMembers)
		return
	}
	g.Minimum = int(n)
}

// FromObject reads the object of another form, as it is in the API.
func FromObject(form Form, content map[string]any) PodGroup {
	var g PodGroup
	spec, _ := content["spec"].(map[string]any)
	n, ok := integer(spec["minMember"])
	if !ok {
		return PodGroup{Fault: "has no spec.minMember"}
	}
	g.setMinimum("spec.minMember", n)
	if form != FormVolcano || g.Fault != "" {
		return g
	}
	if topology, ok := spec["networkTopology"].(map[string]any); ok && topology["mode"] != "soft" {
		g.Fault = "asks for networkTopology, and " + v1alpha1.SchedulerName + " knows no HyperNodes: name labels of nodes in annotation " + v1alpha1.GangTopologyAnnotation
	}
	if groups, ok := spec["subGroupPolicy"].([]any); ok && len(groups) > 0 {
		g.Fault = "has subGroupPolicy, which " + v1alpha1.SchedulerName + " does not know: make a gang of each group"
	}
	return g
}

// integer reads a number of an object that was decoded from JSON.
func integer(value any) (int64, bool) {
	switch n := value.(type) {
	case int64:
		return n, true
	case int32:
		return int64(n), true
	case int:
		return int64(n), true
	case float64:
		return int64(n), n == float64(int64(n))
	}
	return 0, false
}
