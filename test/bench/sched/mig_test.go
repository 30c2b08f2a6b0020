package main

import (
	"context"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// divisions are the machine with a fixed layout and with layouts that may change.
func divisions(t *testing.T) (fixed, dynamic inventory) {
	t.Helper()
	machine, err := readInventory(checkout)
	if err != nil {
		t.Fatal(err)
	}
	if fixed, err = machine.fixed(balanced); err != nil {
		t.Fatal(err)
	}
	if dynamic, err = machine.dynamic(); err != nil {
		t.Fatal(err)
	}
	if _, err := machine.fixed(layout{"", []place{{"3g.40gb", 2}}}); err == nil {
		t.Error("an instance begins where none can")
	}
	return fixed, dynamic
}

// Fixed layouts have no counters, no two instances of the world the same UUID, and layouts that may change have counters.
func TestDivisions(t *testing.T) {
	fixed, dynamic := divisions(t)
	seen := map[string]bool{}
	for _, node := range []int{0, 1} {
		all, err := fixed.slicesOf(node)
		if err != nil || len(all) != 1 || len(all[0].Spec.SharedCounters) > 0 || len(all[0].Spec.Devices) != 32 {
			t.Fatalf("node %d publishes %d slices: %v", node, len(all), err)
		}
		for _, d := range all[0].Spec.Devices {
			uuid := *d.Attributes[v1alpha1.AttributeUUID].StringValue
			if seen[uuid] || len(d.ConsumesCounters) > 0 || *d.Attributes["form"].StringValue != string(pool.MIG) {
				t.Errorf("node %d has %s: %v", node, uuid, d)
			}
			seen[uuid] = true
		}
	}
	all, err := dynamic.slicesOf(0)
	if err != nil || len(all) < 2 || len(all[0].Spec.SharedCounters) != 8 {
		t.Fatalf("a node publishes %d slices: %v", len(all), err)
	}
	for _, slice := range all[1:] {
		for _, d := range slice.Spec.Devices {
			if len(d.ConsumesCounters) != 1 {
				t.Errorf("%s takes no counters", d.Name)
			}
		}
	}
}

// What takes more counters than there are is found.
func TestOverdrawn(t *testing.T) {
	_, dynamic := divisions(t)
	all, err := dynamic.slicesOf(0)
	if err != nil {
		t.Fatal(err)
	}
	var slices []resourcev1.ResourceSlice
	for _, s := range all {
		slices = append(slices, *s)
	}
	uuid := dynamic.of(0)[0].UUID
	has := func(places ...place) error {
		var claims []resourcev1.ResourceClaim
		for _, p := range places {
			c := resourcev1.ResourceClaim{}
			c.Status.Allocation = &resourcev1.AllocationResult{}
			c.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{
				Driver: v1alpha1.Driver, Pool: nodeName(0), Device: pool.InstanceName(uuid, p.profile, p.start),
			}}
			claims = append(claims, c)
		}
		return overdrawn(slices, claims)
	}
	if err := has(place{"3g.40gb", 0}, place{"3g.40gb", 4}); err != nil {
		t.Error(err)
	}
	for want, places := range map[string][]place{
		"memory-slice-0":  {{"3g.40gb", 0}, {"1g.10gb", 0}},
		"compute-slices":  {{"4g.40gb", 0}, {"4g.40gb", 0}},
		"ofa-engines":     {{"1g.10gb+me", 0}, {"1g.10gb+me", 1}},
		"memory-slice-6 ": {{"3g.40gb", 4}, {"1g.20gb", 6}},
	} {
		if err := has(places...); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v: %v, want %s", places, err, want)
		}
	}
}

// The scheduler that comes with Kubernetes fills GPUs in MIG mode with what fits, and nothing more.
func TestStockSchedulerFillsInstances(t *testing.T) {
	if _, err := plane.Components(checkout); err != nil {
		installtest.Missing(t, "kubernetes", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	b, err := open(ctx, options{root: checkout}, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	fixed, dynamic := divisions(t)
	const gpus = 16
	for _, step := range []struct {
		name, profile string
		gpus          inventory // nil for what the step before left
		fit           int
		last          bool
	}{
		{"fixed-3g", "3g.40gb", fixed, gpus, true},
		{"dynamic-1g", "1g.10gb", dynamic, 7 * gpus, true},
		{"dynamic-3g", "3g.40gb", dynamic, 2 * gpus, false}, {"beside-3g", "1g.10gb", nil, 0, true},
	} {
		if step.gpus != nil {
			b.inventory = step.gpus
			if err := b.publish(ctx); err != nil {
				t.Fatal(err)
			}
		}
		more := step.fit + 3
		o, err := b.round(ctx, more, 2*time.Minute, func(bound, waiting int) bool {
			return bound == step.fit && waiting == more-step.fit || bound > step.fit
		}, instancePods(step.name, step.profile))
		if err != nil {
			t.Fatal(err)
		}
		if o.bound != step.fit || o.waiting != more-step.fit {
			t.Errorf("%s: %d pods are bound, %d wait, %d are neither; want %d", step.name, o.bound, o.waiting, o.rest, step.fit)
		}
		if err := b.check(ctx); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if !step.last {
			continue
		}
		if err := b.clear(ctx); err != nil {
			t.Fatal(err)
		}
		if err := b.withdraw(ctx, v1alpha1.Driver); err != nil {
			t.Fatal(err)
		}
	}
}
