package dra

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// happening is how an event of the agent's stands on pods.
type happening struct{ kind, reason, action string }

// happenings are the events about shares that pods get. Refusals to prepare a claim are [teller.refused].
var happenings = map[control.EventKind]happening{
	control.EventGranted: {corev1.EventTypeNormal, "ShareGranted", "Prepare"},
	control.EventMemory:  {corev1.EventTypeWarning, "ShareOutOfMemory", "Watch"},
	// Of those that leave for somebody the scheduler tells who it is.
	control.EventSuspended: {corev1.EventTypeNormal, "ShareSuspended", "Suspend"},
	control.EventResumed:   {corev1.EventTypeNormal, "ShareResumed", "Resume"},
	control.EventEnded:     {corev1.EventTypeNormal, "ShareEnded", "Release"},
}

// Bounds of what is written.
const (
	// followerPause is the least time between two events of a kind about one share.
	followerPause = time.Minute
	// mostFollowed is of how many shares it is known which events were written: more than nodes have.
	mostFollowed = 10_000
)

// follower writes what becomes of tenancies on their pods.
type follower struct {
	recorder events.EventRecorder
	pods     nodePods
	now      func() time.Time

	mu   sync.Mutex
	seen map[string]*followed // by the tenancy's key
}

// followed is a tenancy with its pods: one that has ended is no longer found by them.
type followed struct {
	pods map[types.UID]*corev1.Pod
	told map[control.EventKind]time.Time
}

func newFollower(recorder events.EventRecorder, pods nodePods, now func() time.Time) *follower {
	return &follower{recorder: recorder, pods: pods, now: now, seen: map[string]*followed{}}
}

// told writes an event on each pod of a tenancy, or not, where one of its kind was written a moment before. The recorder does not wait
// for the API server.
func (f *follower) told(t agent.Tenancy, e control.Event) {
	h, ok := happenings[e.Kind]
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.seen[t.Key]
	if one == nil {
		if len(f.seen) >= mostFollowed {
			clear(f.seen)
		}
		one = &followed{pods: map[types.UID]*corev1.Pod{}, told: map[control.EventKind]time.Time{}}
		f.seen[t.Key] = one
	}
	if e.Kind == control.EventEnded {
		delete(f.seen, t.Key)
	}
	for _, pod := range f.podsOf(&t) {
		one.pods[pod.UID] = pod
	}
	if at, before := one.told[e.Kind]; before && f.now().Sub(at) < followerPause {
		return
	}
	one.told[e.Kind] = f.now()
	for _, pod := range one.pods {
		f.recorder.Eventf(podObject(pod), nil, h.kind, h.reason, h.action, "%s", note(named(&t)+e.Text))
	}
}

// podsOf are the pods of a tenancy that are known now.
func (f *follower) podsOf(t *agent.Tenancy) []*corev1.Pod {
	if t.Claim != "" {
		return f.pods.users(t.Namespace, t.Claim)
	}
	var found []*corev1.Pod
	for _, name := range t.Pods {
		if pod := f.pods.named(t.Namespace, name); pod != nil {
			found = append(found, pod)
		}
	}
	return found
}

// named says which of a pod's shares is meant.
func named(t *agent.Tenancy) string {
	switch {
	case t.Container != "":
		return "container " + t.Container + ": "
	case t.Claim != "":
		return "claim " + t.Claim + ": "
	}
	return ""
}
