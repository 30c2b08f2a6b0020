package plain

import (
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/internal/webhook"
	"sigs.k8s.io/yaml"
)

// names are what a dialect reads in a pod, as the chart's templates take them.
type names struct {
	Resources   []string `json:"resources,omitempty"`
	Prefixes    []string `json:"prefixes,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// Admission returns the chart's files/admission.yaml: which objects concern the webhook. A chart cannot call Go, so
// what the webhook's code says is written down for it.
func Admission() ([]byte, error) {
	var file struct {
		Dialects   map[string]names  `json:"dialects"`
		Conditions map[string]string `json:"conditions"`
		// Pods are the conditions of a pod that has a name among its limits or its annotations: the chart puts the
		// names of the dialects that are turned on for NAME.
		Pods struct {
			Resources   string `json:"resources"`
			Annotations string `json:"annotations"`
		} `json:"pods"`
	}
	file.Dialects = make(map[string]names)
	for dialect, all := range webhook.DialectNames() {
		var n names
		for _, name := range all.Resources {
			if prefix, open := strings.CutSuffix(name, "*"); open {
				n.Prefixes = append(n.Prefixes, prefix)
			} else {
				n.Resources = append(n.Resources, name)
			}
		}
		n.Annotations = all.Annotations
		file.Dialects[dialect] = n
	}
	file.Conditions = map[string]string{
		"claims":     webhook.ClaimCondition(),
		"templates":  webhook.TemplateCondition(),
		"containers": webhook.ContainerCondition(),
	}
	file.Pods.Resources = webhook.PodCondition(webhook.Names{Resources: []string{"NAME"}})
	file.Pods.Annotations = webhook.PodCondition(webhook.Names{Annotations: []string{"NAME"}})
	text, err := yaml.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("write what concerns the webhook: %w", err)
	}
	return append([]byte("# Written by \"make manifests\" from internal/webhook.\n"), text...), nil
}
