package kube

import (
	"context"
	"errors"
	"path/filepath"

	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/deviceplugin"
	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/agent/metrics"
	"github.com/divvy-gpu/divvy/internal/agent/nri"
)

// serveClaims serves the kubelet as a DRA driver.
func (k *node) serveClaims(ctx context.Context) error {
	defaults := newDefaults(k.options.Defaults, k.options.Client.CoreV1().Nodes(), k.options.Node, k.Log)
	defaults.failed = func() { k.metrics.Failed(metrics.OperationLabel) }
	driver := dra.New(dra.Config{
		Node: k.options.Node, Client: k.options.Client, Tenants: k.Agent, Metrics: k.metrics, Log: k.Log, Step: k.Step,
		PluginDir:   filepath.Join(k.options.KubeletDir, "plugins", v1alpha1.Driver),
		RegistryDir: filepath.Join(k.options.KubeletDir, "plugins_registry"),
		Pool: func(ctx context.Context) (resourceslice.DriverResources, <-chan struct{}, error) {
			return k.publisher.claims(ctx, k.options.Node, defaults)
		},
		Defaults: func() (v1alpha1.NodeDefaults, error) {
			now, _, err := defaults.get()
			return now, err
		},
	})
	k.setReady(driver.Ready)
	return k.together(ctx, defaults.run, driver.Run)
}

// errSlotDefaults ends an agent that has defaults in mode slots, where the webhook completes every request.
var errSlotDefaults = errors.New("--default-policy and --default-cores need mode claims, Kubernetes 1.36 and later: leave them out")

// serveSlots serves the kubelet as a device plugin, and the runtime through NRI.
func (k *node) serveSlots(ctx context.Context) error {
	if k.options.Defaults != (v1alpha1.NodeDefaults{}) {
		return errSlotDefaults
	}
	plugin := nri.New(nri.Config{Tenants: k.Agent, Probe: nri.Probe(k.options.RuntimeEndpoint, k.options.PodUID), Log: k.Log})
	k.setReady(func() error { return nil })
	return k.together(ctx, plugin.Run, func(ctx context.Context) error {
		return deviceplugin.Run(ctx, deviceplugin.Config{
			Dir: filepath.Join(k.options.KubeletDir, "device-plugins"), Guard: plugin.Guard(), GPUs: k.publisher.slots,
			Nodes: k.options.Client.CoreV1().Nodes(), Node: k.options.Node, Log: k.Log,
		})
	})
}
