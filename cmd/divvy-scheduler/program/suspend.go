package program

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/divvy-gpu/divvy/internal/scheduler"
)

// carryOut writes and says what the engine has decided beside the placing of pods: whoever calls it has the engine's turn.
func (a *adapter) carryOut() {
	all := a.engine.Changes()
	for i := range all.Said {
		a.say(&all.Said[i])
	}
	for i := range all.Ends {
		o := &all.Ends[i]
		go a.order(o)
	}
	for i := range all.Evictions {
		one := &all.Evictions[i]
		if fw := a.profileOf(one.Victims[0].Pod); fw != nil {
			go a.evict(fw, one.Taking.For(), one.Taking, one.Victims)
		}
	}
}

// order writes an order, and tells the engine how that ended.
func (a *adapter) order(o *scheduler.Order) {
	err := a.writer.Order(a.ctx, o)
	outcome := "resumed"
	if o.Suspension != nil {
		outcome = "ordered"
	}
	if err != nil {
		outcome = "failed"
		klog.FromContext(a.ctx).Error(err, "Suspension not written", "claim", klog.KObj(o.Claim))
	}
	suspensions.WithLabelValues(outcome).Inc()
	a.engine.Ordered(o, err)
}

// putOut writes the orders of a victim side by side. The engine ends one of which an order cannot be written.
func (a *adapter) putOut(orders []scheduler.Order) {
	var all sync.WaitGroup
	for i := range orders {
		all.Go(func() { a.order(&orders[i]) })
	}
	all.Wait()
}

// say tells the owner of a pod what becomes of it.
func (a *adapter) say(s *scheduler.Said) {
	fw := a.profileOf(s.Pod)
	if fw == nil {
		return
	}
	kind := corev1.EventTypeNormal
	if s.Warning {
		kind = corev1.EventTypeWarning
	}
	if s.Reason == scheduler.ReasonNotAllowed {
		suspensions.WithLabelValues("refused").Inc()
	}
	fw.EventRecorder().Eventf(s.Pod, nil, kind, s.Reason, "Suspending", "%s", s.Words)
}

// profileOf is the profile that schedules a pod, else any: pods of other schedulers may be victims.
func (a *adapter) profileOf(pod *corev1.Pod) framework.Framework {
	if fw := a.sched.Profiles[pod.Spec.SchedulerName]; fw != nil {
		return fw
	}
	for _, fw := range a.sched.Profiles {
		return fw
	}
	return nil
}
