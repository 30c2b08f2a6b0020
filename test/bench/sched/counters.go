package main

import (
	"errors"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// counterID is one counter of one set.
type counterID struct{ pool, set, name string }

// overdrawn reports every counter of which allocated devices take more than there is. It is pure.
func overdrawn(slices []resourcev1.ResourceSlice, claims []resourcev1.ResourceClaim) error {
	there, takes := map[counterID]resource.Quantity{}, map[device][]resourcev1.DeviceCounterConsumption{}
	for i := range slices {
		spec := &slices[i].Spec
		for _, set := range spec.SharedCounters {
			for name, c := range set.Counters {
				there[counterID{spec.Pool.Name, set.Name, name}] = c.Value
			}
		}
		for k := range spec.Devices {
			takes[device{spec.Driver, spec.Pool.Name, spec.Devices[k].Name}] = spec.Devices[k].ConsumesCounters
		}
	}
	taken := map[counterID]resource.Quantity{}
	for i := range claims {
		if claims[i].Status.Allocation == nil {
			continue
		}
		for _, result := range claims[i].Status.Allocation.Devices.Results {
			for _, from := range takes[device{result.Driver, result.Pool, result.Device}] {
				for name, c := range from.Counters {
					id := counterID{result.Pool, from.CounterSet, name}
					sum := taken[id]
					sum.Add(c.Value)
					taken[id] = sum
				}
			}
		}
	}
	var faults []error
	for id, sum := range taken {
		if has := there[id]; sum.Cmp(has) > 0 {
			faults = append(faults, fmt.Errorf("%s of %s: %s of %s %s are taken", id.set, id.pool, sum.String(), has.String(), id.name))
		}
	}
	return errors.Join(faults...)
}
