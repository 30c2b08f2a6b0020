package kube

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// quarters is how a GPU of four memory slices is divided into these instances, by profile and start.
func quarters(parts ...backend.Part) backend.Division {
	d := backend.Division{On: true, Parts: parts}
	for i, size := range []int{1, 2, 4} {
		starts := []int{}
		for at := 0; at < 4; at += size {
			starts = append(starts, at)
		}
		name := []string{"1g.6gb", "2g.12gb", "4g.24gb"}[i]
		d.Profiles = append(d.Profiles, layouts.Profile{Name: name, Size: size, Starts: starts, Takes: layouts.Amounts{layouts.ComputeSlices: uint8(size)}})
		d.Sizes = append(d.Sizes, backend.Instance{Profile: name, Size: size, Bytes: uint64(size) * 6 << 30, Multiprocessors: 14 * size})
	}
	return d
}

func quarter(profile string, start int, origin backend.Origin) backend.Part {
	size := map[string]int{"1g.6gb": 1, "2g.12gb": 2, "4g.24gb": 4}[profile]
	return backend.Part{Origin: origin, Instance: backend.Instance{
		UUID: "MIG-" + profile + string(rune('0'+start)), Parent: formed, Profile: profile, Start: start, Size: size,
	}}
}

func nameOf(profile string, start int) string { return pool.InstanceName(formed, profile, start) }

// publishInstances writes the GPU's devices as the agent's driver does.
func (c *formCluster) publishInstances() {
	c.t.Helper()
	now, _ := c.get()
	p := &publisher{divider: c.giver, order: order{now: time.Now}}
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	gpus := shape([]pool.GPU{{UUID: formed, Memory: 24 << 30}}, now)
	p.divide(ctx, gpus, now)
	resources, err := pool.Resources("n1", gpus)
	if err != nil {
		c.t.Fatal(err)
	}
	var devices []resourcev1.Device
	for _, slice := range resources.Pools["n1"].Slices {
		devices = append(devices, slice.Devices...)
	}
	c.put("resourceslices", &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: v1alpha1.Driver, NodeName: ptr.To("n1"), Devices: devices,
	}})
}

// claimInstance has a claim with an instance, or none.
func (c *formCluster) claimInstance(device string) {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}}
	if device != "" {
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Driver: v1alpha1.Driver, Pool: "n1", Device: device},
		}}}
	}
	c.put("resourceclaims", claim)
}

// A GPU that comes into MIG mode is withdrawn until no claim has it, and then has its instances as devices.
func TestGPUComesIntoMIGMode(t *testing.T) {
	c := newFormCluster(t)
	c.looks("it has shares", published{form: pool.Shared})
	c.publish()
	c.claim(pool.Shared, false)
	c.division = quarters(quarter("2g.12gb", 0, backend.OriginLayout))
	c.looks("a claim has it", published{form: pool.Shared, next: pool.MIG})
	c.claim("", false)
	c.looks("nobody has it", published{form: pool.Shared, next: pool.MIG, withdrawn: true})
	c.publish()
	want := published{form: pool.MIG, devices: nameOf("2g.12gb", 0)}
	c.looks("it is withdrawn", want)
	c.publishInstances()
	c.restart()
	c.looks("another agent", want)
	c.claimInstance(nameOf("2g.12gb", 0))
	c.division = backend.Division{}
	c.looks("the mode has ended under a claim", published{form: pool.MIG, next: pool.Shared, devices: want.devices})
}

// Instances that go are withdrawn, and what is in their stead waits until nobody can have them.
func TestLayoutChanges(t *testing.T) {
	c := newFormCluster(t)
	c.division = quarters(quarter("1g.6gb", 0, backend.OriginLayout), quarter("1g.6gb", 3, backend.OriginForeign))
	c.look(t.Context(), nil)
	c.publish()
	first := listOf([]string{nameOf("1g.6gb", 0), nameOf("1g.6gb", 3)})
	c.looks("two instances", published{form: pool.MIG, devices: first})
	c.publishInstances()
	c.claimInstance(nameOf("1g.6gb", 0))
	c.division = quarters(quarter("2g.12gb", 0, backend.OriginLayout), quarter("1g.6gb", 2, backend.OriginLayout), quarter("1g.6gb", 3, backend.OriginForeign))
	rest := listOf([]string{nameOf("1g.6gb", 2), nameOf("1g.6gb", 3)})
	waits := published{form: pool.MIG, devices: rest, departing: nameOf("1g.6gb", 0)}
	c.looks("another layout, and a claim has an instance of the one before", waits)
	c.publishInstances()
	c.looks("it is withdrawn, and the claim has it", waits)
	c.claimInstance("")
	last := published{form: pool.MIG, devices: listOf([]string{nameOf("1g.6gb", 2), nameOf("1g.6gb", 3), nameOf("2g.12gb", 0)})}
	c.looks("nobody has it", last)
}

// Offered are instances that stay and that claims have, and neither halves nor what a host's shares have.
func TestOfferedInstances(t *testing.T) {
	half := quarter("1g.6gb", 3, backend.OriginForeign)
	half.Half = "it has no compute instance"
	c := newFormCluster(t)
	c.division = quarters(quarter("1g.6gb", 0, backend.OriginShare), quarter("1g.6gb", 1, backend.OriginLayout), quarter("1g.6gb", 2, backend.OriginLayout), half)
	c.uses = []agent.InstanceUse{{GPU: formed, Profile: "1g.6gb", Start: 0, Claim: true}, {GPU: formed, Profile: "1g.6gb", Start: 1}}
	c.look(t.Context(), nil)
	c.publish()
	c.looks("some are in use", published{form: pool.MIG, devices: listOf([]string{nameOf("1g.6gb", 0), nameOf("1g.6gb", 2)})})
	now, _ := c.get()
	c.uses[0].Gone = true
	d := divided(&c.division, formed, now[formed], usesOf(c.uses, formed))
	if len(d.Instances) != 2 || d.Instances[0].Fault == nil || !d.Instances[0].Fault.Lost || d.Instances[1].Fault != nil {
		t.Errorf("published are %+v", d.Instances)
	}
	if d.Instances[1].UUID != "MIG-1g.6gb2" || d.Instances[1].Memory != 6<<30 || d.Multiprocessors != 56 {
		t.Errorf("%+v of %d", d.Instances[1], d.Multiprocessors)
	}
}

// With a layout that may change all places are published, but for what the scheduler does not know of.
func TestDynamicLayout(t *testing.T) {
	c := newFormCluster(t)
	c.given, c.layout = v1alpha1.BackendMIG, agentconfig.LayoutDynamic
	c.division = quarters(quarter("1g.6gb", 0, backend.OriginForeign), quarter("1g.6gb", 1, backend.OriginShare), quarter("1g.6gb", 2, backend.OriginShare))
	c.uses = []agent.InstanceUse{{GPU: formed, Profile: "1g.6gb", Start: 1}, {GPU: formed, Profile: "1g.6gb", Start: 2, Claim: true}}
	given, _ := c.Given()
	if _, err := c.look(t.Context(), given); err != nil {
		t.Fatal(err)
	}
	c.publish()
	if _, err := c.look(t.Context(), given); err != nil {
		t.Fatal(err)
	}
	now, _ := c.get()
	if !now[formed].dynamic || now[formed].waits() {
		t.Fatalf("%+v", now[formed])
	}
	d := divided(&c.division, formed, now[formed], usesOf(c.uses, formed))
	var names, stay []string
	for _, i := range d.Instances {
		names = append(names, nameOf(i.Profile, i.Start))
		if i.Stays {
			stay = append(stay, nameOf(i.Profile, i.Start))
		}
	}
	// The host's share has 1g at 1. The foreign instance stays, and a claim's own counts by its allocation.
	if want := []string{nameOf("1g.6gb", 0)}; !slices.Equal(stay, want) {
		t.Errorf("%v stay, want %v", stay, want)
	}
	if slices.Contains(names, nameOf("1g.6gb", 1)) || len(names) != 6 || d.Taken != 0b0011 || d.Used[layouts.ComputeSlices] != 2 {
		t.Errorf("%v are published beside %04b, %v", names, d.Taken, d.Used)
	}
}

// Claims cannot have an instance that a share of the host has, nor the place where one is about to be made for it.
func TestHostKeepsInstances(t *testing.T) {
	for name, c := range map[string]struct {
		parts []backend.Part
	}{
		"of a layout":  {[]backend.Part{quarter("2g.12gb", 0, backend.OriginLayout)}},
		"foreign":      {[]backend.Part{quarter("2g.12gb", 0, backend.OriginForeign)}},
		"not yet made": {nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := quarters(c.parts...)
			uses := usesOf([]agent.InstanceUse{{GPU: formed, Profile: "2g.12gb", Start: 0}}, formed)
			got := divided(&d, formed, published{form: pool.MIG, dynamic: true}, uses)
			for _, i := range got.Instances {
				if i.Stays || i.Profile == "2g.12gb" && i.Start == 0 {
					t.Errorf("%s at %d is published, and stays: %t", i.Profile, i.Start, i.Stays)
				}
			}
			if len(got.Instances) != 6 || got.Taken != 0b0011 || got.Used[layouts.ComputeSlices] != 2 {
				t.Errorf("%d devices beside %04b, %v", len(got.Instances), got.Taken, got.Used)
			}
		})
	}
}

// Another order is told at most once a second, and in the end.
func TestOrderIsToldSeldom(t *testing.T) {
	now := time.Unix(1, 0)
	o := order{now: func() time.Time { return now }}
	for _, step := range []struct {
		after time.Duration
		rank  int
		told  int
		due   time.Duration
	}{{0, 1, 1, 0}, {time.Second / 4, 2, 1, 3 * time.Second / 4}, {time.Second / 4, 3, 1, time.Second / 2}, {0, 1, 1, 0}, {time.Second / 2, 3, 3, 0}, {time.Hour, 4, 4, 0}} {
		now = now.Add(step.after)
		ranks, due := o.get(map[string]int{"a": step.rank})
		if !maps.Equal(ranks, map[string]int{"a": step.told}) || due != step.due {
			t.Errorf("%v, due after %s, want %+v", ranks, due, step)
		}
	}
}
