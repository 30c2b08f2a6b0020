package dialect

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// CheckWeights refuses a claim that names a larger weight than the administrator allows. Device classes, which
// administrators write, may have any. An error wraps [ErrRefused].
func (t *Translator) CheckWeights(spec *resourcev1.ResourceClaimSpec) error {
	if t.maxWeight == 0 {
		return nil
	}
	for i := range spec.Devices.Config {
		opaque := spec.Devices.Config[i].Opaque
		if opaque == nil || opaque.Driver != v1alpha1.Driver {
			continue
		}
		config, err := v1alpha1.DecodeShareConfig(opaque.Parameters.Raw)
		if err == nil && config.Weight > t.maxWeight {
			return refuseWeight(config.Weight, t.maxWeight)
		}
	}
	return nil
}

func refuseWeight(weight, most int) error {
	return refuse("weight %d is more than the %d that this cluster's administrator allows (the chart's value maxWeight): ask for less", weight, most)
}
