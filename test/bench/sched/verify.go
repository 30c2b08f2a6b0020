package main

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// gpu is what is published and allocated of one GPU, in whatever forms it is published.
type gpu struct {
	capacity, taken map[resourcev1.QualifiedName]resource.Quantity
	// alone are the allocations that share the GPU with nobody, shared the others.
	alone, shared int
}

// verify reports everything that was granted beyond what is published: amounts above a GPU's capacity, a GPU that one
// has whole and others too, devices that nobody publishes, and pods that run on another node than their devices. It is
// pure.
func verify(slices []resourcev1.ResourceSlice, claims []resourcev1.ResourceClaim, pods []corev1.Pod) error {
	devices := published(slices)
	nodes := map[string]string{}
	for i := range pods {
		nodes[pods[i].Name] = pods[i].Spec.NodeName
	}
	allocated := map[string]bool{} // pods
	var faults []error
	for i := range claims {
		claim := &claims[i]
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			g := devices[deviceOf(&result)]
			if g == nil {
				faults = append(faults, fmt.Errorf("claim %s has %s of %s, which nobody publishes", claim.Name, result.Device, result.Pool))
				continue
			}
			g.take(&result)
			for _, user := range claim.Status.ReservedFor {
				allocated[user.Name] = true
				if on := nodes[user.Name]; on != "" && on != result.Pool {
					faults = append(faults, fmt.Errorf("pod %s runs on %s and has %s of %s", user.Name, on, result.Device, result.Pool))
				}
			}
		}
	}
	for i := range pods {
		if pods[i].Spec.NodeName != "" && len(pods[i].Spec.ResourceClaims) > 0 && !allocated[pods[i].Name] {
			faults = append(faults, fmt.Errorf("pod %s runs without what it asks for", pods[i].Name))
		}
	}
	for id, g := range devices {
		if err := g.exceeded(); err != nil {
			faults = append(faults, fmt.Errorf("%s of %s: %w", id.name, id.pool, err))
		}
	}
	return errors.Join(faults...)
}

// device is what an allocation names.
type device struct{ driver, pool, name string }

// published finds the GPU of each device. Devices with the same UUID on one node are one GPU.
func published(slices []resourcev1.ResourceSlice) map[device]*gpu {
	devices := map[device]*gpu{}
	gpus := map[device]*gpu{} // by UUID
	for i := range slices {
		spec := &slices[i].Spec
		for k := range spec.Devices {
			d := &spec.Devices[k]
			id := device{spec.Driver, spec.Pool.Name, d.Name}
			unit := id
			if uuid := d.Attributes[v1alpha1.AttributeUUID].StringValue; uuid != nil {
				unit.name = *uuid
			}
			g := gpus[unit]
			if g == nil {
				g = &gpu{capacity: map[resourcev1.QualifiedName]resource.Quantity{}, taken: map[resourcev1.QualifiedName]resource.Quantity{}}
				gpus[unit] = g
			}
			for name, capacity := range d.Capacity {
				g.capacity[name] = capacity.Value
			}
			devices[id] = g
		}
	}
	return devices
}

func (g *gpu) take(result *resourcev1.DeviceRequestAllocationResult) {
	if result.ShareID == nil {
		g.alone++
		return
	}
	g.shared++
	for name, amount := range result.ConsumedCapacity {
		sum := g.taken[name]
		sum.Add(amount)
		g.taken[name] = sum
	}
}

// leave is the contrary of take.
func (g *gpu) leave(result *resourcev1.DeviceRequestAllocationResult) {
	if result.ShareID == nil {
		g.alone--
		return
	}
	g.shared--
	for name, amount := range result.ConsumedCapacity {
		sum := g.taken[name]
		sum.Sub(amount)
		g.taken[name] = sum
	}
}

func (g *gpu) exceeded() error {
	if g.alone > 1 || g.alone == 1 && g.shared > 0 {
		return fmt.Errorf("%d have it whole and %d a share", g.alone, g.shared)
	}
	for name, sum := range g.taken {
		if capacity := g.capacity[name]; sum.Cmp(capacity) > 0 {
			return fmt.Errorf("%s of %s %s are taken", sum.String(), capacity.String(), name)
		}
	}
	return nil
}
