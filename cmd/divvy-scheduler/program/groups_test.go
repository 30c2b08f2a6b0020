package program

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// objects is a client for objects of every kind.
func (f *fleet) objects() dynamic.Interface {
	f.t.Helper()
	client, err := dynamic.NewForConfig(f.Config())
	if err != nil {
		f.t.Fatal(err)
	}
	return client
}

// define installs a kind whose objects have whatever they like.
func (f *fleet) define(group, version, plural, kind string) {
	f.t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group, "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, for a test"}},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"plural": plural, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
			"versions": []any{map[string]any{
				"name": version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	if _, err := f.objects().Resource(definitions).Create(f.t.Context(), definition, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// podGroup makes a PodGroup for so many members, or changes it.
func (f *fleet) podGroup(group schema.GroupVersion, name string, minimum int64) {
	f.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group.String(), "kind": "PodGroup", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"minMember": minimum},
	}}
	client := f.objects().Resource(group.WithResource("podgroups")).Namespace(namespace)
	f.until("PodGroup "+name+" is written", func(ctx context.Context) (bool, string) {
		_, err := client.Apply(ctx, name, object, metav1.ApplyOptions{FieldManager: "test", Force: true})
		return err == nil, fmt.Sprint(err) // a kind is served a moment after it was installed
	})
}

// says waits until a pod's reason has a text.
func (f *fleet) says(pod, text string) {
	f.t.Helper()
	f.until(fmt.Sprintf("pod %s waits because %q", pod, text), func(ctx context.Context) (bool, string) {
		got, err := f.client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.PodScheduled {
				return strings.Contains(c.Message, text), c.Message
			}
		}
		return false, "it says nothing"
	})
}

// hear begins to hear why a pod that is not there yet will wait. The function that it returns waits until one of the reasons so far has a
// text: it misses none that is soon another one.
func (f *fleet) hear(pod string) (says func(text string)) {
	f.t.Helper()
	events, err := f.client.CoreV1().Pods(namespace).Watch(f.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + pod})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(events.Stop)
	return func(text string) {
		f.t.Helper()
		var heard []string
		end := time.NewTimer(limit)
		defer end.Stop()
		for {
			select {
			case event := <-events.ResultChan():
				p, ok := event.Object.(*corev1.Pod)
				if !ok {
					f.t.Fatalf("hear why pod %s waits: %+v", pod, event)
				}
				for _, c := range p.Status.Conditions {
					if c.Type == corev1.PodScheduled && strings.Contains(c.Message, text) {
						return
					}
					heard = append(heard, c.Message)
				}
			case <-end.C:
				f.t.Fatalf("pod %s waits because %q: not within %v: %q\n%s", pod, text, limit, heard, f.logs())
			}
		}
	}
}

// labelled makes a member of coscheduling's form.
func labelled(t *testing.T, group string, i int) *corev1.Pod {
	t.Helper()
	p := describing(t, fmt.Sprintf("%s-%d", group, i), share(60, 10))
	p.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": group}
	return p
}

// The PodGroups of coscheduling are heard of, from their definition on, whatever becomes of them; pods that wait say what
// they miss.
func TestPodGroups(t *testing.T) {
	f := newFleet(t, 2, 4)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	coscheduling := schema.GroupVersion{Group: "scheduling.x-k8s.io", Version: "v1alpha1"}
	f.create(labelled(t, "pg", 0))
	f.create(labelled(t, "pg", 1))
	f.says("pg-0", `PodGroup "pg" is of scheduling.x-k8s.io/v1alpha1, which this cluster does not serve`)
	f.define(coscheduling.Group, coscheduling.Version, "podgroups", "PodGroup")
	f.says("pg-1", "does not exist in namespace default")
	f.podGroup(coscheduling, "pg", 3)
	f.says("pg-1", "waits for members: 2 of 3 are there")
	f.podGroup(coscheduling, "pg", 5000)
	f.says("pg-0", "has spec.minMember 5000: give 1 to 4096")
	f.podGroup(coscheduling, "pg", 2)
	f.bound(2)

	// More is asked while members are bound, and the group vanishes.
	f.create(labelled(t, "pg", 2))
	f.bound(3)
	f.podGroup(coscheduling, "pg", 5)
	last := labelled(t, "pg", 3)
	last.Spec.NodeSelector = map[string]string{"example.com/later": ""} // no node has it while the scheduler may not have heard of the change
	f.create(last)
	f.says("pg-3", "waits for members: 4 of 5 are there")
	for i := range 2 {
		label := []byte(`{"metadata":{"labels":{"example.com/later":""}}}`)
		if _, err := f.client.CoreV1().Nodes().Patch(t.Context(), nodeName(i), types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	client := f.objects().Resource(coscheduling.WithResource("podgroups")).Namespace(namespace)
	if err := client.Delete(t.Context(), "pg", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.says("pg-3", "does not exist in namespace default")
	f.podGroup(coscheduling, "pg", 4)
	f.bound(4)
	f.check()

	// The definition goes, and others go on.
	if err := f.objects().Resource(definitions).Delete(t.Context(), "podgroups."+coscheduling.Group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.create(labelled(t, "late", 0))
	f.says("late-0", "which this cluster does not serve")
	f.create(describing(t, "single", share(8, 10)))
	f.bound(5)
}

// A scheduler that starts beside PodGroups knows them before it places anything. Volcano's and Kubernetes' own are heard too.
func TestPodGroupsAtStart(t *testing.T) {
	f := newFleet(t, 2, 4, "--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true")
	volcano := schema.GroupVersion{Group: "scheduling.volcano.sh", Version: "v1beta1"}
	f.define(volcano.Group, volcano.Version, "podgroups", "PodGroup")
	f.podGroup(volcano, "job", 2)
	group := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "native", Namespace: namespace}}
	group.Spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: 3}
	if _, err := f.client.SchedulingV1alpha2().PodGroups(namespace).Create(t.Context(), group, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		p := describing(t, fmt.Sprintf("volcano-%d", i), share(60, 10))
		p.Annotations["scheduling.k8s.io/group-name"] = "job"
		f.create(p)
		p = describing(t, fmt.Sprintf("native-%d", i), share(60, 10))
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group.Name}
		f.create(p)
	}
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	f.bound(2)
	f.says("native-0", "waits for members: 2 of 3 are there")
	p := describing(t, "native-2", share(60, 10))
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group.Name}
	f.create(p)
	f.bound(5)
	f.check()
}
