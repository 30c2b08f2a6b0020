package program

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// plugin stands in DynamicResources' place. What is not Divvy's goes through to it.
type plugin struct {
	*dynamicresources.DynamicResources
	handle fwk.Handle
}

// newPlugin makes Divvy's plugin around that of Kubernetes, with its default arguments.
func newPlugin(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	if unknown, ok := args.(*runtime.Unknown); args != nil && (!ok || len(unknown.Raw) > 0) {
		return nil, fmt.Errorf("plugin %s takes no arguments", PluginName)
	}
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	for _, known := range defaults.Profiles[0].PluginConfig {
		if known.Name != names.DynamicResources {
			continue
		}
		made, err := dynamicresources.New(ctx, known.Args, handle, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
		if err != nil {
			return nil, fmt.Errorf("make Kubernetes' plugin %s: %w", names.DynamicResources, err)
		}
		wrapped, ok := made.(*dynamicresources.DynamicResources)
		if !ok {
			return nil, fmt.Errorf("plugin %s of Kubernetes is a %T", names.DynamicResources, made)
		}
		return &plugin{DynamicResources: wrapped, handle: handle}, nil
	}
	return nil, errors.New("default profile of Kubernetes has no arguments for " + names.DynamicResources)
}

// Name implements fwk.Plugin.
func (p *plugin) Name() string { return PluginName }
