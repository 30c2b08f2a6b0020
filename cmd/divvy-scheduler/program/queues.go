package program

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler"
)

// tick is the time between two looks at what changes without an event: statuses of queues, and pods for which others may end by now.
const tick = time.Second

// followObjects has the engine hear of the objects that describe gangs, and of queues.
func (c *core) followObjects(config *rest.Config) error {
	// Kinds of other groups are not served in Kubernetes' own encoding.
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make the client that reads PodGroups and queues: %w", err)
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make the client that asks which kinds are served: %w", err)
	}
	c.objects = objects
	c.engine.FollowGroups(c.ctx, served, objects, func(pods ...*corev1.Pod) { c.activate(pods...) })
	c.engine.FollowQueues(c.ctx, served, objects, func() { c.activate(c.engine.Waiting.First()...) })
	return nil
}

// ticking looks at what changes without an event until the context ends, between two cycles.
func (a *adapter) ticking() {
	go wait.UntilWithContext(a.ctx, func(ctx context.Context) {
		a.turn.Lock()
		a.engine.Drain()
		now := time.Now()
		stale, due := a.engine.Standings(now), a.engine.Due(now)
		if first := a.engine.Rouse(); first != nil {
			due = append(due, first)
		}
		suspendedPods.Set(float64(a.engine.Suspended()))
		a.carryOut()
		a.turn.Unlock()
		a.activate(due...)
		if a.engine.Edited() {
			a.activate(a.engine.Waiting.First()...)
		}
		for i := range stale {
			a.writeStanding(ctx, &stale[i])
		}
	}, tick)
}

// writeStanding writes the status of a queue.
func (a *adapter) writeStanding(ctx context.Context, q *v1alpha1.Queue) {
	text, err := json.Marshal(q.Status)
	status := map[string]any{}
	if err == nil {
		err = json.Unmarshal(text, &status)
	}
	for _, field := range []string{"resources", "running", "waiting", "conditions"} {
		if _, there := status[field]; !there {
			status[field] = nil // what a merge leaves out would stay
		}
	}
	var patch []byte
	if err == nil {
		patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"uid": q.Metadata.UID}, "status": status})
	}
	if err == nil {
		_, err = a.objects.Resource(scheduler.QueuesResource).Patch(ctx, q.Metadata.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Status of queue not written", "queue", q.Metadata.Name, "err", err)
	}
}
