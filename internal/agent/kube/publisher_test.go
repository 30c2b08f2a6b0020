package kube

import (
	"context"
	"maps"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// A GPU that was lost before the agent started is published so that its pods are
// evicted, with every attribute that others have always.
func TestAbsentGPUsEvictTheirPods(t *testing.T) {
	const uuid = "GPU-00000000-0000-4000-8000-000000000009"
	o := &publisher{Node: daemon.Node{Library: &nvml.Library{}}}
	for _, held := range []uint64{0, 5 << 30} {
		resources, err := pool.Resources("n1", o.absent(map[string]uint64{uuid: held}))
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, slice := range resources.Pools["n1"].Slices {
			for _, device := range slice.Devices {
				names[device.Name] = true
				if len(device.Taints) != 1 || device.Taints[0].Effect != resourcev1.DeviceTaintEffectNoExecute {
					t.Errorf("%s has the taints %v", device.Name, device.Taints)
				}
				for _, attribute := range []resourcev1.QualifiedName{"uuid", "form", "index", "model"} {
					if _, ok := device.Attributes[attribute]; !ok {
						t.Errorf("%s has no attribute %s", device.Name, attribute)
					}
				}
			}
		}
		if len(names) != 1 || !names[pool.Name(uuid, pool.Shared)] {
			t.Errorf("published are %v", names)
		}
	}
}

// Slices are written again when another GPU is taken as a whole, and not whenever a share comes or goes.
func TestUntilOther(t *testing.T) {
	type state struct {
		counted map[string]uint64
		changed chan struct{}
	}
	states := make(chan state, 1)
	ask := func() (map[string]uint64, <-chan struct{}) { s := <-states; return s.counted, s.changed }
	first := state{map[string]uint64{"a": 0}, make(chan struct{})}
	states <- first
	got, changed := untilOther(t.Context(), ask)
	if !maps.Equal(got, first.counted) {
		t.Errorf("%v", got)
	}
	for range 3 { // it asks again each time, and finds the same
		same := state{map[string]uint64{"a": 0}, make(chan struct{})}
		close(first.changed)
		states <- same
		first = same
	}
	select {
	case <-changed:
		t.Error("the same is told as a change")
	default:
	}
	close(first.changed)
	states <- state{map[string]uint64{"a": 16 << 30}, nil}
	<-changed

	ctx, cancel := context.WithCancel(t.Context())
	states <- state{}
	_, changed = untilOther(ctx, ask)
	cancel()
	<-changed
}
