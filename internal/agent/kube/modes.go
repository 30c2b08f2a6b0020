package kube

import (
	"context"
	"path/filepath"

	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/divvy-gpu/divvy/internal/agent/deviceplugin"
	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agent/nri"
)

// serveClaims serves the kubelet as a DRA driver.
func (k *node) serveClaims(ctx context.Context) error {
	driver := dra.New(dra.Config{
		Node: k.options.Node, Client: k.options.Client, Tenants: k.Agent, Metrics: k.metrics, Log: k.Log, Step: k.Step,
		PluginDir:   filepath.Join(k.options.KubeletDir, "plugins", pool.Driver),
		RegistryDir: filepath.Join(k.options.KubeletDir, "plugins_registry"),
		Pool: func() (resourceslice.DriverResources, <-chan struct{}, error) {
			return k.offer.resources(k.options.Node)
		},
	})
	k.setReady(driver.Ready)
	return driver.Run(ctx)
}

// serveSlots serves the kubelet as a device plugin, and the runtime through NRI.
func (k *node) serveSlots(ctx context.Context) error {
	plugin := nri.New(nri.Config{Tenants: k.Agent, Probe: nri.Probe(k.options.RuntimeEndpoint, k.options.PodUID), Log: k.Log})
	k.setReady(func() error { return nil })
	return k.together(ctx, plugin.Run, func(ctx context.Context) error {
		return deviceplugin.Run(ctx, deviceplugin.Config{
			Dir: filepath.Join(k.options.KubeletDir, "device-plugins"), Guard: plugin.Guard(), GPUs: k.offer.slots,
			Nodes: k.options.Client.CoreV1().Nodes(), Node: k.options.Node, Log: k.Log,
		})
	})
}
