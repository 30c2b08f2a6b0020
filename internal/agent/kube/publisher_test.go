package kube

import (
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
		if len(names) != 2 || !names[pool.Name(uuid, pool.Shared)] || !names[pool.Name(uuid, pool.Whole)] {
			t.Errorf("published are %v", names)
		}
	}
}
