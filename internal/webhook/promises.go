package webhook

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/internal/dialect"
)

// promise is a claim that a pod describes, and that Divvy's scheduler is to make.
type promise struct {
	pod     key
	counted dialect.Counted
	use     dialect.Use
}

// waitingPods selects the pods that Divvy's scheduler has not bound. The scheduler makes a pod's claims before it binds it.
func waitingPods(translator *dialect.Translator) string {
	return "spec.nodeName=,spec.schedulerName=" + translator.Scheduler()
}

// described is what a waiting pod describes, by the keys of its claims.
type described map[key]dialect.Counted

// podStore returns where waiting pods are put.
func (a *accounts) podStore() *store[described] {
	return &store[described]{
		read: func(object metav1.Object) (described, error) {
			pod, err := as[*corev1.Pod](object)
			if err != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
				return nil, err
			}
			// Nothing is made of what somebody forged, so it does not count.
			specs, _ := dialect.Described(pod)
			if len(specs) == 0 {
				return nil, nil
			}
			all := make(described, len(specs))
			for name, spec := range specs {
				all[keyOfName(pod.Namespace, name)] = dialect.CountedOf(&spec, nil)
			}
			return all, nil
		},
		put: a.putPod, drop: a.dropPod, keep: a.keepPods,
	}
}

func (a *accounts) putPod(pod brief[described]) {
	if len(pod.of) == 0 {
		a.dropPod(pod)
		return
	}
	a.use(pod.namespace, func(one *account) {
		a.refresh(one)
		if _, known := one.pods[pod.id]; known {
			return // what a pod describes does not change
		}
		for id, counted := range pod.of {
			use, _ := counted.Use(one.sizes)
			one.setPromises(id, append(slices.Clone(one.promised[id]), promise{pod.id, counted, use}))
			one.pods[pod.id] = append(one.pods[pod.id], id)
			delete(one.admitted, id)
		}
	})
}

// dropPod forgets a pod that waits no longer. If it was bound, the claims that are not known yet are about to be told, so
// what it described counts until they come, or for some seconds if they do not.
func (a *accounts) dropPod(pod brief[described]) {
	empty := false
	a.existing(pod.namespace, func(one *account) {
		a.forgetPod(one, pod.id)
		empty = one.empty(a.late())
	})
	if empty {
		a.close(pod.namespace)
	}
}

func (a *accounts) forgetPod(one *account, pod key) {
	for _, id := range one.pods[pod] {
		was := one.promise(id)
		one.setPromises(id, slices.DeleteFunc(slices.Clone(one.promised[id]), func(p promise) bool { return p.pod == pod }))
		if !one.has(id) && len(one.promised[id]) == 0 {
			one.admitted[id] = admittedClaim{was, a.now().Add(expectedFor)}
		}
	}
	delete(one.pods, pod)
}

// keepPods drops the pods that are not in a list of all.
func (a *accounts) keepPods(present map[key]bool) {
	for _, namespace := range a.namespaces() {
		a.existing(namespace, func(one *account) {
			for pod := range one.pods {
				if !present[pod] {
					a.forgetPod(one, pod)
				}
			}
		})
		a.close(namespace)
	}
}

// has reports whether there is a claim.
func (one *account) has(id key) bool {
	_, settled := one.settled[id]
	_, open := one.open[id]
	return settled || open
}

// promise is what is promised of a claim: one of what its pods describe, which is the same unless somebody copied a pod.
func (one *account) promise(id key) (most dialect.Use) {
	for _, p := range one.promised[id] {
		most = most.Larger(p.use)
	}
	return most
}

// setPromises replaces what is promised of a claim.
func (one *account) setPromises(id key, all []promise) {
	one.change(id, func() {
		if one.promised[id] = all; len(all) == 0 {
			delete(one.promised, id)
		}
	})
}

// weight is what a claim's name counts for: what there is, or what pods that wait make of it if that is more.
func (one *account) weight(id key) dialect.Use { return one.known(id).Larger(one.promise(id)) }

// renewPromises counts what is promised with the sizes that are known now.
func (one *account) renewPromises() {
	for id, all := range one.promised {
		renewed := slices.Clone(all)
		for i := range renewed {
			renewed[i].use, _ = renewed[i].counted.Use(one.sizes)
		}
		one.setPromises(id, renewed)
	}
}

// counts is what a claim counts for: what it takes, what was let through, or what is promised.
func (one *account) counts(id key) dialect.Use {
	claim, ok := one.admitted[id]
	switch {
	case ok && one.has(id):
		return one.weight(id).Plus(claim.use)
	case ok:
		return one.promise(id).Larger(claim.use)
	default:
		return one.weight(id)
	}
}

// checkDescribed asks whether a namespace that has these limits may have the claims that a pod describes. If it may, and
// the pod is to be admitted, they count from now on.
func (a *accounts) checkDescribed(namespace string, limits []dialect.Limit, claims map[key]dialect.Use, admit bool) error {
	return a.check(namespace, admit, func(one *account) error {
		used := one.used()
		var more dialect.Use
		for id, use := range claims {
			used, more = used.Minus(one.counts(id)), more.Plus(use)
		}
		if err := dialect.CheckQuota(limits, used, more); err != nil || !admit {
			return err
		}
		for id, use := range claims {
			if weight := one.weight(id); weight.Larger(use) != weight {
				one.admitted[id] = admittedClaim{use.Larger(one.admitted[id].use), a.now().Add(expectedFor)}
			}
		}
		return nil
	})
}
