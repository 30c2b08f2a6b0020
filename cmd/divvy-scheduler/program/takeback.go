package program

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
	"github.com/divvy-gpu/divvy/internal/scheduler"
)

// Reasons of the events of victims.
const (
	reasonReclaimed = "QuotaReclaimed"
	reasonPreempted = "Preempted"
	reasonMoved     = "Moved"
)

// evictions is how many victims are told to end side by side.
const evictions = 16

// takeBack has others end for a pod or its gang, if there are such, and returns why the pod has to wait. find searches for them.
func (a *adapter) takeBack(fw framework.Framework, state fwk.CycleState, pod *corev1.Pod, why error, find func(now time.Time) (*scheduler.Taking, error)) string {
	if !mayTake(why) {
		return why.Error()
	}
	t, err := find(time.Now())
	var nobody *reclaim.Refusal
	switch {
	case err == nil:
		klog.FromContext(a.ctx).V(2).Info("Pods end for another", "for", klog.KObj(pod), "victims", len(t.Victims), "until", t.Until)
		if c := cycleOf(state); c != nil {
			c.nominated = t.Node(pod)
		}
		go a.evict(fw, pod, t, slices.Clone(t.Victims))
		return t.Reason
	case errors.As(err, &nobody) && a.engine.Queues():
		return why.Error() + "; " + nobody.Text
	}
	return why.Error()
}

// mayTake reports whether it can help a pod that others end.
func mayTake(why error) bool {
	var quota *queue.Refusal
	if errors.As(why, &quota) {
		return quota.Bound == queue.BoundLimit || quota.Bound == queue.BoundLending
	}
	return errors.Is(why, scheduler.ErrRoom)
}

// evict tells victims to end, or orders them out of their GPUs. If one cannot end, what is left of the plan is given up, and no other
// ends in vain.
func (a *adapter) evict(fw framework.Framework, demander *corev1.Pod, t *scheduler.Taking, all []scheduler.Victim) {
	room := make(chan struct{}, evictions)
	var over atomic.Bool
	for i := range all {
		v := &all[i]
		if room <- struct{}{}; over.Load() {
			return
		}
		go func() {
			defer func() { <-room }()
			if len(v.Orders) > 0 {
				a.putOut(v.Orders)
				return
			}
			reason := reasonReclaimed
			switch v.Rule {
			case reclaim.RulePriority:
				reason = reasonPreempted
			case reclaim.RuleMove:
				reason = reasonMoved
			}
			if err := a.writer.Evict(a.ctx, v); err != nil {
				klog.FromContext(a.ctx).Error(err, "Victim does not end", "pod", klog.KObj(v.Pod), "for", klog.KObj(demander))
				over.Store(true)
				a.engine.GiveUp(t, v.Pod)
				a.activate(demander)
				return
			}
			victims.WithLabelValues(string(v.Rule)).Inc()
			fw.EventRecorder().Eventf(v.Pod, demander, corev1.EventTypeWarning, reason, "Evicting", "%s", v.Note)
		}()
	}
}

// afterwards asks Kubernetes' filters whether pods are let onto nodes from which others have gone.
type afterwards struct{ *trials }

// Lets implements scheduler.Filters.
func (w afterwards) Lets(pod *corev1.Pod, node string, mayEnd []*corev1.Pod) bool {
	one := w.trial(pod)
	if one.none || one.among != nil && !one.among.Has(node) {
		return false
	}
	if answer, known := one.freed[node]; known {
		return answer
	}
	info, err := w.fw.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return false
	}
	status := w.fw.RunFilterPluginsWithNominatedPods(w.ctx, one.state, pod, info)
	answer := status.IsSuccess()
	if !answer && status.Code() == fwk.Unschedulable && len(mayEnd) > 0 {
		answer = w.without(pod, one.state.Clone(), info.Snapshot(), mayEnd)
	}
	one.freed[node] = answer
	return answer
}

// without reports whether a pod is let onto a node once others have ended there. It changes the state and the node that it gets.
func (w afterwards) without(pod *corev1.Pod, state fwk.CycleState, info fwk.NodeInfo, ended []*corev1.Pod) bool {
	for _, other := range ended {
		if !w.remove(pod, state, info, other) {
			return false
		}
	}
	return w.fw.RunFilterPluginsWithNominatedPods(w.ctx, state, pod, info).IsSuccess()
}

func (w afterwards) remove(pod *corev1.Pod, state fwk.CycleState, info fwk.NodeInfo, other *corev1.Pod) bool {
	gone, err := framework.NewPodInfo(other)
	if err != nil || info.RemovePod(klog.FromContext(w.ctx), other) != nil {
		return false
	}
	return w.fw.RunPreFilterExtensionRemovePod(w.ctx, state, pod, gone, info).IsSuccess()
}

// LetsAll implements scheduler.Filters.
func (w afterwards) LetsAll(pods []*corev1.Pod, node string, ended []*corev1.Pod) bool {
	there, err := w.fw.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return false
	}
	for i, pod := range pods {
		one := w.trial(pod)
		info, state := there.Snapshot(), one.state.Clone()
		for _, before := range pods[:i] {
			come, err := framework.NewPodInfo(before)
			if err != nil {
				return false
			}
			info.AddPodInfo(come)
			if !w.fw.RunPreFilterExtensionAddPod(w.ctx, state, pod, come, info).IsSuccess() {
				return false
			}
		}
		if one.none || !w.without(pod, state, info, ended) {
			return false
		}
	}
	return true
}

// nominated is what PostFilter says of a pod for which others end: meanwhile pods with a lower priority leave it the node's
// processors and memory.
func nominated(c *cycle, pod *corev1.Pod) (*fwk.PostFilterResult, *fwk.Status) {
	switch {
	case c.nominated != "":
		return framework.NewPostFilterResultWithNominatedNode(c.nominated), fwk.NewStatus(fwk.Success)
	case pod.Status.NominatedNodeName != "":
		return framework.NewPostFilterResultWithNominatedNode(""), fwk.NewStatus(fwk.Unschedulable)
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// takeBackUnit is takeBack for a pod alone.
func (a *adapter) takeBackUnit(ctx context.Context, fw framework.Framework, state fwk.CycleState, unit *scheduler.Unit, why error) string {
	return a.takeBack(fw, state, unit.Pod, why, func(now time.Time) (*scheduler.Taking, error) {
		return a.engine.TakeBack(unit, afterwards{newTrials(ctx, fw)}, now)
	})
}

// takeBackGang is takeBack for the gang of a pod.
func (a *adapter) takeBackGang(ctx context.Context, fw framework.Framework, state fwk.CycleState, pod *corev1.Pod, why error) string {
	return a.takeBack(fw, state, pod, why, func(now time.Time) (*scheduler.Taking, error) {
		return a.engine.TakeBackGang(pod, afterwards{newTrials(ctx, fw)}, now)
	})
}

// quota is the refusal of a pod that its queue does not let start. It waits in its line for quota.
func (a *adapter) quota(ctx context.Context, fw framework.Framework, state fwk.CycleState, unit *scheduler.Unit, refusal *refusal) (kubescheduler.ScheduleResult, error, bool) {
	err := a.engine.Quota(unit)
	if err == nil {
		return kubescheduler.ScheduleResult{}, nil, false
	}
	a.engine.Waiting.Add(unit.Pod, unit.Shape())
	return kubescheduler.ScheduleResult{}, refusal.because(a.takeBackUnit(ctx, fw, state, unit, err)), true
}

// spared is what a filter says of a node on which Kubernetes' own preemption would end pods with GPUs by their priority: while there are
// queues, that is decided by them alone.
func (a *adapter) spared(pod *corev1.Pod, node fwk.NodeInfo, status *fwk.Status) *fwk.Status {
	if status.Code() != fwk.Unschedulable || !a.engine.Queues() {
		return status
	}
	for _, other := range node.GetPods() {
		if p := other.GetPod(); len(p.Spec.ResourceClaims) > 0 && corev1helpers.PodPriority(p) < corev1helpers.PodPriority(pod) {
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, status.Reasons()...).WithPlugin(status.Plugin())
		}
	}
	return status
}

// nominate keeps processors and memory of nodes for the other members of a gang for which others end, or no longer: Kubernetes asks for
// the nomination of the pod itself.
func (a *adapter) nominate(fw framework.Framework, pod *corev1.Pod, members []*corev1.Pod) {
	t, _ := a.engine.Taking(pod)
	for _, member := range members {
		if member.UID == pod.UID {
			continue
		}
		info, err := framework.NewPodInfo(member)
		if t == nil || err != nil || t.Node(member) == "" {
			fw.DeleteNominatedPodIfExists(member)
			continue
		}
		fw.AddNominatedPod(klog.FromContext(a.ctx), info, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: t.Node(member)})
	}
}
