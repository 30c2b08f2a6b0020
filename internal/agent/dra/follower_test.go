package dra

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// podsByClaim are a node's pods by the claim that they name.
type podsByClaim struct {
	noPods
	of map[string][]*corev1.Pod
}

func (p *podsByClaim) users(namespace, claim string) []*corev1.Pod { return p.of[namespace+"/"+claim] }

// written takes what was written.
func written(recorder *events.FakeRecorder) (all []string) {
	for {
		select {
		case text := <-recorder.Events:
			all = append(all, text)
		default:
			return all
		}
	}
}

// What becomes of a share stands on its pods: once of each kind in a minute, and its end also when the pod is gone.
func TestFollowerWritesOnPods(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train", UID: types.UID("1")}}
	pods := &podsByClaim{of: map[string][]*corev1.Pod{"ns/gpu": {pod}}}
	now := time.Unix(0, 0)
	f := newFollower(recorder, pods, func() time.Time { return now })
	tenancy := agent.Tenancy{Key: "k", Namespace: "ns", Claim: "gpu", Pods: []string{"train"}}
	tell := func(kind control.EventKind, text string, want ...string) {
		t.Helper()
		f.told(tenancy, control.Event{Kind: kind, Text: text})
		if got := written(recorder); !slices.Equal(got, want) {
			t.Errorf("of %s %q is written %q, want %q", kind, text, got, want)
		}
	}
	tell(control.EventGranted, "GPU 0: memory 4Gi", "Normal ShareGranted claim gpu: GPU 0: memory 4Gi")
	tell(control.EventMemory, "an allocation was refused", "Warning ShareOutOfMemory claim gpu: an allocation was refused")
	tell(control.EventMemory, "another one was refused")
	tell(control.EventIdle, "of no interest")
	now = now.Add(followerPause)
	tenancy.Container = "main"
	tell(control.EventMemory, "again", "Warning ShareOutOfMemory container main: again")
	pods.of = nil
	tell(control.EventEnded, "it was released", "Normal ShareEnded container main: it was released")
	if len(f.seen) != 0 {
		t.Errorf("of shares that have ended %d are kept", len(f.seen))
	}
	tell(control.EventEnded, "of one that nobody knows")
}

// Of however many shares there are, no more is kept than the bound.
func TestFollowerIsBounded(t *testing.T) {
	f := newFollower(events.NewFakeRecorder(10), &podsByClaim{}, time.Now)
	for i := range mostFollowed + 5 {
		f.told(agent.Tenancy{Key: string(rune(i))}, control.Event{Kind: control.EventGranted})
	}
	if len(f.seen) > mostFollowed {
		t.Errorf("%d are kept", len(f.seen))
	}
}
