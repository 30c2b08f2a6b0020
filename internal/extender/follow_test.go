package extender

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/extender/ledger"
)

// listOf is what an API server lists.
func listOf(revision string, pods ...[2]string) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: revision}}
	for _, pod := range pods {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod[0], ResourceVersion: pod[1]}})
	}
	return list
}

// Nothing is answered until watches have told of all that the API server has, and that what it has not is gone.
func TestCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(ledgerOf(t))
		f := follow(fake.NewClientset(), c)
		for _, name := range []string{"old", "gone", "later"} {
			pod := podOf(t, name, 1)
			pod.ResourceVersion = map[string]string{"old": "3", "gone": "4", "later": "9"}[name]
			c.setPod(pod)
		}
		asked, told := 0, ""
		done := make(chan error, 1)
		go func() {
			done <- f.catchUp(t.Context(), func(context.Context) (*metav1.PartialObjectMetadataList, error) {
				asked++
				return listOf("8", [2]string{"old", "5"}, [2]string{"new", "8"}), nil
			}, func(why string) { told = why })
		}()
		for _, next := range []struct {
			why string
			how func()
		}{
			{"default/old", func() { p := podOf(t, "old", 1); p.ResourceVersion = "5"; c.setPod(p) }},
			{"default/new", func() { p := podOf(t, "new", 1); p.ResourceVersion = "8"; c.setPod(p) }},
			{"default/gone", func() { f.dropPod("default", "gone") }},
		} {
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if !strings.Contains(told, next.why) || len(done) > 0 {
				t.Errorf("waits for %q, not for %q", told, next.why)
			}
			next.how()
		}
		if err := <-done; err != nil || asked < 3 {
			t.Errorf("asked %d times: %v", asked, err)
		}
	})
}

// However often pods are deleted, a replica begins to lead: a pod that went after the list was made is not waited for.
func TestCatchUpWhilePodsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(ledgerOf(t))
		f := follow(fake.NewClientset(), c)
		revision := 0
		var there []*corev1.Pod
		create := func() {
			revision++
			pod := podOf(t, fmt.Sprint("p", revision), 1)
			pod.ResourceVersion = strconv.Itoa(revision)
			there = append(there, pod)
			c.setPod(pod)
		}
		for range 20 {
			create()
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		done := make(chan error, 1)
		go func() {
			done <- f.catchUp(ctx, func(context.Context) (*metav1.PartialObjectMetadataList, error) {
				list := listOf(strconv.Itoa(revision))
				for _, pod := range there {
					list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: *pod.ObjectMeta.DeepCopy()})
				}
				time.Sleep(500 * time.Millisecond)
				return list, nil
			}, func(string) {})
		}()
		begun := time.Now()
		for {
			synctest.Wait()
			select {
			case err := <-done:
				if took := time.Since(begun); err != nil || took > 600*time.Millisecond {
					t.Errorf("after %v: %v", took, err)
				}
				return
			default:
			}
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			revision++
			f.dropPod(there[0].Namespace, there[0].Name)
			there = there[1:]
			create()
		}
	})
}

func ledgerOf(t testing.TB) *ledger.Ledger {
	t.Helper()
	policy, err := alloc.PolicyNamed(alloc.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.New(ledger.Config{Policy: policy, Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What is kept of pods and nodes says the same as all of them.
func TestTrimmed(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	amounts := func(cpu, memory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}}
	}
	pod := podOf(t, "p", 4)
	pod.Annotations["kubectl.kubernetes.io/last-applied-configuration"] = strings.Repeat("x", 100_000)
	pod.Annotations[v1alpha1.ModelsAnnotation] = "A"
	pod.Labels = map[string]string{"app": "x", v1alpha1.QueueLabel: "q"}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x", Operation: metav1.ManagedFieldsOperationApply}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: amounts("3", "1Gi"), Env: []corev1.EnvVar{{Name: "A", Value: strings.Repeat("y", 10_000)}}}, {Name: "d", Resources: amounts("1", "1Gi")}}
	pod.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: amounts("9", "2Gi")}, {Name: "s", RestartPolicy: &always, Resources: amounts("2", "3Gi")}}
	pod.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("250m")}
	node := nodeOf(t, "a", 2)
	node.Annotations["x"] = "y"
	node.Status.Images = []corev1.ContainerImage{{Names: []string{strings.Repeat("z", 10_000)}}}
	short := trimPod(pod)
	if text, err := json.Marshal(short); err != nil || len(text) > 3000 {
		t.Errorf("%d bytes are kept: %v", len(text), err)
	}
	if foreign(short) == "" || foreign(short) != foreign(pod) {
		t.Errorf("%q, not %q", foreign(short), foreign(pod))
	}
	whole, less := ledgerOf(t), ledgerOf(t)
	whole.SetNode("a", node)
	less.SetNode("a", trimNode(node))
	bound := pod.DeepCopy()
	bound.Spec.NodeName = "a"
	assignment, err := whole.Reserve(pod, "a")
	if err != nil {
		t.Fatal(err)
	}
	whole.Undo(pod.UID)
	if bound.Annotations[v1alpha1.AssignmentAnnotation], err = assignment.Text(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*corev1.Pod{pod, bound} {
		whole.SetPod(p.UID, p)
		less.SetPod(p.UID, trimPod(trimPod(p)))
		if difference := whole.Difference(less); difference != "" {
			t.Error(difference)
		}
	}
}

// A list replaces all that was known.
func TestListReplaces(t *testing.T) {
	w := newWorld(t, nodeOf(t, "a", 1), nodeOf(t, "b", 1))
	w.add(podOf(t, "p", 1), podOf(t, "q", 1))
	f := follow(fake.NewClientset(nodeOf(t, "b", 1), podOf(t, "q", 1)), w.core)
	ctx, stop := context.WithCancel(t.Context())
	f.start(ctx)
	if !f.wait(ctx) || !f.known() {
		t.Fatal("nothing was read")
	}
	stop()
	f.running.Wait()
	if w.core.pod("default", "p") != nil || w.core.pod("default", "q") == nil || w.room("a", 1) || !w.room("b", 1) {
		t.Errorf("pods %v", w.core.pods)
	}
}

// A node is told that one of its GPUs is fenced, once, and every half an hour while it lasts.
func TestFenceIsTold(t *testing.T) {
	w := newWorld(t, nodeOf(t, "a", 1))
	w.core.advance(w.now())
	for _, name := range []string{"p", "q"} {
		pod := podOf(t, name, 10)
		other := newWorld(t, nodeOf(t, "a", 1))
		other.add(pod)
		if err := other.ask(name, "a"); err != nil {
			t.Fatal(err)
		}
		w.add(other.pod(name))
	}
	client := fake.NewClientset()
	named := 0
	client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if event, ok := action.(clienttesting.CreateAction).GetObject().(*eventsv1.Event); ok { // as an API server names what has no name
			named++
			event.Name = event.GenerateName + strconv.Itoa(named)
		}
		return false, nil, nil
	})
	f := &fences{core: w.core, client: client, now: w.now, counts: newCounts(prometheus.NewRegistry(), w.core), log: slog.New(slog.DiscardHandler), identity: "me"}
	for range 3 {
		w.pass(2 * time.Minute)
		w.core.advance(w.now())
		f.look(t.Context())
	}
	events, err := client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) != 1 {
		t.Fatalf("%+v, %v", events, err)
	}
	if e := events.Items[0]; e.Reason != v1alpha1.ReasonFenced || e.Regarding.Name != "a" || !strings.Contains(e.Note, "takes no more shares") || !strings.Contains(e.Note, "uid-p, uid-q") {
		t.Errorf("%+v", e)
	}
	for range 3600 { // API servers keep an event for an hour
		w.pass(time.Second)
		f.look(t.Context())
	}
	if events, err = client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(events.Items) != 3 {
		t.Errorf("%d events of a fence that lasts, after an hour more: %v", len(events.Items), err)
	}
	if w.room("a", 1) {
		t.Error("a fenced GPU takes shares")
	}
	w.remove("q")
	w.tell("q")
	if !w.room("a", 6) {
		t.Error("the GPU is fenced for ever")
	}
}
