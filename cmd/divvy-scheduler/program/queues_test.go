package program

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler"
)

// queued is a fleet with queues, whose nodes end pods that are deleted.
type queued struct {
	*fleet
	objects dynamic.Interface
}

var kinds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// withQueues installs the kind and starts nodes that obey.
func withQueues(t *testing.T, f *fleet) *queued {
	t.Helper()
	objects, err := dynamic.NewForConfig(f.Config())
	if err != nil {
		t.Fatal(err)
	}
	q := &queued{f, objects}
	text, err := os.ReadFile(filepath.Join(checkout, "deploy", "manifests", "divvy-with-scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if !strings.Contains(document, "\nkind: CustomResourceDefinition\n") {
			continue
		}
		var object unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		if _, err := objects.Resource(kinds).Create(t.Context(), &object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f.until("the API serves queues", func(ctx context.Context) (bool, string) {
		_, err := objects.Resource(scheduler.QueuesResource).List(ctx, metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.obey(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return q
}

// patient reports whether a pod that is being deleted uses all of an hour that it was given for that.
func patient(p *corev1.Pod) bool {
	return p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds >= 3600
}

// obey ends pods that are being deleted, as nodes do.
func (q *queued) obey(ctx context.Context) {
	watch, err := q.client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	defer watch.Stop()
	now := int64(0)
	for event := range watch.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok && pod.DeletionTimestamp != nil && len(pod.Finalizers) == 0 && !patient(pod) {
			_ = q.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		}
	}
}

// queue makes or changes one.
func (q *queued) queue(name string, spec string) {
	q.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": v1alpha1.KindQueue}}
	object.SetName(name)
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		q.t.Fatal(err)
	}
	object.Object["spec"] = fields
	if _, err := q.objects.Resource(scheduler.QueuesResource).Apply(q.t.Context(), name, object, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
		q.t.Fatal(err)
	}
}

// standing is a queue as the API has it.
func (q *queued) standing(ctx context.Context, name string) v1alpha1.Queue {
	q.t.Helper()
	object, err := q.objects.Resource(scheduler.QueuesResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		q.t.Fatal(err)
	}
	text, err := json.Marshal(object.Object)
	if err != nil {
		q.t.Fatal(err)
	}
	read, err := v1alpha1.DecodeQueue(text)
	if err != nil {
		q.t.Fatal(err)
	}
	return read
}

// inQueue makes a pod that asks for whole GPUs in a queue.
func inQueue(t *testing.T, queue, name string, gibibytes int) *corev1.Pod {
	t.Helper()
	p := describing(t, name, share(gibibytes, 10))
	p.Labels = map[string]string{v1alpha1.QueueLabel: queue}
	return p
}

// running counts the pods of a queue that have a node and are not ending.
func (q *queued) running(ctx context.Context, queue string) int {
	list, err := q.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.QueueLabel + "=" + queue})
	if err != nil {
		return -1
	}
	n := 0
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

const halves = "{namespaces: [default], grace: 1s, resources: [{guaranteed: 4}]}"

// Queue a uses all eight GPUs; queue b asks for the four that are guaranteed to it, and gets them. a keeps four, and nobody else
// ends.
func TestTakeBack(t *testing.T) {
	for _, gang := range []bool{false, true} {
		t.Run(fmt.Sprintf("gang=%v", gang), func(t *testing.T) {
			f := withQueues(t, newFleet(t, 2, 4))
			f.queue("a", halves)
			f.queue("b", halves)
			f.run(v1alpha1.SchedulerName, shipped, nil, single)
			for i := range 8 {
				f.create(inQueue(t, "a", fmt.Sprint("a-", i), 80))
			}
			f.bound(8)
			f.until("a has borrowed four", func(ctx context.Context) (bool, string) {
				s := f.standing(ctx, "a").Status
				return len(s.Resources) == 1 && s.Resources[0].Borrowed == s.Resources[0].Used-4000 && s.Running == 8, fmt.Sprintf("%+v", s)
			})
			for i := range 4 {
				p := inQueue(t, "b", fmt.Sprint("b-", i), 80)
				if gang {
					p.Annotations[v1alpha1.GangAnnotation], p.Annotations[v1alpha1.GangSizeAnnotation] = "four", "4"
				}
				f.create(p)
			}
			f.until("b runs four", func(ctx context.Context) (bool, string) {
				n := f.running(ctx, "b")
				return n == 4, fmt.Sprint(n)
			})
			if n := f.running(t.Context(), "a"); n != 4 {
				t.Errorf("a keeps %d, and is entitled to 4", n)
			}
			f.check()
			f.reclaimed(4, "of queue b")
		})
	}
}

// A queue's limit holds, its pods say why they wait, and a pod of a lower queue starts when the limit is raised.
func TestQueueLimit(t *testing.T) {
	f := withQueues(t, newFleet(t, 1, 4))
	f.queue("a", "{namespaces: [default], resources: [{limit: 2}]}")
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	for i := range 3 {
		f.create(inQueue(t, "a", fmt.Sprint("a-", i), 80))
	}
	f.bound(2)
	var waits string
	for _, reason := range f.waiting(1) {
		waits = reason
	}
	if want := "queue a is limited to 2 GPUs"; !strings.Contains(waits, want) {
		t.Errorf("it waits because %q, not because %s", waits, want)
	}
	f.queue("a", "{namespaces: [default], resources: [{limit: 3}]}")
	f.bound(3)
	f.create(inQueue(t, "nowhere", "lost", 80))
	f.says("lost", "there is no queue nowhere")
}

// A pod with a higher priority takes the place of one with a lower, without any queue.
func TestPreempt(t *testing.T) {
	f := withQueues(t, newFleet(t, 1, 2))
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	for i := range 2 {
		f.create(describing(t, fmt.Sprint("low-", i), share(60, 10)))
	}
	f.bound(2)
	p := describing(t, "high", share(60, 10))
	p.Spec.PriorityClassName = "system-node-critical"
	f.create(p)
	f.until("the pod with the higher priority runs", func(ctx context.Context) (bool, string) {
		p, err := f.client.CoreV1().Pods(namespace).Get(ctx, "high", metav1.GetOptions{})
		return err == nil && p.Spec.NodeName != "", fmt.Sprint(err, p.Status.Conditions)
	})
	f.check()
}

// While others end for a gang, pods without GPUs leave its members the processors of their nodes: it ends nobody twice.
func TestTakeBackKeepsProcessors(t *testing.T) {
	f := withQueues(t, newFleet(t, 2, 2))
	f.queue("a", "{namespaces: [default], grace: 1s, resources: [{guaranteed: 2}]}")
	f.queue("b", "{namespaces: [default], grace: 1s, resources: [{guaranteed: 2}]}")
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	large := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("30")
		return p
	}
	for i := range 4 {
		p := large(inQueue(t, "a", fmt.Sprint("a-", i), 80))
		p.Finalizers = []string{"example.com/later"}
		f.create(p)
	}
	f.bound(4)
	for i := range 2 {
		p := large(inQueue(t, "b", fmt.Sprint("b-", i), 80))
		p.Annotations[v1alpha1.GangAnnotation], p.Annotations[v1alpha1.GangSizeAnnotation] = "two", "2"
		f.create(p)
	}
	for i := range 2 {
		f.says(fmt.Sprint("b-", i), "waits for 2 pods of queue a to end")
	}
	for i := range 4 { // more than is free beside what the gang needs
		f.create(large(pod(fmt.Sprint("plain-", i))))
	}
	for i := range 4 {
		f.says(fmt.Sprint("plain-", i), "Insufficient cpu")
	}
	free := []byte(`{"metadata":{"finalizers":null}}`)
	for i := range 4 {
		if _, err := f.client.CoreV1().Pods(namespace).Patch(t.Context(), fmt.Sprint("a-", i), types.MergePatchType, free, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f.runs("b", 2)
	if n := f.running(t.Context(), "a"); n != 2 {
		t.Errorf("a keeps %d, and is entitled to 2", n)
	}
}
