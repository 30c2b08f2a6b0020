package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

const (
	driver, node, counterSet = "bench.divvy.dev", "node", "gpu"
	classPrefix              = "profile-"
)

// scheduler is Kubernetes' own allocator over one GPU, whose placements are devices that take counters.
type scheduler struct {
	model    *layouts.Model
	counters *resourcev1.ResourceSlice
	devices  *resourcev1.ResourceSlice
	held     sets.Set[structured.DeviceID]
	cache    *cel.Cache
	claims   int
}

func newScheduler(m *layouts.Model) *scheduler {
	s := &scheduler{model: m, held: sets.New[structured.DeviceID](), cache: cel.NewCache(10, cel.Features{})}
	all := map[string]resourcev1.Counter{}
	for _, place := range m.Placements() {
		for name, c := range consumed(m, place) {
			if have := all[name]; have.Value.Cmp(c.Value) < 0 {
				all[name] = c
			}
		}
	}
	s.counters = sliceOf("0-counters", resourcev1.ResourceSliceSpec{SharedCounters: []resourcev1.CounterSet{{Name: counterSet, Counters: all}}})
	return s
}

func sliceOf(name string, spec resourcev1.ResourceSliceSpec) *resourcev1.ResourceSlice {
	spec.Driver, spec.NodeName = driver, ptr.To(node)
	spec.Pool = resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 2}
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

// consumed are the counters that a placement takes: each of its memory slices, and its engines.
func consumed(m *layouts.Model, place layouts.Placement) map[string]resourcev1.Counter {
	p, taken := m.Profiles()[place.Profile], map[string]resourcev1.Counter{}
	for i := range p.Size {
		taken[fmt.Sprintf("memory-slice-%d", place.Start+i)] = resourcev1.Counter{Value: resource.MustParse("1")}
	}
	for c, n := range p.Takes {
		if n > 0 {
			taken[fmt.Sprintf("counter-%d", c)] = resourcev1.Counter{Value: *resource.NewQuantity(int64(n), resource.DecimalSI)}
		}
	}
	return taken
}

func deviceName(place layouts.Placement) string {
	return fmt.Sprintf("p%d-%d", place.Profile, place.Start)
}

// publish tells the devices in an order.
func (s *scheduler) publish(order []layouts.Choice) {
	var devices []resourcev1.Device
	for _, c := range order {
		devices = append(devices, resourcev1.Device{
			Name: deviceName(c.Placement),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"profile": {IntValue: ptr.To(int64(c.Profile))},
			},
			ConsumesCounters: []resourcev1.DeviceCounterConsumption{{CounterSet: counterSet, Counters: consumed(s.model, c.Placement)}},
		})
	}
	s.devices = sliceOf("1-devices", resourcev1.ResourceSliceSpec{Devices: devices})
}

// Get implements the allocator's lister: the class of a profile.
func (s *scheduler) Get(name string) (*resourcev1.DeviceClass, error) {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes['%s'].profile == %s", driver, strings.TrimPrefix(name, classPrefix)),
		}}},
	}}, nil
}

// List implements the allocator's lister.
func (s *scheduler) List() ([]*resourcev1.DeviceClass, error) { return nil, nil }

// take allocates a claim for a profile. It reports false where the claim does not fit.
func (s *scheduler) take(profile int) (place layouts.Placement, ok bool, err error) {
	state := structured.AllocatedState{
		AllocatedDevices: s.held, AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	ctx := context.Background()
	features := structured.Features{DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true}
	allocator, err := structured.NewAllocator(ctx, features, state, s, []*resourcev1.ResourceSlice{s.counters, s.devices}, s.cache)
	if err != nil {
		return place, false, fmt.Errorf("make an allocator: %w", err)
	}
	s.claims++
	name := fmt.Sprintf("claim-%d", s.claims)
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: fmt.Sprint(classPrefix, profile), AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
	}}}
	results, err := allocator.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, []*resourcev1.ResourceClaim{claim})
	if err != nil {
		return place, false, fmt.Errorf("allocate: %w", err)
	}
	if len(results) == 0 {
		return place, false, nil
	}
	device := results[0].Devices.Results[0].Device
	for _, place := range s.model.Placements() {
		if deviceName(place) == device && place.Profile == profile {
			s.held.Insert(structured.MakeDeviceID(driver, node, device))
			return place, true, nil
		}
	}
	return place, false, fmt.Errorf("device %s is not of profile %d", device, profile)
}

func (s *scheduler) release(place layouts.Placement) {
	s.held.Delete(structured.MakeDeviceID(driver, node, deviceName(place)))
}
