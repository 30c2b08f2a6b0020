package dra

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// netRaw is the capability by which programs send and receive raw packets, by an RDMA adapter too.
const netRaw = "NET_RAW"

// rawContainers are the containers of a pod of which it is asked that they have raw packets. What runtimes give unasked is not here.
func rawContainers(pod *corev1.Pod) (names []string) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if c := &containers[i]; dialect.Privileged(c) || addsRaw(c.SecurityContext) {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

// addsRaw reads capabilities as container runtimes do: those that are added, without those that are dropped, and all of them first.
func addsRaw(security *corev1.SecurityContext) bool {
	if security == nil || security.Capabilities == nil {
		return false
	}
	has := func(all []corev1.Capability, name string) bool {
		return slices.ContainsFunc(all, func(c corev1.Capability) bool {
			return strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_") == name
		})
	}
	add, drop := security.Capabilities.Add, security.Capabilities.Drop
	return !has(drop, netRaw) && (has(add, netRaw) || has(add, "ALL") && !has(drop, "ALL"))
}

// rawPod is a pod that uses a claim.
type rawPod struct{ claim, pod types.UID }

// raw warns pods, each once, that have a part of a shared card and a container with raw packets. A container without the card is meant too: another
// one of its pod can pass the open adapter to it.
func (t *teller) raw(claim *resourcev1.ResourceClaim, pods []*corev1.Pod, cards []card) {
	shared := slices.IndexFunc(cards, func(c card) bool { return c.Slots > 0 })
	for _, pod := range pods {
		if names := rawContainers(pod); shared >= 0 && len(names) > 0 {
			if _, told := t.raws.LoadOrStore(rawPod{claim.UID, pod.UID}, true); told {
				continue
			}
			t.recorder.Eventf(podObject(pod), claimObject(claim), corev1.EventTypeWarning, reasonRaw, "Prepare",
				"%s adds the capability %s, and the pod has a part of shared card %s: it can send packets there with addresses of its choice, and perhaps read those of the card's other users: drop the capability, or ask for a function (class %s)",
				note("container "+strings.Join(names, ", ")), netRaw, cards[shared].Device, v1alpha1.ClassNICFunction)
		}
	}
}

// forgetRaws drops what was told of claims that are gone.
func (t *teller) forgetRaws(gone func(claim types.UID) bool) {
	t.raws.Range(func(told, _ any) bool {
		if is, ok := told.(rawPod); ok && gone(is.claim) {
			t.raws.Delete(told)
		}
		return true
	})
}
