package dialect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// departments are a tree of three queues: two with namespaces, and one whose namespaces nobody else lists.
func departments(others bool) *queue.Tree {
	specs := []queue.Spec{
		{Name: "speech", QueueSpec: v1alpha1.QueueSpec{Namespaces: []string{"talk"}}},
		{Name: "vision", QueueSpec: v1alpha1.QueueSpec{Namespaces: []string{"space", "look"}}},
		{Name: "large", QueueSpec: v1alpha1.QueueSpec{Namespaces: []string{"n1", "n2", "n3", "n4", "n5", "n6"}}},
		{Name: "root"},
	}
	if others {
		specs = append(specs, queue.Spec{Name: "rest", QueueSpec: v1alpha1.QueueSpec{Namespaces: []string{v1alpha1.OtherNamespaces}}})
	}
	return queue.NewTree(specs)
}

// labelled is a pod of a namespace with labels by their names below Divvy's domain, on a node if that is not empty.
func labelled(namespace, node string, labels ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{"app": "web"}}}
	pod.Spec.NodeName = node
	for i := 0; i < len(labels); i += 2 {
		pod.Labels[v1alpha1.Domain+"/"+labels[i]] = labels[i+1]
	}
	return pod
}

// refusedFor checks that an error is a refusal of one line that says something, or none.
func refusedFor(t *testing.T, what string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

func TestQueuesOfPods(t *testing.T) {
	for _, c := range []struct {
		name            string
		tree            *queue.Tree
		pod             *corev1.Pod
		refused, warned string
	}{
		{"no labels", departments(false), labelled("space", ""), "", ""},
		{"its queue", departments(false), labelled("space", "", "queue", "vision", "quota", "guaranteed", "movable", "true"), "", ""},
		{"empty labels", departments(false), labelled("space", "", "queue", "", "quota", "", "movable", ""), "", ""},
		{"another department's queue", departments(false), labelled("space", "", "queue", "speech"),
			"label divvy.dev/queue: queue speech is for pods of namespace talk, and this one is of space, whose queue is vision: leave it out", ""},
		{"a queue of many", departments(false), labelled("space", "", "queue", "large"), "for pods of namespace n1, n2, n3, n4 and 2 more, and", ""},
		{"a queue of nobody", departments(false), labelled("space", "", "queue", "root"), "queue root is for pods of no namespace", ""},
		{"from outside", departments(false), labelled("out", "", "queue", "vision"), "of out, which no queue lists", ""},
		{"a queue for the rest", departments(true), labelled("out", "", "queue", "rest"), "", ""},
		{"the rest is not for all", departments(true), labelled("space", "", "queue", "rest"), "for pods of namespaces that no other queue lists", ""},
		{"a queue to come", departments(false), labelled("space", "", "queue", "sound"), "", "there is no queue sound: the pod waits"},
		{"no name", departments(false), labelled("space", "", "queue", "Vision_1"), `"Vision_1" is no name of a queue`, ""},
		{"no quota", departments(false), labelled("space", "", "quota", "Guaranteed"), `label divvy.dev/quota: "Guaranteed": choose guaranteed, borrowing or opportunistic`, ""},
		{"not movable", departments(false), labelled("space", "", "movable", "yes"), `label divvy.dev/movable: "yes": give true or false`, ""},
		{"guaranteed outside", departments(false), labelled("out", "", "quota", "guaranteed"), "", "nothing is guaranteed to namespace out"},
		{"guaranteed among the rest", departments(true), labelled("out", "", "quota", "guaranteed"), "", ""},
		{"borrowing outside", departments(false), labelled("out", "", "quota", "borrowing"), "", ""},
		{"nobody serves queues", nil, labelled("space", "", "queue", "speech", "quota", "guaranteed"), "", ""},
		{"nobody reads it", nil, labelled("space", "", "quota", "best"), "choose guaranteed", ""},
	} {
		warnings, err := CheckQueue(c.pod, c.tree)
		refusedFor(t, c.name, err, c.refused)
		if got := strings.Join(warnings, "\n"); !strings.Contains(got, c.warned) || c.warned == "" && got != "" {
			t.Errorf("%s: warnings %q, want %q", c.name, got, c.warned)
		}
	}
}

func TestQueuesOfPodsLater(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after *corev1.Pod
		refused       string
	}{
		{"nothing", labelled("space", "n1", "queue", "vision"), labelled("space", "n1", "queue", "vision", "../app", "x"), ""},
		{"the label of its queue", labelled("space", ""), labelled("space", "", "queue", "vision"), ""},
		{"none any more", labelled("space", "", "queue", "sound"), labelled("space", ""), ""},
		{"another department's", labelled("space", ""), labelled("space", "", "queue", "speech"), "queue speech is for pods of namespace talk"},
		{"a queue to come", labelled("space", ""), labelled("space", "", "queue", "sound"), "there is no queue sound"},
		{"on a node", labelled("space", "n1", "queue", "vision"), labelled("space", "n1"), "label divvy.dev/queue does not change once the pod has a node"},
		{"more quota", labelled("space", ""), labelled("space", "", "quota", "guaranteed"), "label divvy.dev/quota does not change once the pod is created"},
		{"less quota on a node", labelled("space", "n1"), labelled("space", "n1", "quota", "opportunistic"), "does not change once the pod is created"},
		{"the same quota", labelled("space", "n1"), labelled("space", "n1", "quota", "borrowing"), ""},
		{"no quota", labelled("space", ""), labelled("space", "", "quota", "best"), "choose guaranteed"},
		{"moves", labelled("space", "n1"), labelled("space", "n1", "movable", "true"), ""},
		{"stays", labelled("space", "n1", "movable", "true"), labelled("space", "n1", "movable", "false"), ""},
		{"moves somehow", labelled("space", "n1"), labelled("space", "n1", "movable", "maybe"), "give true or false"},
		{"a fault that was there", labelled("space", "n1", "movable", "maybe", "queue", "speech"), labelled("space", "n1", "movable", "maybe", "queue", "speech"), ""},
	} {
		refusedFor(t, c.name, CheckRequeued(c.before, c.after, departments(false)), c.refused)
	}
	refusedFor(t, "nobody serves queues", CheckRequeued(labelled("space", ""), labelled("space", "", "queue", "speech"), nil), "")
}

func TestSchedulersOfQueues(t *testing.T) {
	ours := newScheduled(t, "{plain: {}}")
	pod := func(namespace, scheduler string, claims int) *corev1.Pod {
		p := labelled(namespace, "")
		p.Spec.SchedulerName, p.Spec.ResourceClaims = scheduler, make([]corev1.PodResourceClaim, claims)
		return p
	}
	claim := func(namespace string, extended bool) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
		if extended {
			c.Annotations = map[string]string{"resource.kubernetes.io/extended-resource-claim": "true"}
		}
		return c
	}
	const other = "default-scheduler"
	for _, c := range []struct {
		name    string
		err     error
		refused string
	}{
		{"ours", ours.CheckServed(pod("space", v1alpha1.SchedulerName, 1), departments(false)), ""},
		{"another", ours.CheckServed(pod("space", other, 1), departments(false)),
			"the pod has claims and is for scheduler default-scheduler, and namespace space is of queue vision, whose limits only scheduler divvy-scheduler keeps"},
		{"another without claims", ours.CheckServed(pod("space", other, 0), departments(false)), ""},
		{"another outside", ours.CheckServed(pod("out", other, 1), departments(false)), ""},
		{"another among the rest", ours.CheckServed(pod("out", other, 1), departments(true)), "is of queue rest"},
		{"no queues", ours.CheckServed(pod("space", other, 1), nil), ""},
		{"an extended resource of ours", ours.CheckMaker(claim("space", true), "system:serviceaccount:divvy-system:divvy-scheduler", departments(false)), ""},
		{"an extended resource", ours.CheckMaker(claim("space", true), "system:kube-scheduler", departments(false)), "namespace space is of queue vision, whose limits only"},
		{"an extended resource outside", ours.CheckMaker(claim("out", true), "system:kube-scheduler", departments(false)), ""},
		{"a user's claim", ours.CheckMaker(claim("space", false), "somebody", departments(false)), ""},
		{"an extended resource without queues", ours.CheckMaker(claim("space", true), "system:kube-scheduler", nil), ""},
	} {
		refusedFor(t, c.name, c.err, c.refused)
	}
}

// FuzzQueueLabels reads foreign labels: a refusal is one line, and what passes names a queue that the namespace may use, or none
// that is there.
func FuzzQueueLabels(f *testing.F) {
	f.Add("vision", "guaranteed", "true")
	f.Add("spe\nech", "\xff", "")
	f.Add("speech", "", "false")
	tree := departments(true)
	f.Fuzz(func(t *testing.T, name, quota, movable string) {
		pod := labelled("space", "", "queue", name, "quota", quota, "movable", movable)
		for _, err := range []error{func() error { _, err := CheckQueue(pod, tree); return err }(), CheckRequeued(labelled("space", ""), pod, tree)} {
			switch {
			case err != nil && (!errors.Is(err, ErrRefused) || strings.ContainsAny(err.Error(), "\n\r")):
				t.Errorf("%q is not a refusal of one line", err)
			case err == nil && slices.Contains([]string{"speech", "large", "root", "rest"}, name):
				t.Error(fmt.Sprint("in queue ", name))
			}
		}
	})
}
