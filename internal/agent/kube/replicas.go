package kube

import (
	"context"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/internal/agent/deviceplugin"
	"github.com/divvy-gpu/divvy/internal/agent/metrics"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/pluginfile"
)

// newPolicy makes the policy of the node, whose faults become events of the node until ctx is done.
func (k *node) newPolicy(ctx context.Context) *policy {
	var gpus []pluginfile.GPU
	for _, gpu := range k.publisher.gpus {
		gpus = append(gpus, pluginfile.GPU{Index: gpu.Index, UUID: gpu.UUID})
	}
	p := newPolicy(os.DirFS(k.options.DevicePluginConfigs), k.options.Client.CoreV1().Nodes(), k.options.Node, gpus, k.Log)
	p.used = func() map[string]bool { return placesOf(k.Agent.Tenancies()) }
	p.divisions = divisionsOf(k.Agent, gpus)
	tell := k.events(ctx)
	p.told = func(reason, text string) {
		k.metrics.Failed(metrics.OperationLabel)
		tell(corev1.EventTypeWarning, reason, "Configure", text)
	}
	return p
}

// divider tells how GPUs are divided by MIG.
type divider interface {
	// Division is how a GPU is divided, and a channel that is closed when that may be otherwise. Unknown says why it could
	// not be read, and the division is then that which was read last.
	Division(uuid string) (d backend.Division, unknown string, changed <-chan struct{})
}

// divisionsOf are those of a node's GPUs.
func divisionsOf(from divider, gpus []pluginfile.GPU) divisions {
	return func() (found map[string]backend.Division, changed <-chan struct{}) {
		found = map[string]backend.Division{}
		for _, gpu := range gpus {
			d, _, next := from.Division(gpu.UUID)
			if found[gpu.UUID] = d; changed == nil {
				changed = next // the first question's, which misses no later change
			}
		}
		return found, changed
	}
}

// capacity is what a GPU has for tenants, in bytes, 0 if it is not here.
func (p *publisher) capacity(uuid string) uint64 {
	for _, gpu := range p.gpus {
		if gpu.UUID == uuid {
			return gpu.Capacity()
		}
	}
	return 0
}

// replicas counts what the policy makes of the GPUs.
func (k *node) replicas(guard deviceplugin.Guard) *deviceplugin.Replicas {
	return &deviceplugin.Replicas{
		Dir: k.devicePlugins(), Guard: guard, Given: k.policy.gave, Packed: k.policy.packed, Log: k.Log,
		Resources: []string{pluginfile.GPUResource, pluginfile.SharedResource},
		Units: func() (units []deviceplugin.Unit, divided, sick <-chan struct{}) {
			faults, sick := k.Health.Faults()
			units, divided = k.policy.units(faults)
			for _, gpu := range k.publisher.gpus {
				if k.publisher.machines.has(gpu) {
					units = slices.DeleteFunc(units, func(u deviceplugin.Unit) bool { return u.UUID == gpu.UUID })
				}
			}
			return units, divided, sick
		},
	}
}
