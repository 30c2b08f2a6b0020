package demand

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// configOf is the configuration of a request: the claim's, or else the class's, as the agent reads them of the allocation.
// name is as results name the request.
func configOf(spec *resourcev1.ResourceClaimSpec, class *resourcev1.DeviceClass, name string) (v1alpha1.ShareConfig, error) {
	var of, all []*resourcev1.OpaqueDeviceConfiguration
	for i := range spec.Devices.Config {
		if c := &spec.Devices.Config[i]; isFor(c.Requests, name) {
			of = append(of, c.Opaque)
		}
	}
	for i := range class.Spec.Config {
		all = append(all, class.Spec.Config[i].Opaque)
	}
	for _, source := range [][]*resourcev1.OpaqueDeviceConfiguration{of, all} {
		var found *v1alpha1.ShareConfig
		for _, c := range source {
			if c == nil || c.Driver != v1alpha1.Driver {
				continue
			}
			config, err := v1alpha1.DecodeShareConfig(c.Parameters.Raw)
			if err != nil {
				return config, err
			}
			if found != nil && *found != config {
				return config, fmt.Errorf("two configurations contradict each other: give one")
			}
			found = &config
		}
		if found != nil {
			return *found, nil
		}
	}
	return v1alpha1.ShareConfig{}, nil
}

// nvidiaConfig returns what is wrong with what a claim says to NVIDIA's driver of a request for whole GPUs or for a MIG
// instance, which the agent reads.
func nvidiaConfig(spec *resourcev1.ResourceClaimSpec, w *way) error {
	instance := v1alpha1.IsInstanceClass(w.class)
	if !instance && !v1alpha1.IsWholeClass(w.class) {
		return nil
	}
	for i := range spec.Devices.Config {
		c := &spec.Devices.Config[i]
		if c.Opaque == nil || c.Opaque.Driver != v1alpha1.NVIDIADriver || !isFor(c.Requests, w.name) {
			continue
		}
		raw := c.Opaque.Parameters.Raw
		switch {
		case dialect.IsMIGConfig(raw) != instance && len(c.Requests) == 0:
		case instance:
			if _, err := dialect.DecodeMIGConfig(raw); err != nil {
				return err
			}
		default:
			config, err := dialect.DecodeGPUConfig(raw)
			if err != nil {
				return err
			}
			if config.Backend == v1alpha1.BackendMPS && w.count > 1 {
				return fmt.Errorf("%d GPUs with strategy MPS: ask for one, because a process can be the client of one control daemon only", w.count)
			}
		}
	}
	return nil
}

// isFor reports whether what names these requests, all if it names none, is for one: named itself, or by the request of
// which it is an alternative.
func isFor(requests []string, name string) bool {
	base, _, _ := strings.Cut(name, "/")
	return len(requests) == 0 || slices.Contains(requests, name) || slices.Contains(requests, base)
}

// wishes are what the pod's annotations say of GPUs.
type wishes struct {
	models v1alpha1.GPUModels
	prefer v1alpha1.GPUPreference
}

func wishesOf(annotations map[string]string) (w wishes, err error) {
	if w.models, err = v1alpha1.ParseGPUModels(annotations[v1alpha1.ModelsAnnotation]); err != nil {
		return w, fmt.Errorf("annotation %s: %w", v1alpha1.ModelsAnnotation, err)
	}
	if w.prefer, err = v1alpha1.ParseGPUPreference(annotations[v1alpha1.PreferAnnotation]); err != nil {
		return w, fmt.Errorf("annotation %s: %w", v1alpha1.PreferAnnotation, err)
	}
	return w, nil
}

// apply puts into a request which GPUs are accepted and wanted: by the claim's configuration, or else by the pod.
func (w wishes) apply(r *alloc.Request, config *v1alpha1.ShareConfig) error {
	models, err := v1alpha1.ParseGPUModels(string(cmp.Or(config.GPUModels, w.models)))
	if err != nil {
		return err
	}
	if r.Prefer, err = v1alpha1.ParseGPUPreference(string(cmp.Or(config.GPUPrefer, w.prefer))); err != nil {
		return err
	}
	r.Models = alloc.Names(strings.Join(models.Names(), "|"))
	return nil
}
