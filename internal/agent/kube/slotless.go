package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/deviceplugin"
)

// events returns what writes events of the node until ctx is done.
func (k *node) events(ctx context.Context) func(kind, reason, action, text string) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: k.options.Client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		k.Log.WarnContext(ctx, "cannot record events of the node", "error", err)
		return func(string, string, string, string) {}
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	recorder := broadcaster.NewRecorder(scheme.Scheme, "divvy-agent")
	return func(kind, reason, action, text string) {
		node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: k.options.Node}}
		recorder.Eventf(node, nil, kind, reason, action, "%s", text)
	}
}

// How long the runtime may be away before the node says so, as after a restart of it, and
// when it says so again: events are forgotten after an hour.
const (
	slotlessAfter = 20 * time.Second
	slotlessAgain = 30 * time.Minute
)

// tellSlotless writes an event while the container runtime does not ask the agent, and one
// when it does again, until ctx is done.
func tellSlotless(ctx context.Context, guard deviceplugin.Guard, tell func(kind, reason, action, text string)) {
	const action = "Advertise"
	told := ""
	for ctx.Err() == nil {
		changed, down := guard.Down()
		var due <-chan time.Time
		switch {
		case down == nil && told != "":
			tell(corev1.EventTypeNormal, v1alpha1.ReasonNRIAgain, action, "the container runtime asks the agent again: the node offers shares")
			told = ""
		case down != nil && down.Error() == told:
			due = time.After(slotlessAgain)
		case down != nil:
			due = time.After(slotlessAfter)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-due:
			told = down.Error()
			tell(corev1.EventTypeWarning, v1alpha1.ReasonNRI, action, fmt.Sprintf("no share can be put into a container, so the node offers none: %s", told))
		}
	}
}
