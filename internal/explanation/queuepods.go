package explanation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// The reasons of events of pods that end for others: for what a queue is entitled to, and for a higher priority.
const (
	eventReclaimed = "QuotaReclaimed"
	eventPreempted = "Preempted"
)

// mostNamespaces is up to how many namespaces of a queue are asked one by one, and mostEvents for how many pods that end their
// events are.
const (
	mostNamespaces = 16
	mostEvents     = 100
)

// errAllPods is returned to those who may not read the pods of all namespaces.
var errAllPods = errors.New("you may not read the pods of all namespaces: name one that you may read with --namespace")

// queuePods finds the pods of a queue, who of them waits, and which end for others.
func (r Reader) queuePods(ctx context.Context, specs []queue.Spec, e *QueueExplanation, namespace string) (pods map[types.UID]*corev1.Pod, err error) {
	tree := queue.NewTree(specs)
	pods = map[types.UID]*corev1.Pod{}
	for _, from := range sources(e, namespace) {
		if err := r.readPods(ctx, from, func(pod *corev1.Pod) {
			if queueOf(tree, pod) == e.Name && asks(pod) {
				pods[pod.UID] = pod
			}
		}); err != nil {
			return nil, err
		}
	}
	groups := &groups{ctx: ctx, client: r.Client, objects: r.Objects, known: map[groupKey]*gang.PodGroup{}}
	line := map[string]*Waiter{}
	asked := 0
	for _, id := range slices.Sorted(maps.Keys(pods)) {
		pod := pods[id]
		switch state, _ := stateOf(pod); {
		case state == Waiting && len(pod.Spec.SchedulingGates) == 0:
			wait(line, pod, groups)
		case state == Deleted && pod.Spec.NodeName != "" && asked < mostEvents:
			asked++
			why, err := r.event(ctx, pod, eventReclaimed, eventPreempted)
			if err != nil {
				return nil, err
			}
			if why == "" {
				why = disrupted(pod)
			}
			if why != "" {
				e.Ending = append(e.Ending, EndingPod{pod.Namespace, pod.Name, pod.DeletionTimestamp.Time, why})
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(line)) {
		e.Line = append(e.Line, *line[key])
	}
	slices.SortStableFunc(e.Line, before)
	slices.SortFunc(e.Ending, func(a, b EndingPod) int {
		return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod))
	})
	return pods, groups.err
}

// QueuePlace is where a pod or its gang stands in its queue.
type QueuePlace struct {
	Name string `json:"name"`
	// Waiting is how many pods and gangs wait there, and Ahead how many of them are tried before it. Both are 0 where that is not
	// known: pods of more namespaces than one would have to be read, and may not be, or are too many.
	Ahead   int `json:"ahead"`
	Waiting int `json:"waiting,omitempty"`
}

// place is where a pod stands in its queue.
func (r Reader) place(ctx context.Context, pod *corev1.Pod) (*QueuePlace, error) {
	if !asks(pod) {
		return nil, nil
	}
	known, _, err := r.listQueues(ctx)
	if errors.Is(err, ErrNoQueues) || errors.Is(err, ErrNoRight) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	specs := known.specs()
	p := &QueuePlace{Name: queueOf(queue.NewTree(specs), pod)}
	if p.Name == "" {
		return nil, nil
	}
	e := &QueueExplanation{Queue: Queue{Name: p.Name}, Namespaces: known[p.Name].Spec.Namespaces}
	if sources(e, "")[0] == (source{}) {
		return p, nil
	}
	if _, err := r.queuePods(ctx, specs, e, ""); errors.Is(err, errAllPods) {
		return p, nil
	} else if err != nil {
		return nil, err
	}
	name := pod.Name
	if own, in, err := gang.Of(pod, &groups{ctx: ctx, client: r.Client, objects: r.Objects, known: map[groupKey]*gang.PodGroup{}}); in && err == nil {
		name = own.Name
	}
	p.Ahead = slices.IndexFunc(e.Line, func(w Waiter) bool { return w.Namespace == pod.Namespace && w.Name == name })
	if p.Waiting = len(e.Line); p.Ahead < 0 { // it has gates, or has got a node meanwhile
		return &QueuePlace{Name: p.Name}, nil
	}
	return p, nil
}

// before is the order inside a queue: opportunistic ones last, then by priority, then age.
func before(a, b Waiter) int {
	last := func(w Waiter) int {
		if w.Quota == v1alpha1.QuotaOpportunistic {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since))
}

// source is where pods of a queue may be.
type source struct{ namespace, selector string }

// sources are those that name the queue, and the namespaces that are its own.
func sources(e *QueueExplanation, namespace string) []source {
	if namespace != "" {
		return []source{{namespace: namespace}}
	}
	if len(e.Namespaces) > mostNamespaces || slices.Contains(e.Namespaces, v1alpha1.OtherNamespaces) {
		return []source{{}}
	}
	all := []source{{selector: v1alpha1.QueueLabel + "=" + e.Name}}
	for _, ns := range e.Namespaces {
		all = append(all, source{namespace: ns})
	}
	return all
}

func (r Reader) readPods(ctx context.Context, from source, take func(*corev1.Pod)) error {
	options := metav1.ListOptions{Limit: mostPods, LabelSelector: from.selector}
	for {
		list, err := r.Client.CoreV1().Pods(from.namespace).List(ctx, options)
		switch {
		case apierrors.IsForbidden(err) && from.namespace == "":
			return fmt.Errorf("%w (%w)", errAllPods, err)
		case err != nil:
			return fmt.Errorf("read the queue's pods: %w", err)
		}
		for i := range list.Items {
			take(&list.Items[i])
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// queueOf is the queue in which a pod counts: the one that it names, if that is there and for its namespace, else its namespace's.
func queueOf(tree *queue.Tree, pod *corev1.Pod) string {
	name := pod.Labels[v1alpha1.QueueLabel]
	if _, there := tree.Find(name); there && tree.Admits(name, pod.Namespace) {
		return name
	}
	return tree.Name(tree.Of(pod.Namespace))
}

// asks reports whether a pod asks for GPUs by claims, in which alone queues are interested.
func asks(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0
}

// wait adds a pod to those who wait, together with the other pods of its gang.
func wait(line map[string]*Waiter, pod *corev1.Pod, described gang.PodGroups) {
	w := &Waiter{Namespace: pod.Namespace, Name: pod.Name, Since: pod.CreationTimestamp.Time, Reason: "no scheduler has looked at it yet"}
	key := "pod " + pod.Namespace + "/" + pod.Name
	var err error
	if w.Quota, err = v1alpha1.ParseQuota(pod.Labels[v1alpha1.QuotaLabel]); err != nil {
		w.Quota = v1alpha1.Quota(oneLine(pod.Labels[v1alpha1.QuotaLabel]))
	}
	if pod.Spec.Priority != nil {
		w.Priority = *pod.Spec.Priority
	}
	if c := scheduled(pod); c != nil {
		w.Reason = oneLine(cmp.Or(c.Message, c.Reason))
	}
	own, in, err := gang.Of(pod, described)
	if !in || err != nil {
		line[key] = w
		return
	}
	key, w.Name, w.Pods = "gang "+own.String(), oneLine(own.Name), 1
	first := line[key]
	if first == nil {
		line[key] = w
		return
	}
	first.Pods++
	first.Priority = max(first.Priority, w.Priority)
	if w.Since.Before(first.Since) {
		first.Since = w.Since
	}
}

// disrupted is what a pod says of why it is ended, empty where it says nothing.
func disrupted(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return oneLine(cmp.Or(c.Message, c.Reason))
		}
	}
	return ""
}
