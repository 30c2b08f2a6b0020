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
	text, err := yaml.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("write what concerns the webhook: %w", err)
	}
	return append([]byte("# Written by \"make manifests\" from internal/webhook.\n"), text...), nil
}
