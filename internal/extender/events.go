package extender

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/extender/ledger"
)

const (
	// longestNote is the longest message of an event, in bytes.
	longestNote = 1024
	// mostOfName is how much of a node's name is in an event's.
	mostOfName = 200
)

// tellAgain is the time after which a fence that lasts is told of again: events are forgotten after an hour.
const tellAgain = 30 * time.Minute

// fences tells on nodes of GPUs that are fenced, for each reason once and again while it lasts.
type fences struct {
	core   *core
	client kubernetes.Interface
	now    func() time.Time
	counts *counts
	log    *slog.Logger
	known  map[string]time.Time // when a fence was told of last
	// identity names this replica.
	identity string
}

// look tells what is new, and what has lasted.
func (f *fences) look(ctx context.Context) {
	all := f.core.fences()
	f.counts.fence(all)
	known := f.known
	f.known = make(map[string]time.Time, len(all))
	for _, fence := range all {
		id := fence.Node + " " + fence.UUID + " " + fence.Reason
		told, is := known[id]
		if is {
			f.known[id] = told
			if f.now().Sub(told) < tellAgain {
				continue
			}
		}
		if err := f.tell(ctx, fence); err != nil {
			f.log.WarnContext(ctx, "cannot tell that a GPU is fenced", "node", fence.Node, "error", err)
			continue
		}
		f.log.WarnContext(ctx, "a GPU is fenced", "node", fence.Node, "gpu", fence.UUID, "because", fence.Reason, "pods", fence.Pods)
		f.known[id] = f.now()
	}
}

func (f *fences) tell(ctx context.Context, fence ledger.Fence) error {
	note := fenceNote(fence)
	ctx, cancel := context.WithTimeout(ctx, longestRead)
	defer cancel()
	_, err := f.client.EventsV1().Events(metav1.NamespaceDefault).Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: nameOf(fence.Node), Namespace: metav1.NamespaceDefault},
		EventTime:  metav1.NewMicroTime(f.now()), ReportingController: v1alpha1.Domain + "/scheduler-extender", ReportingInstance: f.identity,
		Action: "Scheduling", Reason: v1alpha1.ReasonFenced, Type: corev1.EventTypeWarning, Note: note,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: fence.Node},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("write an event on node %s: %w", fence.Node, err)
	}
	return nil
}

// nameOf begins the names of events on a node. A long name is cut, and no part of an object's name may end in a dot or a dash.
func nameOf(node string) string {
	return strings.TrimRight(node[:min(len(node), mostOfName)], ".-") + "-"
}

func fenceNote(fence ledger.Fence) string {
	what := "GPU " + fence.UUID + " takes"
	if fence.UUID == "" {
		what = "the node's GPUs take"
	}
	note := what + " no more shares: " + fence.Reason
	if len(fence.Pods) > 0 {
		note += "; pods with UID " + strings.Join(fence.Pods, ", ")
	}
	if len(note) > longestNote {
		note = strings.ToValidUTF8(note[:longestNote-3], "") + "..."
	}
	return note
}
