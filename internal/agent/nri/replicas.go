package nri

import (
	"fmt"

	"github.com/containerd/nri/pkg/api"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
)

// replicasOf is what the agent's device plugin gave a container, "" if nothing.
func replicasOf(container *api.Container) string {
	return container.GetAnnotations()[v1alpha1.ReplicasAnnotation]
}

// errOwn is the answer for a pod that says itself what its containers were given. CRI-O shows the annotations of a pod at
// each of its containers, and containerd does where its pod_annotations say so: there nothing tells them from the device
// plugin's.
var errOwn = fmt.Errorf("annotation %s is written by Divvy: leave it out of the pod", v1alpha1.ReplicasAnnotation)

// withReplicas puts a container's replicas into it, as CreateContainer does with assigned shares.
func (p *plugin) withReplicas(sandbox *api.PodSandbox, container *api.Container) (agent.Tenancy, error) {
	if _, own := sandbox.GetAnnotations()[v1alpha1.ReplicasAnnotation]; own {
		return agent.Tenancy{}, errOwn
	}
	if err := p.enforceable(sandbox); err != nil {
		return agent.Tenancy{}, err
	}
	given, err := v1alpha1.ParseReplicas(replicasOf(container))
	if err != nil {
		return agent.Tenancy{}, err
	}
	shares, err := replicaShares(given, p.capacity)
	if err != nil {
		return agent.Tenancy{}, err
	}
	p.enter(sandbox, p.isNew(sandbox))
	p.begin(sandbox.GetUid(), container.GetId())
	return agent.Tenancy{
		Key: agent.PodKey(sandbox.GetUid(), container.GetName()), Name: podName(sandbox) + "/" + container.GetName(),
		Namespace: sandbox.GetNamespace(), Pods: []string{sandbox.GetName()}, Container: container.GetName(), Shares: shares,
	}, nil
}

// replicaShares makes a share of the replicas on each GPU, or on an instance: of n of N replicas n/N of the memory and,
// with backend mps, of the SMs. It is pure.
func replicaShares(given []v1alpha1.Replica, capacity func(uuid string) uint64) ([]agent.TenancyShare, error) {
	var shares []agent.TenancyShare
	counts, at := map[string]int{}, map[string]int{}
	for _, r := range given {
		if counts[r.UUID]++; counts[r.UUID] == 1 {
			at[r.UUID] = len(shares)
			shares = append(shares, beginShare(r))
		}
		if r.Of == 0 {
			continue
		}
		share, n := &shares[at[r.UUID]], counts[r.UUID]
		total := r.Memory
		if r.Instance == "" {
			total = capacity(r.UUID)
		}
		if total == 0 {
			return nil, fmt.Errorf("GPU %s is not here any more: delete the pod", r.UUID)
		}
		share.Memory = v1alpha1.PartOf(uint64(n), uint64(r.Of)).Of(total)
		if r.Backend == v1alpha1.BackendMPS && r.Of > 1 {
			share.Cores = n * 100 / r.Of
		}
	}
	return shares, nil
}

// beginShare is the share of which a replica is the first: all of a GPU or of an instance, unless it is a part.
func beginShare(r v1alpha1.Replica) agent.TenancyShare {
	share := agent.TenancyShare{UUID: r.UUID, Whole: r.Of == 0, Config: v1alpha1.ShareConfig{Backend: r.Backend}}
	if r.Instance == "" {
		return share
	}
	share.Instance = &agent.TenancyInstance{Profile: r.Profile, Start: r.Start}
	if share.Whole {
		share.Whole, share.Memory, share.Config.Backend = false, r.Memory, v1alpha1.BackendMIG
	}
	return share
}

// isNew reports whether a sandbox began since the runtime was connected: only of these it tells the end.
func (p *plugin) isNew(sandbox *api.PodSandbox) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.began[sandbox.GetId()]
}

// noteBegin remembers a sandbox of a pod of which nothing says yet whether a device plugin gives it anything.
func (p *plugin) noteBegin(sandbox *api.PodSandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began == nil {
		p.began = map[string]bool{}
	}
	p.began[sandbox.GetId()] = true
}

func (p *plugin) forgetBegin(sandbox *api.PodSandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.began, sandbox.GetId())
}

// asking returns which of the sandboxes are of pods that have shares, by their annotations or by those of containers.
func asking(containers []*api.Container) func(*api.PodSandbox) bool {
	given := map[string]bool{}
	for _, c := range containers {
		if replicasOf(c) != "" {
			given[c.GetPodSandboxId()] = true
		}
	}
	return func(s *api.PodSandbox) bool { return asks(s) || given[s.GetId()] }
}
