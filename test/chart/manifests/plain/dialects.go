package plain

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/dialect"
	"sigs.k8s.io/yaml"
)

// names are what a dialect reads in a pod, as the chart's templates take them.
type names struct {
	Resources   []string `json:"resources,omitempty"`
	Prefixes    []string `json:"prefixes,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
	// AnnotationPrefixes begin the names of further annotations.
	AnnotationPrefixes []string `json:"annotationPrefixes,omitempty"`
}

// concerns are conditions of objects that concern the webhook.
type concerns struct {
	Conditions map[string]string `json:"conditions"`
	// Admin are those of claims and templates that ask for admin access.
	Admin map[string]string `json:"admin"`
	// Queues are those that there are beside Conditions, or in their place, where queues are followed.
	Queues map[string]string `json:"queues"`
}

func concernsOf(classes dialect.Classes) concerns {
	return concerns{
		Conditions: map[string]string{
			"claims": classes.ClaimCondition(), "templates": classes.TemplateCondition(), "containers": dialect.ContainerCondition(), "annotations": dialect.NoteCondition(),
		},
		Admin:  map[string]string{"claims": classes.AdminClaimCondition(), "templates": classes.AdminTemplateCondition()},
		Queues: map[string]string{"queues": dialect.QueueCondition(), "annotations": dialect.QueuedCondition()},
	}
}

// Dialects returns the chart's files/dialects.yaml: which objects concern the webhook. A chart cannot call Go, so
// what the code says is written down for it.
func Dialects() ([]byte, error) {
	var file struct {
		Dialects map[string]names `json:"dialects"`
		concerns
		// NVIDIAClass is what concerns the webhook where the chart makes NVIDIA's device class.
		NVIDIAClass concerns `json:"nvidiaClass"`
		// Slots are the conditions of mode slots.
		Slots struct {
			Slots    string `json:"slots"`
			Bindings string `json:"bindings"`
		} `json:"slots"`
		// Pods are the conditions of a pod that has a name among its limits or its annotations: the chart puts the
		// names of the dialects that are turned on for NAME.
		Pods struct {
			Resources   string `json:"resources"`
			Annotations string `json:"annotations"`
		} `json:"pods"`
	}
	file.Dialects = make(map[string]names)
	for name, all := range dialect.OwnedNames() {
		var n names
		n.Resources, n.Prefixes = dialect.Split(all.Resources)
		n.Annotations, n.AnnotationPrefixes = dialect.Split(all.Annotations)
		file.Dialects[name] = n
	}
	file.concerns, file.NVIDIAClass = concernsOf(dialect.Classes{}), concernsOf(dialect.Classes{NVIDIA: true})
	file.Slots.Slots, file.Slots.Bindings = dialect.SlottedCondition(), dialect.BindingCondition()
	file.Pods.Resources = dialect.PodCondition(dialect.Names{Resources: []string{"NAME"}})
	file.Pods.Annotations = dialect.PodCondition(dialect.Names{Annotations: []string{"NAME"}})
	text, err := yaml.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("write what concerns the webhook: %w", err)
	}
	return append([]byte("# Written by \"make manifests\" from internal/dialect.\n"), text...), nil
}
