package explanation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Errors of reading queues. Each says what to do.
var (
	// ErrNoQueues is returned by a cluster that does not know queues.
	ErrNoQueues = errors.New("the cluster has no kind Queue: install Divvy's chart with scheduler.enabled=true and scheduler.queues=true")
	// ErrNoRight is returned to those who may not read queues.
	ErrNoRight = errors.New("you may not read queues: an administrator binds the ClusterRole divvy-queues, or view, to you by a ClusterRoleBinding")
)

var queueResource = schema.GroupVersionResource{Group: v1alpha1.Domain, Version: strings.TrimPrefix(v1alpha1.APIVersion, v1alpha1.Domain+"/"), Resource: v1alpha1.QueueResources}

// Queue is a queue as the scheduler told of it last.
type Queue struct {
	Name   string `json:"name"`
	Parent string `json:"parent,omitempty"`
	// Depth is how many queues are above it.
	Depth     int                 `json:"depth"`
	Resources []v1alpha1.QueueUse `json:"resources"`
	// Running and Waiting count pods and gangs, with those of its parts.
	Running    int              `json:"running"`
	Waiting    int              `json:"waiting"`
	Conditions []QueueCondition `json:"conditions,omitempty"`
	// Seen tells that the scheduler has told of it since it was changed last.
	Seen bool `json:"seen"`
}

// QueueCondition is what is wrong with a queue.
type QueueCondition struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	// Next is what to do.
	Next string `json:"next,omitempty"`
}

// conditionUnread is of a queue whose object cannot be read.
const conditionUnread = "Unread"

// advice says what to do about a condition.
var advice = map[string]string{
	"Invalid":        "correct the field: nothing starts in this queue and those below it until then",
	"Cycle":          "take the parent away from one of them: nothing starts in them until then",
	"NoParent":       "create the parent, or take spec.parent away: nothing starts in this queue and those below it until then",
	"Scaled":         "guarantee less to it or its siblings, or more to its parent",
	"NoGPUs":         "write a model as kubectl get resourceslices -o yaml shows it, or add such GPUs",
	"NamespaceTaken": "take the namespace away from one of the two, or label its pods " + v1alpha1.QueueLabel,
	conditionUnread:  "upgrade divvy, or correct the queue",
}

// Queues are all queues of the cluster, each after its parent, and parts by name. The error is [ErrNoQueues] or [ErrNoRight]
// where these apply.
func (r Reader) Queues(ctx context.Context) ([]Queue, error) {
	known, _, err := r.listQueues(ctx)
	if err != nil {
		return nil, err
	}
	return known.tree(), nil
}

// queueObjects are queues by name.
type queueObjects map[string]queueObject

// queueObject is a queue as it was read, or why it was not.
type queueObject struct {
	v1alpha1.Queue
	fault string
}

func (q queueObjects) put(object *unstructured.Unstructured) {
	text, err := object.MarshalJSON()
	if err == nil {
		var decoded v1alpha1.Queue
		if decoded, err = v1alpha1.DecodeQueue(text); err == nil {
			q[object.GetName()] = queueObject{Queue: decoded}
			return
		}
	}
	unread := queueObject{fault: oneLine(strings.TrimPrefix(err.Error(), v1alpha1.ErrRequest.Error()+": "))}
	unread.Metadata.Name = object.GetName()
	unread.Spec.Parent, _, _ = unstructured.NestedString(object.Object, "spec", "parent")
	q[object.GetName()] = unread
}

// listQueues also returns from which version on to watch.
func (r Reader) listQueues(ctx context.Context) (queueObjects, string, error) {
	list, err := r.Objects.Resource(queueResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", queueError(err)
	}
	known := queueObjects{}
	for i := range list.Items {
		known.put(&list.Items[i])
	}
	return known, list.GetResourceVersion(), nil
}

func queueError(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return ErrNoQueues
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w (%w)", ErrNoRight, err)
	}
	return fmt.Errorf("read the cluster's queues: %w", err)
}

// tree puts queues in order. Those of a cycle stand as roots.
func (q queueObjects) tree() []Queue {
	parts := map[string][]string{}
	for name, object := range q {
		parent := object.Spec.Parent
		if _, there := q[parent]; !there || q.circular(name) {
			parent = ""
		}
		parts[parent] = append(parts[parent], name)
	}
	all := make([]Queue, 0, len(q))
	var grow func(parent string, depth int)
	grow = func(parent string, depth int) {
		slices.Sort(parts[parent])
		for _, name := range parts[parent] {
			all = append(all, q[name].told(depth))
			grow(name, depth+1)
		}
	}
	grow("", 0)
	return all
}

// circular reports whether a queue is its own ancestor.
func (q queueObjects) circular(name string) bool {
	at := q[name].Spec.Parent
	for range q {
		if at == name {
			return true
		}
		at = q[at].Spec.Parent
	}
	return false
}

// told is a queue as it is shown.
func (o queueObject) told(depth int) Queue {
	s := &o.Status
	shown := Queue{
		Name: o.Metadata.Name, Parent: o.Spec.Parent, Depth: depth, Resources: s.Resources, Running: s.Running, Waiting: s.Waiting,
		Seen: s.ObservedGeneration > 0 && s.ObservedGeneration >= o.Metadata.Generation,
	}
	if shown.Resources == nil {
		shown.Resources = []v1alpha1.QueueUse{}
	}
	for i := range shown.Resources {
		shown.Resources[i].Model = oneLine(shown.Resources[i].Model)
	}
	if o.fault != "" {
		shown.Conditions = []QueueCondition{{conditionUnread, o.fault, advice[conditionUnread]}}
	}
	for _, c := range s.Conditions {
		if c.Status == string(metav1.ConditionTrue) {
			shown.Conditions = append(shown.Conditions, QueueCondition{oneLine(c.Type), oneLine(c.Message), advice[c.Type]})
		}
	}
	return shown
}

// FollowQueues calls show with all queues, and again whenever they have changed, until the context ends or show fails. When the
// API server cannot be reached it says so, and tries again after a pause.
func (r Reader) FollowQueues(ctx context.Context, pause time.Duration, say func(error), show func([]Queue) error) error {
	for first := true; ; first = false {
		known, version, err := r.listQueues(ctx)
		if err == nil {
			err = r.watchQueues(ctx, known, version, show)
		}
		var failed *showError
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // its end is none of the cluster's errors
		case errors.As(err, &failed):
			return failed.error
		case err != nil && (first || errors.Is(err, ErrNoQueues) || errors.Is(err, ErrNoRight)):
			return err
		case err != nil:
			say(err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// showError is one of who shows queues, and not of the cluster.
type showError struct{ error }

// watchQueues follows changes until the API server ends the watch.
func (r Reader) watchQueues(ctx context.Context, known queueObjects, version string, show func([]Queue) error) error {
	if err := show(known.tree()); err != nil {
		return &showError{err}
	}
	events, err := r.Objects.Resource(queueResource).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return queueError(err)
	}
	defer events.Stop()
	for {
		var event watch.Event
		open := true
		select {
		case event, open = <-events.ResultChan():
		case <-ctx.Done():
			return nil
		}
		if !open {
			return nil
		}
		if err := known.change(event); err != nil {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return nil // what changed since is in the next list
			}
			return queueError(err)
		}
		if err := show(known.tree()); err != nil {
			return &showError{err}
		}
	}
}

// change takes up an event of a watch. The error is one that the watch tells.
func (q queueObjects) change(event watch.Event) error {
	object, ok := event.Object.(*unstructured.Unstructured)
	switch {
	case event.Type == watch.Error:
		return apierrors.FromObject(event.Object)
	case !ok:
	case event.Type == watch.Deleted:
		delete(q, object.GetName())
	default:
		q.put(object)
	}
	return nil
}
