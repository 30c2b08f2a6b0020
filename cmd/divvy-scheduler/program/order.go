package program

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// ordering has pods tried in the order of queues, or after lost members of gangs, and not in that of Kubernetes' queue.
type ordering struct {
	// taken is a pod that Kubernetes' queue has handed out and that has to let others go first, and passed how many have.
	taken  *framework.QueuedPodInfo
	passed int
}

// mostPassed is how many pods go before one that was handed out. Then it is put back, so that pods without GPUs have their turn, and
// Kubernetes' queue need not note for it what happens meanwhile.
const mostPassed = 64

// ordered is the next pod by the order of queues, nil where Kubernetes' queue is to be asked for one.
func (a *adapter) ordered(logger klog.Logger) *framework.QueuedPodInfo {
	if a.taken == nil || !a.refresh(logger) {
		return nil
	}
	if a.passed >= mostPassed {
		a.putBack(logger)
		return nil
	}
	return a.before(logger, a.taken)
}

// before is a pod that Kubernetes' queue has handed out, or one whose turn is before.
func (a *adapter) before(logger klog.Logger, info *framework.QueuedPodInfo) *framework.QueuedPodInfo {
	for {
		first := a.engine.First(info.Pod)
		a.engine.Popped(first)
		if first.UID == info.Pod.UID {
			a.taken, a.passed = nil, 0
			return info
		}
		if other := a.pop(logger, first); other != nil {
			a.taken = info
			a.passed++
			return other
		}
	}
}

// refresh brings the pod that has to wait up to date, and reports whether it is still to be scheduled.
func (a *adapter) refresh(logger klog.Logger) bool {
	pod := a.current(a.taken.Pod)
	if pod != nil && a.taken.Update(pod) == nil {
		return true
	}
	a.sched.SchedulingQueue.Done(a.taken.Pod.UID)
	logger.V(4).Info("Pod went while others had their turn", "pod", klog.KObj(a.taken.Pod))
	a.taken, a.passed = nil, 0
	return false
}

// putBack gives the pod that has to wait back to Kubernetes' queue.
func (a *adapter) putBack(logger klog.Logger) {
	pod := a.taken.Pod
	a.sched.SchedulingQueue.Done(pod.UID)
	a.sched.SchedulingQueue.Add(klog.NewContext(a.ctx, logger), pod)
	a.taken, a.passed = nil, 0
}

// current is a pod as the informers know it, nil for one that has gone or has a node.
func (a *adapter) current(pod *corev1.Pod) *corev1.Pod {
	now, err := a.config.InformerFactory.Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || now.Spec.NodeName != "" || now.DeletionTimestamp != nil {
		return nil
	}
	return now
}

// pop takes a pod from Kubernetes' queue, or the one that had to let others go first; nil is one that is in neither.
func (a *adapter) pop(logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	if info := a.taken; info != nil && info.Pod.UID == pod.UID {
		a.taken, a.passed = nil, 0
		return info
	}
	return a.sched.SchedulingQueue.PopSpecificPod(logger, pod)
}
