package nri

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/divvy-gpu/divvy/internal/agent"
)

// adoptReplicas tells the agent which shares belong to containers that a device plugin gave replicas.
func (p *plugin) adoptReplicas(ctx context.Context, sandboxes []*api.PodSandbox, containers []*api.Container) {
	pods := make(map[string]*api.PodSandbox)
	for _, s := range sandboxes {
		pods[s.GetId()] = s
	}
	for _, c := range containers {
		if s := pods[c.GetPodSandboxId()]; s != nil && !asks(s) && replicasOf(c) != "" {
			p.tenants.Adopt(ctx, agent.PodKey(s.GetUid(), c.GetName()))
		}
	}
}
