package nri

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/divvy-gpu/divvy/internal/agent"
)

// reportBare logs which containers run without the share that they asked for. The
// runtime makes such a container, which has no GPU, if the agent dies while asked.
func (p *plugin) reportBare(sandboxes []*api.PodSandbox, containers []*api.Container) {
	held := make(map[string]bool)
	for _, t := range p.tenants.Tenancies() {
		held[t.Key] = true
	}
	pods := make(map[string]*api.PodSandbox)
	for _, s := range sandboxes {
		pods[s.GetId()] = s
	}
	for _, c := range containers {
		sandbox := pods[c.GetPodSandboxId()]
		if sandbox != nil && !asks(sandbox) && replicasOf(c) != "" && !held[agent.PodKey(sandbox.GetUid(), c.GetName())] {
			p.log.Error("container runs without its replicas: delete its pod", "pod", podName(sandbox), "container", c.GetName())
		}
		if !asks(sandbox) {
			continue
		}
		d, err := decide(sandbox)
		if err != nil {
			continue // and it has no share, or was none of ours to give
		}
		if asked := d.request.ShareOf(c.GetName()); asked != nil && !held[agent.PodKey(sandbox.GetUid(), asked.Name)] {
			p.log.Error("container runs without its share: delete its pod", "pod", podName(sandbox), "container", c.GetName())
		}
	}
}

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
