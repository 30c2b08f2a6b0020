// Package nri puts shares into containers by way of the container runtime's
// Node Resource Interface, for clusters whose scheduler counts slots: what a
// container gets follows from its pod's UID and its own name, never from what
// the device plugin was asked.
//
// A share lives as long as its pod has a running sandbox, because the pod keeps its
// slots that long: a container that restarts finds its share again. A sandbox stops
// after its containers. A runtime that was restarted reports no end of the sandboxes
// that it found running (containerd 2.3 keeps only in memory which it has reported),
// but it reports the ends of their containers: the shares of such a pod end with its
// last container, and are made again for the next.
//
// A container with a slot has a mount that no runtime can make ([v1alpha1.Stopper]), and
// the plugin takes it out together with putting the share in. So a container that is made
// while the plugin is away, or dies while it is asked, does not start.
//
// The runtime holds a lock of its own while it waits for an answer, drops a
// plugin that takes longer than its timeout (2 s unless configured), and then
// makes the container without it. So no hook does slow work: shares are prepared
// in the background from the start of the sandbox on, and CreateContainer waits
// for them at most half of the runtime's timeout and then refuses, after which the
// kubelet tries again.
//
// Locks: plugin.mu guards the pods and is held for a moment only; pod.work orders
// what is done to the shares of one pod and is taken before it.
package nri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// Tenants is the part of the agent that makes shares.
type Tenants interface {
	Prepare(ctx context.Context, t agent.Tenancy) (edits.Edits, error)
	Release(ctx context.Context, key string) error
	Tenancies() []agent.Tenancy
	// Adopt gives a tenancy that was rebuilt from its pages its key again.
	Adopt(ctx context.Context, key string)
}

// plugin answers the runtime.
type plugin struct {
	// work is the context of work that begins in a hook and outlives it.
	work    context.Context
	tenants Tenants
	// kernels are the handlers whose containers run on a kernel of their own.
	kernels v1alpha1.Kernels
	// capacity is what a GPU has for tenants, in bytes; 0 if it is not here.
	capacity func(uuid string) uint64
	log      *slog.Logger
	// retry is how long to wait before a release that failed is tried again,
	// doubled each time up to maxRetry.
	retry time.Duration

	mu      sync.Mutex
	pods    map[string]*pod
	began   map[string]bool // sandboxes of pods without annotations, by id
	running sync.WaitGroup
}

// maxRetry bounds the wait between two tries to release a share.
const maxRetry = 5 * time.Second

// pod is a pod that asks, from its first sandbox to the release of its shares.
type pod struct {
	uid   string
	work  sync.Mutex
	fault string // of the release so far, guarded by work
	// What follows is guarded by plugin.mu.
	sandboxes map[string]bool // those that run
	// containers are those that have not ended, and earlier is a pod that ran
	// already when the runtime connected.
	containers map[string]bool
	earlier    bool
	tries      map[string]*try // by key
	releasing  bool
}

// try is one preparation. Its result may be read once done is closed.
type try struct {
	tenancy agent.Tenancy
	done    chan struct{}
	edits   edits.Edits
	err     error
}

func (t *try) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// errSlow is the answer when a share takes longer than the runtime would wait.
var errSlow = errors.New("the share is still being prepared: the kubelet will try again")

// decide reads a pod's annotations, and refuses a pod where no limit would hold.
func (p *plugin) decide(sandbox *api.PodSandbox) (decision, error) {
	if err := p.enforceable(sandbox); err != nil {
		return decision{}, err
	}
	return decide(sandbox)
}

func (p *plugin) enforceable(sandbox *api.PodSandbox) error {
	if handler := sandbox.GetRuntimeHandler(); handler != "" && p.kernels.Has(handler) {
		return fmt.Errorf("its runtime class has handler %s, which runs containers on a kernel of their own, where no limit of a share would hold: use another runtime class", handler)
	}
	return nil
}

// RunPodSandbox begins to prepare the pod's shares. CreateContainer returns what is
// wrong with them.
func (p *plugin) RunPodSandbox(_ context.Context, sandbox *api.PodSandbox) error {
	if !asks(sandbox) {
		p.noteBegin(sandbox)
		return nil
	}
	p.enter(sandbox, true)
	d, err := p.decide(sandbox)
	if err != nil {
		p.log.Warn("pod cannot have its shares", "pod", podName(sandbox), "error", err)
		return nil
	}
	for _, t := range d.tenancies(sandbox) {
		p.prepare(sandbox.GetUid(), t)
	}
	return nil
}

// CreateContainer returns the changes that put the container's share into it. It
// refuses a container of a pod whose annotations are incomplete or contradictory.
func (p *plugin) CreateContainer(ctx context.Context, sandbox *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if !asks(sandbox) && replicasOf(container) == "" && !stopped(container) {
		return nil, nil, nil
	}
	fail := func(err error) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		return nil, nil, fmt.Errorf("give container %s of pod %s its share: %w", container.GetName(), podName(sandbox), err)
	}
	tenancy, err := p.shareOf(sandbox, container)
	if err != nil {
		return fail(err)
	}
	if tenancy.Key == "" {
		return nil, nil, nil
	}
	t := p.prepare(sandbox.GetUid(), tenancy)
	timeout := time.NewTimer(answerTime(ctx))
	defer timeout.Stop()
	select {
	case <-t.done:
	case <-timeout.C:
		return fail(errSlow)
	case <-ctx.Done():
		return fail(ctx.Err())
	}
	if t.err != nil {
		return fail(t.err)
	}
	p.used(sandbox.GetUid(), t)
	adjust, err := adjustment(t.edits)
	if err != nil {
		return fail(err)
	}
	if stopped(container) {
		adjust.RemoveMount(v1alpha1.Stopper)
	}
	return adjust, nil, nil
}

// stopped reports whether a container cannot start unless the plugin lets it.
func stopped(container *api.Container) bool {
	return slices.ContainsFunc(container.GetMounts(), func(m *api.Mount) bool { return m.GetDestination() == v1alpha1.Stopper })
}

// errUnasked is the answer for a container that has a slot and nothing to have for it.
var errUnasked = fmt.Errorf("it takes %s, which Divvy counts itself, and its pod asks for no share for it: ask for %s or %s", v1alpha1.SlotResource, v1alpha1.ResourceMemory, v1alpha1.ResourceGPU)

// shareOf returns what a container is to have; its key is empty where that is nothing.
func (p *plugin) shareOf(sandbox *api.PodSandbox, container *api.Container) (agent.Tenancy, error) {
	if !asks(sandbox) {
		if replicasOf(container) == "" {
			return agent.Tenancy{}, errUnasked
		}
		return p.withReplicas(sandbox, container)
	}
	if replicasOf(container) != "" {
		return agent.Tenancy{}, errors.New("the pod has a share that was assigned to it, and the container asks for replicas of a GPU beside it: use one of both")
	}
	d, err := p.decide(sandbox)
	if err != nil {
		return agent.Tenancy{}, err
	}
	p.enter(sandbox, false)
	p.begin(sandbox.GetUid(), container.GetId())
	asked := d.request.ShareOf(container.GetName())
	switch {
	case asked == nil && stopped(container):
		return agent.Tenancy{}, errUnasked
	case asked == nil:
		return agent.Tenancy{}, nil
	}
	return d.tenancy(sandbox, d.assignment.Share(asked.Name)), nil
}

// answerTime is half of the time that the runtime still waits for the answer.
func answerTime(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return api.DefaultPluginRequestTimeout / 2
	}
	return time.Until(deadline) / 2
}

// StopPodSandbox ends the shares of a pod unless it has another sandbox.
func (p *plugin) StopPodSandbox(_ context.Context, sandbox *api.PodSandbox) error {
	p.leave(sandbox)
	return nil
}

// RemovePodSandbox does the same: the agent may have been away when the sandbox stopped.
func (p *plugin) RemovePodSandbox(_ context.Context, sandbox *api.PodSandbox) error {
	p.leave(sandbox)
	p.forgetBegin(sandbox)
	return nil
}

// StopContainer notes that a container has ended.
func (p *plugin) StopContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) ([]*api.ContainerUpdate, error) {
	p.end(container.GetId())
	return nil, nil
}

// RemoveContainer does the same: the agent may have been away when the container ended.
func (p *plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) error {
	p.end(container.GetId())
	return nil
}

// Synchronize takes up the pods that run, and ends the shares of pods that have ended
// or have no container. The runtime lists stopped sandboxes too: a sandbox runs if it
// has a process or a container that has not ended.
func (p *plugin) Synchronize(ctx context.Context, sandboxes []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	for _, s := range sandboxes {
		p.adopt(ctx, s)
	}
	p.adoptReplicas(ctx, sandboxes, containers)
	alive, gone := running(sandboxes, containers), make(map[string]bool)
	p.mu.Lock()
	for uid, ids := range alive {
		pod := p.pod(uid)
		pod.sandboxes, pod.containers, pod.earlier = ids, make(map[string]bool), true
		for _, c := range containers {
			if ids[c.GetPodSandboxId()] {
				pod.containers[c.GetId()] = true
			}
		}
		if len(pod.containers) == 0 {
			pod.sandboxes, gone[uid] = nil, true // nothing more may be told of it
		}
	}
	for uid, pod := range p.pods {
		if alive[uid] == nil {
			pod.sandboxes, pod.containers, gone[uid] = nil, nil, true
		}
	}
	p.mu.Unlock()
	for _, t := range p.tenants.Tenancies() {
		if uid, ours := agent.PodOfKey(t.Key); ours && alive[uid] == nil {
			gone[uid] = true
		}
	}
	for uid := range gone {
		p.release(uid)
	}
	return nil, nil
}

// running returns the sandboxes that run of each pod that asks. It is pure.
func running(sandboxes []*api.PodSandbox, containers []*api.Container) map[string]map[string]bool {
	asks, occupied := asking(containers), make(map[string]bool)
	for _, c := range containers {
		occupied[c.GetPodSandboxId()] = true
	}
	alive := make(map[string]map[string]bool)
	for _, s := range sandboxes {
		if !asks(s) || s.GetPid() == 0 && !occupied[s.GetId()] {
			continue
		}
		if alive[s.GetUid()] == nil {
			alive[s.GetUid()] = make(map[string]bool)
		}
		alive[s.GetUid()][s.GetId()] = true
	}
	return alive
}

// adopt tells the agent which shares belong to a pod, which it does not know after it
// has lost its checkpoint.
func (p *plugin) adopt(ctx context.Context, sandbox *api.PodSandbox) {
	if !asks(sandbox) {
		return
	}
	if d, err := decide(sandbox); err == nil {
		for _, t := range d.tenancies(sandbox) {
			p.tenants.Adopt(ctx, t.Key)
		}
	}
}

func podName(s *api.PodSandbox) string { return s.GetNamespace() + "/" + s.GetName() }
