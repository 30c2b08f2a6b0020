package kube

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/deviceplugin"
	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/agent/metrics"
	"github.com/divvy-gpu/divvy/internal/agent/nri"
	"github.com/divvy-gpu/divvy/internal/pluginfile"
)

// serveClaims serves the kubelet as a DRA driver.
func (k *node) serveClaims(ctx context.Context) error {
	defaults := newDefaults(k.options.Defaults, k.options.Client.CoreV1().Nodes(), k.options.Node, k.Log)
	defaults.failed = func() { k.metrics.Failed(metrics.OperationLabel) }
	handed := filepath.Join(k.Dir, "machine-claims.json")
	k.publisher.machines = k.machines(false, handed)
	remote := newRemotePool(k.options.Node, k.options.Client, k.Log)
	remote.failed = func() { k.metrics.Failed(metrics.OperationPublish) }
	pooled := newPooled(ctx, k.givers(ctx), k.options.Pool, k.options.Node, remote, k.Log)
	k.publisher.pooled, defaults.seen = pooled, pooled.saw
	k.publisher.forms = newForms(k.options.Node, k.options.Client, pooled, k.Log)
	k.publisher.forms.functionOf = k.publisher.gpuOf
	follow := k.Agent.Follow
	if k.options.Quiet {
		follow = nil
	}
	config := dra.Config{
		Node: k.options.Node, Client: k.options.Client, Tenants: k.Agent, Suspender: k.Agent, Metrics: k.metrics, Log: k.Log, Step: k.Step,
		Machines: k.publisher.machines.given(), Handed: handed,
		Follow: follow, Kernels: k.options.Kernels, Opener: k.Agent, Openings: filepath.Join(k.Dir, "admin-access.json"),
		PluginDir:   filepath.Join(k.options.KubeletDir, "plugins", v1alpha1.Driver),
		RegistryDir: filepath.Join(k.options.KubeletDir, "plugins_registry"),
		Pool: func(ctx context.Context) (resourceslice.DriverResources, <-chan struct{}, error) {
			return k.publisher.claims(ctx, k.options.Node, defaults)
		},
		Defaults: func() (v1alpha1.NodeDefaults, error) {
			now, _, err := defaults.get()
			return now, err
		},
		Remote: filepath.Join(k.Dir, remoteClaims), Attached: filepath.Join(k.Dir, "nics.json"), Reserver: k.Agent,
	}
	if k.publisher.cards = k.newCards(ctx); k.publisher.cards != nil {
		config.Cards = k.publisher.cards
	}
	reached, err := k.reached()
	if err != nil {
		return err
	}
	if reached != nil {
		config.Remotes = reached
	}
	driver := dra.New(config)
	k.setReady(driver.Ready)
	all := []func(context.Context) error{defaults.run, driver.Run, k.serveLeftSlots, remote.run, func(ctx context.Context) error {
		pooled.await(ctx) // which node it is says what its GPUs are given
		return k.publisher.forms.run(ctx)
	}}
	if reached != nil {
		all = append(all, reached.Run)
	}
	if k.policy != nil {
		all = append(all, k.policy.run)
	}
	if k.publisher.machines != nil {
		all = append(all, k.publisher.machines.run)
	}
	if left := leftSlots(k.Agent, k.Log); left != nil {
		all = append(all, left.run)
	}
	if k.publisher.cards != nil {
		all = append(all, k.publisher.cards.run)
	}
	return k.together(ctx, all...)
}

// newCards looks at the node's RDMA cards, nil where they are left to others or it is not known where they would be.
func (k *node) newCards(ctx context.Context) *cards {
	if k.publisher.root == nil {
		return nil
	}
	return newCards(ctx, cardConfig{
		root: k.publisher.root, nodes: k.publisher.nodes, nics: k.Rules.NICs(), cover: k.Cover, ask: askOthers(k.options.Client, k.options.Node),
		note: k.Agent.NoteFault, clock: time.Now, log: k.Log,
	})
}

// leftInterval is the time between two looks whether shares of slots are left.
const leftInterval = time.Minute

// serveLeftSlots serves the container runtime and the kubelet in mode claims while there are pods that got their shares
// by slots, before the node was upgraded: their containers may start again, and their shares end with them. No new ones
// come, because no slots are advertised.
func (k *node) serveLeftSlots(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !slotsLeft(k.Agent.Tenancies()) {
		return nil
	}
	k.Log.InfoContext(ctx, "shares of slots are left: serving the container runtime until they have ended")
	go func() {
		ticker := time.NewTicker(leftInterval)
		defer ticker.Stop()
		for slotsLeft(k.Agent.Tenancies()) {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	plugin := nri.New(nri.Config{Tenants: k.Agent, Kernels: k.options.Kernels, Capacity: k.publisher.capacity, Log: k.Log})
	// Where one of the two fails, shares end all the same, see package dra.
	warned := func(run func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := run(ctx); err != nil {
				k.Log.WarnContext(ctx, "containers with slots cannot start again on this node", "error", err)
			}
			return nil
		}
	}
	return k.together(ctx, warned(plugin.Run), warned(func(ctx context.Context) error {
		return deviceplugin.Keep(ctx, k.devicePlugins(), k.Log)
	}), warned(func(ctx context.Context) error {
		if k.policy == nil {
			return nil
		}
		return deviceplugin.KeepReplicas(ctx, k.devicePlugins(), replicasLeft(k.Agent.Tenancies()), k.Log)
	}))
}

// replicasLeft are the names under which pods may have got shares by slots on a node with a configuration of NVIDIA's
// device plugin.
func replicasLeft(tenancies []agent.Tenancy) []string {
	names := []string{pluginfile.GPUResource, pluginfile.SharedResource}
	for _, t := range tenancies {
		for _, s := range t.Shares {
			if s.Instance == nil || isClaims(t) {
				continue
			}
			name := pluginfile.MIGResource(s.Instance.Profile)
			if s.Config.Backend != v1alpha1.BackendMIG {
				names = append(names, name+pluginfile.SharedSuffix) // a replica may have had either name
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// devicePlugins is the kubelet's folder for them.
func (k *node) devicePlugins() string { return filepath.Join(k.options.KubeletDir, "device-plugins") }

// slotsLeft reports whether a tenancy is a pod's by slots, or may be.
func slotsLeft(tenancies []agent.Tenancy) bool {
	return slices.ContainsFunc(tenancies, func(t agent.Tenancy) bool { return !isClaims(t) })
}

// errSlotDefaults ends an agent that has defaults in mode slots, where the webhook completes every request.
var errSlotDefaults = errors.New("--default-policy and --default-cores need mode claims, Kubernetes 1.36 and later: leave them out")

// errSlotPool ends an agent whose GPUs other nodes are to reach in mode slots.
var errSlotPool = errors.New("--pool needs mode claims, Kubernetes 1.36 and later: leave it out")

// serveSlots serves the kubelet as a device plugin, and the runtime through NRI.
func (k *node) serveSlots(ctx context.Context) error {
	if k.options.Defaults != (v1alpha1.NodeDefaults{}) {
		return errSlotDefaults
	}
	if len(k.options.Pool.GPUs) > 0 {
		return errSlotPool
	}
	plugin := nri.New(nri.Config{Tenants: k.Agent, Kernels: k.options.Kernels, Capacity: k.publisher.capacity, Log: k.Log})
	k.setReady(func() error { return nil })
	k.publisher.machines = k.machines(true, "")
	all := []func(context.Context) error{plugin.Run, func(ctx context.Context) error {
		tellSlotless(ctx, plugin.Guard(), k.events(ctx))
		return nil
	}}
	if m := k.publisher.machines; m != nil {
		counted := &deviceplugin.Machines{Dir: k.devicePlugins(), Units: m.units, Give: m.giveSlot, Log: k.Log}
		all = append(all, m.run, counted.Run)
	} else if left := leftSlots(k.Agent, k.Log); left != nil {
		all = append(all, left.run)
	}
	if k.policy != nil {
		return k.together(ctx, append(all, k.policy.run, k.replicas(plugin.Guard()).Run, func(ctx context.Context) error {
			return deviceplugin.Keep(ctx, k.devicePlugins(), k.Log) // for containers with slots, which were there before
		})...)
	}
	return k.together(ctx, append(all, func(ctx context.Context) error {
		return deviceplugin.Run(ctx, deviceplugin.Config{
			Dir: k.devicePlugins(), Guard: plugin.Guard(), GPUs: k.publisher.slots, Held: k.Agent.Held,
			Nodes: k.options.Client.CoreV1().Nodes(), Node: k.options.Node, Log: k.Log,
		})
	})...)
}
