package program

import (
	"context"

	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// bareKey is where a cycle keeps that its pod may be on nodes without GPUs alone.
const bareKey fwk.StateKey = PluginName + "/bare"

// bareNodes are the nodes on which a pod is tried first.
type bareNodes struct{ names sets.Set[string] }

// Clone implements fwk.StateData. Nobody changes the set.
func (b *bareNodes) Clone() fwk.StateData { return b }

// restricted is what PreFilter says of a pod that is tried on nodes without GPUs, nil for others.
func restricted(state fwk.CycleState) *fwk.PreFilterResult {
	data, err := state.Read(bareKey)
	if err != nil {
		return nil
	}
	if b, ok := data.(*bareNodes); ok {
		return &fwk.PreFilterResult{NodeNames: b.names}
	}
	return nil
}

// plain finds a node for a pod without claims. Nodes without GPUs come first, and are Kubernetes' to choose from. On nodes
// with GPUs the pod goes where it takes least from those that want GPUs. A pod that says where it would rather be is
// Kubernetes' alone.
func (a *adapter) plain(ctx context.Context, fw framework.Framework, state fwk.CycleState, info *framework.QueuedPodInfo) (kubescheduler.ScheduleResult, error) {
	names, all := a.engine.Bare()
	if all || demand.Particular(info.Pod) {
		return a.schedulePod(ctx, fw, state, info)
	}
	if len(names) > 0 {
		state.Write(bareKey, &bareNodes{sets.KeySet(names)})
		result, err := a.schedulePod(ctx, fw, state, info)
		state.Delete(bareKey)
		if err == nil {
			return result, nil
		}
	}
	nodes, err := a.use(fw)
	if err != nil {
		return kubescheduler.ScheduleResult{}, err
	}
	pre, status, _ := fw.RunPreFilterPlugins(ctx, state, info.Pod)
	if !status.IsSuccess() {
		return a.schedulePod(ctx, fw, state, info) // which knows how to tell it
	}
	var among []string
	if !pre.AllNodes() {
		among = sets.List(pre.NodeNames)
	}
	looked := 0
	host, ok := a.engine.Host(info.Pod, among, info.Attempts <= 1, func(node string) bool {
		looked++
		one, err := fw.SnapshotSharedLister().NodeInfos().Get(node)
		return err == nil && fw.RunFilterPluginsWithNominatedPods(ctx, state, info.Pod, one).IsSuccess()
	})
	if !ok {
		return a.schedulePod(ctx, fw, state, info)
	}
	return kubescheduler.ScheduleResult{SuggestedHost: host, EvaluatedNodes: min(looked, nodes), FeasibleNodes: 1}, nil
}
