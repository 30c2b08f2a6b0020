package dra

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// shareBy reads what a claim says to NVIDIA's driver of how its processes share whole GPUs and MIG instances. It is pure.
func shareBy(allocations []allocation, all []resourcev1.DeviceAllocationConfiguration) error {
	by := map[int][]*allocation{} // by the configuration, those that it is for
	for i := range allocations {
		g := &allocations[i]
		if !g.exclusive && g.instance == nil {
			continue
		}
		at, err := sharingOf(all, g.request, g.instance != nil)
		if err != nil {
			return fmt.Errorf("request %s: %w", g.request, err)
		}
		if at >= 0 {
			by[at] = append(by[at], g)
		}
	}
	for at, group := range by {
		decode := dialect.DecodeGPUConfig
		if group[0].instance != nil {
			decode = dialect.DecodeMIGConfig
		}
		config, err := decode(all[at].Opaque.Parameters.Raw)
		if err == nil {
			err = shareGroup(group, config)
		}
		if err != nil {
			return fmt.Errorf("request %s: %w", group[0].request, fault("%w", err))
		}
	}
	return nil
}

// shareGroup applies a configuration to the devices that it is for.
func shareGroup(group []*allocation, config dialect.GPUConfig) error {
	uuids := make([]string, len(group))
	for i, g := range group {
		uuids[i] = g.uuid
	}
	if err := config.Unknown(uuids); err != nil {
		return err
	}
	for i, g := range group {
		g.sharing, g.processMemory = config, config.LimitOf(g.uuid, i)
		if g.processMemory > g.memory && g.memory > 0 {
			return fmt.Errorf("%w: a memory limit of %s is more than %s has: %s",
				dialect.ErrGPUConfig, v1alpha1.FormatBytes(g.processMemory), g.uuid, v1alpha1.FormatBytes(g.memory))
		}
	}
	return nil
}

// sharingOf returns the place of the configuration for NVIDIA's driver that counts for a request, -1 for none. As there,
// the claim's goes before the class's, and among several of one source the last. One that names no request is for all
// devices of its kind.
func sharingOf(all []resourcev1.DeviceAllocationConfiguration, request string, instance bool) (int, error) {
	for _, source := range []resourcev1.AllocationConfigSource{resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass} {
		for i := len(all) - 1; i >= 0; i-- {
			c := &all[i]
			if c.Source != source || c.Opaque == nil || c.Opaque.Driver != v1alpha1.NVIDIADriver || !isFor(c.Requests, request) {
				continue
			}
			if dialect.IsMIGConfig(c.Opaque.Parameters.Raw) == instance {
				return i, nil
			}
			if len(c.Requests) > 0 {
				return -1, fault("a configuration for NVIDIA's driver is for it and is not of the kind of its device: write GpuConfig for a GPU, MigDeviceConfig for a MIG device")
			}
		}
	}
	return -1, nil
}
