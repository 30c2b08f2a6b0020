package examples

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// outcome says in one line what a translation gives each container, and which scheduler it names instead.
func outcome(made *dialect.Translation) (string, error) {
	specs := make(map[string]*resourcev1.ResourceClaimSpec)
	for i := range made.Templates {
		specs[made.Templates[i].Name] = &made.Templates[i].Spec.Spec
	}
	var parts []string
	scheduler, labels := "", []string(nil)
	for _, step := range made.Patch {
		var claims []corev1.PodResourceClaim
		switch value := step.Value.(type) {
		case []corev1.PodResourceClaim:
			claims = value
		case corev1.PodResourceClaim:
			claims = []corev1.PodResourceClaim{value}
		case map[string]string:
			labels = append(labels, labelsAt(step.Path, value)...)
		case string:
			if step.Path == "/spec/schedulerName" {
				scheduler = value
			} else if label, ok := strings.CutPrefix(step.Path, "/metadata/labels/"+v1alpha1.Domain+"~1"); ok {
				labels = append(labels, label+" "+value)
			}
		}
		for _, claim := range claims {
			var spec *resourcev1.ResourceClaimSpec
			if claim.ResourceClaimTemplateName != nil {
				spec = specs[*claim.ResourceClaimTemplateName]
			} else if described, ok := made.Described[*claim.ResourceClaimName]; ok {
				spec = &described
			}
			text, err := asked(spec)
			if err != nil {
				return "", err
			}
			parts = append(parts, strings.TrimPrefix(claim.Name, "divvy-")+": "+text)
		}
	}
	if len(parts) == 0 {
		return "left alone", nil
	}
	if scheduler != "" {
		parts = append(parts, "scheduler "+scheduler)
	}
	return strings.Join(append(parts, labels...), "; "), nil
}

// asked describes the one request of a claim. Of its alternatives, one for each size of GPU, there is one here.
func asked(spec *resourcev1.ResourceClaimSpec) (string, error) {
	request := spec.Devices.Requests[0]
	one := request.Exactly
	if one == nil {
		way := request.FirstAvailable[0]
		one = &resourcev1.ExactDeviceRequest{DeviceClassName: way.DeviceClassName, Count: way.Count, Capacity: way.Capacity, Selectors: way.Selectors[1:]}
	}
	words := []string{fmt.Sprint(one.Count), strings.TrimSuffix(one.DeviceClassName, "."+v1alpha1.Domain)}
	if one.Capacity != nil {
		for _, name := range []resourcev1.QualifiedName{v1alpha1.CapacityMemory, v1alpha1.CapacitySwapMemory, v1alpha1.CapacityCores} {
			if quantity, ok := one.Capacity.Requests[name]; ok {
				words = append(words, string(name)+"="+quantity.String())
			}
		}
	}
	for _, c := range spec.Devices.Config {
		config, err := v1alpha1.DecodeShareConfig(c.Opaque.Parameters.Raw)
		if err != nil {
			return "", fmt.Errorf("read a claim's configuration: %w", err)
		}
		if config.Policy != "" {
			words = append(words, string(config.Policy))
		}
		if config.Class != "" {
			words = append(words, string(config.Class))
		}
		if config.Swap {
			words = append(words, "swap")
		}
	}
	for _, s := range one.Selectors {
		words = append(words, "["+s.CEL.Expression+"]")
	}
	for _, c := range spec.Devices.Constraints {
		words = append(words, "same "+string(*c.MatchAttribute))
	}
	return strings.Join(words, " "), nil
}

// labelsAt are the labels of a step that gives a pod its first ones.
func labelsAt(path string, value map[string]string) (labels []string) {
	if path != "/metadata/labels" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(value)) {
		labels = append(labels, strings.TrimPrefix(name, v1alpha1.Domain+"/")+" "+value[name])
	}
	return labels
}
