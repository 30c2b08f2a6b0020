package program

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/divvy-gpu/divvy/internal/scheduler"
)

// plugin stands in DynamicResources' place. Pods that are not Divvy's go through to it.
type plugin struct {
	*dynamicresources.DynamicResources
	*core
	handle fwk.Handle
}

// cycle is what a plugin keeps of a pod in its cycle.
type cycle struct {
	unit *scheduler.Unit
	// elsewhere tells that Kubernetes' own plugin places the pod.
	elsewhere bool
	pending   []pending
	// nominated is the node on which others end for the pod. It is said again with each try: Kubernetes forgets it otherwise.
	nominated string
}

const cycleKey fwk.StateKey = PluginName

// Clone implements fwk.StateData. All copies are of one pod.
func (c *cycle) Clone() fwk.StateData { return c }

// cycleOf is what was kept of a pod, nil for a pod without claims.
func cycleOf(state fwk.CycleState) *cycle {
	data, err := state.Read(cycleKey)
	if err != nil {
		return nil
	}
	c, _ := data.(*cycle)
	return c
}

// ours is the unit of a pod that Divvy places, nil for others.
func ours(state fwk.CycleState) *scheduler.Unit {
	if c := cycleOf(state); c != nil && !c.elsewhere {
		return c.unit
	}
	return nil
}

// newPlugin makes Divvy's plugin around that of Kubernetes, with its default arguments.
func (c *core) newPlugin(ctx context.Context, args runtime.Object, handle fwk.Handle, hook func(step string)) (fwk.Plugin, error) {
	if unknown, ok := args.(*runtime.Unknown); args != nil && (!ok || len(unknown.Raw) > 0) {
		return nil, fmt.Errorf("plugin %s takes no arguments", PluginName)
	}
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	if err := c.begin(handle, hook); err != nil { //nolint:contextcheck // what is made here lives as long as the program
		return nil, err
	}
	for _, known := range defaults.Profiles[0].PluginConfig {
		if known.Name != names.DynamicResources {
			continue
		}
		made, err := dynamicresources.New(ctx, known.Args, heard{handle, c}, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
		if err != nil {
			return nil, fmt.Errorf("make Kubernetes' plugin %s: %w", names.DynamicResources, err)
		}
		wrapped, ok := made.(*dynamicresources.DynamicResources)
		if !ok {
			return nil, fmt.Errorf("plugin %s of Kubernetes is a %T", names.DynamicResources, made)
		}
		return &plugin{DynamicResources: wrapped, core: c, handle: handle}, nil
	}
	return nil, errors.New("default profile of Kubernetes has no arguments for " + names.DynamicResources)
}

// Name implements fwk.Plugin.
func (p *plugin) Name() string { return PluginName }

// PreEnqueue implements fwk.PreEnqueuePlugin. Claims that the scheduler makes itself need not be there.
func (p *plugin) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	others, err := p.engine.Gangs.Hold(pod)
	if len(others) > 0 {
		go p.activate(others...) // the queue is locked here
	}
	if err == nil {
		err = p.engine.Ready(pod)
	}
	if err != nil {
		if p.reasons != nil {
			p.reasons.SayHeld(pod, unschedulable(pod, err.Error()))
		}
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if p.reasons != nil {
		p.reasons.Withdraw(pod.UID)
	}
	p.engine.Enqueued(pod)
	return nil
}

// EventsToRegister implements fwk.EnqueueExtensions. Divvy's pods that wait for room are activated by the engine; of all
// events, only those of their own claims concern them.
func (p *plugin) EventsToRegister(ctx context.Context) ([]fwk.ClusterEventWithHint, error) {
	events, err := p.DynamicResources.EventsToRegister(ctx)
	for i := range events {
		hint := events[i].QueueingHintFn
		if events[i].Event.Resource == fwk.ResourceClaim {
			hint = p.freed(hint)
			events[i].Event.ActionType |= fwk.Delete // the scheduler makes claims that are not there
		}
		events[i].QueueingHintFn = func(logger klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
			if p.engine.Waiting.Has(pod.UID) {
				if claim, ok := after.(*resourcev1.ResourceClaim); ok && uses(pod, claim) {
					return fwk.Queue, nil
				}
				return fwk.QueueSkip, nil
			}
			if hint == nil {
				return fwk.Queue, nil
			}
			return hint(logger, pod, before, after)
		}
	}
	return events, err
}

// freed tries a pod again when a claim of a name that the pod has is made or deleted, and leaves other events of claims to a
// hint. Kubernetes' own skips a pod of which another claim is not there, such as one that the scheduler makes.
func (p *plugin) freed(hint fwk.QueueingHintFn) fwk.QueueingHintFn {
	return func(logger klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
		made, _ := after.(*resourcev1.ResourceClaim)
		switch claim, ok := before.(*resourcev1.ResourceClaim); {
		case before == nil && made != nil && uses(pod, made):
			return fwk.Queue, nil
		case after != nil:
			return hint(logger, pod, before, after)
		case ok && uses(pod, claim):
			return fwk.Queue, nil
		default:
			return fwk.QueueSkip, nil
		}
	}
}

// uses reports whether a pod names a claim.
func uses(pod *corev1.Pod, claim *resourcev1.ResourceClaim) bool {
	if pod.Namespace != claim.Namespace {
		return false
	}
	for i := range pod.Spec.ResourceClaims {
		if name := pod.Spec.ResourceClaims[i].ResourceClaimName; name != nil && *name == claim.Name {
			return true
		}
	}
	for i := range pod.Status.ResourceClaimStatuses {
		if name := pod.Status.ResourceClaimStatuses[i].ResourceClaimName; name != nil && *name == claim.Name {
			return true
		}
	}
	return false
}

// PreFilter implements fwk.PreFilterPlugin.
func (p *plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if ours(state) != nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	result, status := p.DynamicResources.PreFilter(ctx, state, pod, nodes)
	if only := restricted(state); only != nil && status.IsSkip() {
		return only, nil
	}
	return result, status
}

// PostFilter implements fwk.PostFilterPlugin.
func (p *plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if ours(state) != nil {
		return nominated(cycleOf(state), pod)
	}
	return p.DynamicResources.PostFilter(ctx, state, pod, statuses)
}

// Reserve implements fwk.ReservePlugin. What Kubernetes' own allocator has chosen is checked against the ledger.
func (p *plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	c := cycleOf(state)
	if c == nil || c.elsewhere {
		p.found = nil
		if status := p.DynamicResources.Reserve(ctx, state, pod, node); !status.IsSuccess() || len(p.found) == 0 {
			return status
		}
		if c == nil { // a pod with extended resources alone
			c = &cycle{unit: &scheduler.Unit{Pod: pod}, elsewhere: true}
			state.Write(cycleKey, c)
		}
		err := p.engine.ReserveFound(c.unit, p.found)
		if scheduler.Taken(err) {
			// Kubernetes' allocator may have heard of room before the ledger has: no event comes after that but the engine's.
			p.engine.Waiting.Add(pod, "found by Kubernetes for "+string(pod.UID))
		} else if err == nil {
			p.reasons.Forget(pod.UID) // why it waited is not told once it has a place
		}
		return reserved(err)
	}
	if err := p.engine.Reserve(c.unit); err != nil {
		return reserved(err)
	}
	for i := range c.unit.Allocations {
		a := &c.unit.Allocations[i]
		claim := c.unit.Existing[a.Claim.Key()].DeepCopy()
		if claim == nil {
			claim = &resourcev1.ResourceClaim{Spec: *a.Claim.Spec}
			claim.Namespace, claim.Name, claim.UID = a.Claim.Namespace, a.Claim.Name, types.UID(a.Claim.Key())
		}
		claim.Status.Allocation = a.Result
		if err := p.claims.SignalClaimPendingAllocation(claim.UID, claim); err != nil {
			return fwk.AsStatus(err)
		}
		c.pending = append(c.pending, pending{claim.UID, claim.Namespace, claim.Name})
	}
	return nil
}

// reserved is the status of a pod whose place is noted, or is not.
func reserved(err error) *fwk.Status {
	switch {
	case err == nil:
		return nil
	case scheduler.Taken(err):
		return fwk.NewStatus(fwk.Unschedulable, err.Error())
	default:
		return fwk.AsStatus(err)
	}
}

// Unreserve implements fwk.ReservePlugin. What was written is taken back; until that is done, the pod is not planned again.
func (p *plugin) Unreserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) {
	c := cycleOf(state)
	if c == nil || c.elsewhere {
		p.DynamicResources.Unreserve(ctx, state, pod, node)
		if c != nil && c.unit != nil {
			p.engine.Unreserve(c.unit)
		}
		return
	}
	if c.unit.Team != nil {
		c.unit.Team.Fail(errors.New("pod " + pod.Name + " cannot be bound"))
		p.engine.Gangs.Assume(pod, "")
	}
	p.setUndoing(pod.UID, true)
	go func() {
		defer c.unit.Undone.Store(true)
		defer p.setUndoing(pod.UID, false)
		if !p.writer.TakeBack(p.ctx, c.unit) {
			p.written(c.pending) // the pod has a node, and keeps what it has
			return
		}
		if p.engine.Settle(p.ctx, p.writer, c.unit) != nil {
			return // the scheduler ends
		}
		for _, told := range c.pending {
			p.claims.MaybeRemoveClaimPendingAllocation(told.uid, true)
		}
		p.engine.Unreserve(c.unit)
		p.activate(p.engine.Waiting.First()...)
	}()
}

// PreBindPreFlight implements fwk.PreBindPlugin. Divvy's claims are written in Bind: a plugin with work in PreBind costs
// another write to the pod.
func (p *plugin) PreBindPreFlight(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if c := cycleOf(state); c == nil || !c.elsewhere {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return p.DynamicResources.PreBindPreFlight(ctx, state, pod, node)
}

// PreBind implements fwk.PreBindPlugin.
func (p *plugin) PreBind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if ours(state) != nil {
		return nil
	}
	return p.DynamicResources.PreBind(ctx, state, pod, node)
}

// Bind implements fwk.BindPlugin: it writes the claims and leaves the binding itself to Kubernetes' plugin.
func (p *plugin) Bind(ctx context.Context, state fwk.CycleState, _ *corev1.Pod, node string) *fwk.Status {
	unit := ours(state)
	if unit != nil {
		p.reasons.Forget(unit.Pod.UID)
	}
	if unit != nil && unit.Team != nil {
		return fwk.AsStatus(p.bindMember(ctx, unit, node))
	}
	if unit != nil {
		if err := p.writer.Write(ctx, unit); err != nil {
			return fwk.AsStatus(err)
		}
	}
	return fwk.NewStatus(fwk.Skip)
}

// PostBind implements fwk.PostBindPlugin.
func (p *plugin) PostBind(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ string) {
	if c := cycleOf(state); c != nil && !c.elsewhere {
		p.written(c.pending)
		if p.writer.Step != nil {
			p.writer.Step(scheduler.StepBound)
		}
	}
}
