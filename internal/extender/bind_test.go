package extender

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// What becomes of a binding when the pod, or the API server, is not as it was.
func TestBind(t *testing.T) {
	for name, test := range map[string]struct {
		before  func(*world)
		manners []manner
		bound   bool
		posts   int
		want    string // of the error
	}{
		"done":        {bound: true, posts: 1},
		"refused":     {manners: []manner{forbidden}, posts: 1, want: "no"},
		"another UID": {before: func(w *world) { w.change("p", func(p *corev1.Pod) { p.UID = "other" }) }, posts: 1, want: "is gone"},
		"gone":        {before: func(w *world) { w.remove("p") }, posts: 1, want: "is gone"},
		"gone, told":  {before: func(w *world) { w.remove("p"); w.tell("p") }, want: "is gone"},
		"ends": {before: func(w *world) {
			w.change("p", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })
		}, posts: 1, want: "changed"},
		"elsewhere":    {before: func(w *world) { w.change("p", func(p *corev1.Pod) { p.Spec.NodeName = "b" }) }, posts: 1, want: "another scheduler has bound"},
		"forged":       {before: func(w *world) { w.change("p", func(p *corev1.Pod) { p.Spec.NodeName = "a" }) }, posts: 1, want: "another scheduler has bound"},
		"another note": {before: func(w *world) { w.change("p", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }) }, bound: true, posts: 2},
		"edited": {before: func(w *world) {
			w.change("p", func(p *corev1.Pod) { p.Annotations[v1alpha1.RequestAnnotation] = requestText(w.t, 1) })
		}, posts: 1, want: "changed"},
		"edited, told": {before: func(w *world) {
			w.change("p", func(p *corev1.Pod) { p.Annotations[v1alpha1.RequestAnnotation] = requestText(w.t, 1) })
			w.tell("p")
		}, want: "changed after it was filtered"},
		"gated": {before: func(w *world) {
			w.change("p", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}} })
		}, posts: 1, want: "changed"},
		"conflict, no read": {before: func(w *world) { w.change("p", func(*corev1.Pod) {}); w.unread = 1 }, posts: 1, want: "etcd"},
		"node gone":         {before: func(w *world) { w.core.dropNode("a") }, want: "node a"},
		"answer lost":       {manners: []manner{lostAfter}, bound: true, posts: 1},
		"fault after it":    {manners: []manner{brokenAfter}, bound: true, posts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nodeOf(t, "a", 1), nodeOf(t, "b", 1))
			pod := podOf(t, "p", 10)
			w.add(pod)
			if got := w.fits(trimPod(pod), "a", "b", "c"); !slices.Equal(got, []string{"a", "b"}) {
				t.Fatalf("it fits on %q", got)
			}
			if test.before != nil {
				test.before(w)
			}
			w.manners(test.manners...)
			err := w.ask("p", "a")
			if (err == nil) != test.bound || err != nil && (!errors.Is(err, errRefused) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if len(w.posts) != test.posts {
				t.Errorf("%d Bindings were written: %+v", len(w.posts), w.posts)
			}
			if gone := name == "node gone"; !gone && w.room("a", 16) == test.bound {
				t.Errorf("GPU a is free: %v", !test.bound)
			}
			if test.bound {
				assignment, err := v1alpha1.ParsePodAssignment(w.pod("p").Annotations[v1alpha1.AssignmentAnnotation])
				request, _ := v1alpha1.ParsePodRequest(w.pod("p").Annotations[v1alpha1.RequestAnnotation])
				if err != nil || assignment.Answers("uid-p", &request) != nil {
					t.Errorf("%+v, %v", assignment, err)
				}
				w.tell("p")
			}
			if w.core.unseen() != 0 {
				t.Errorf("%d bindings are noted", w.core.unseen())
			}
			if gone := name == "node gone"; !gone && w.room("a", 16) == test.bound {
				t.Errorf("GPU a is free after the pod was seen: %v", !test.bound)
			}
		})
	}
}

// Nothing is given back while the API server may yet do what it has not answered.
func TestUnanswered(t *testing.T) {
	for name, how := range map[string]manner{"connection lost": lostBefore, "fault": broken} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nodeOf(t, "a", 1), nodeOf(t, "b", 1))
			pod := podOf(t, "p", 10)
			w.add(pod)
			w.manners(how, how)
			w.unread = 1
			if err := w.ask("p", "a"); !errors.Is(err, errUnanswered) {
				t.Fatal(err)
			}
			if w.room("a", 16) {
				t.Error("the GPU is free")
			}
			if got := w.fits(trimPod(pod), "a", "b"); !slices.Equal(got, []string{"a"}) {
				t.Errorf("it fits on %q too", got)
			}
			if err := w.ask("p", "b"); !errors.Is(err, errRefused) || len(w.posts) != 1 {
				t.Errorf("it was bound to another node meanwhile: %v, %d Bindings", err, len(w.posts))
			}
			for passed := time.Duration(0); passed < answeredBy; passed += time.Second {
				w.binder.look(t.Context())
				if w.room("a", 16) {
					t.Fatalf("the GPU is free after %v", passed)
				}
				w.pass(time.Second)
			}
			w.pass(answeredBy)
			w.mu.Lock()
			w.unread = 1
			w.mu.Unlock()
			w.binder.look(t.Context())
			if w.room("a", 16) {
				t.Error("the GPU is free, though nobody knows")
			}
			w.pass(answeredBy)
			w.binder.look(t.Context())
			if !w.room("a", 16) || w.core.unseen() != 0 {
				t.Error("the GPU is not free")
			}
		})
	}
}

// A scheduler that asks again has the same written again.
func TestAskedAgain(t *testing.T) {
	w := newWorld(t, nodeOf(t, "a", 2))
	pod := podOf(t, "p", 10)
	w.add(pod)
	w.manners(func(out http.ResponseWriter, _ func()) {
		if got := w.fits(trimPod(pod), "a"); len(got) > 0 {
			t.Errorf("while it is written it fits on %q", got)
		}
		if err := w.ask("p", "a"); !errors.Is(err, errRefused) {
			t.Errorf("it is written twice at once: %v", err)
		}
		away(out)
	})
	if err := w.ask("p", "a"); !errors.Is(err, errUnanswered) {
		t.Fatal(err)
	}
	if err := w.ask("p", "a"); err != nil || len(w.posts) != 2 || w.posts[0].Annotations[v1alpha1.AssignmentAnnotation] != w.posts[1].Annotations[v1alpha1.AssignmentAnnotation] {
		t.Errorf("%v: %+v", err, w.posts)
	}
	if err := w.ask("p", "a"); err != nil || len(w.posts) != 2 {
		t.Errorf("what is done was written again: %v, %d Bindings", err, len(w.posts))
	}
	w.tell("p")
	if err := w.ask("p", "a"); err == nil {
		t.Error("a pod with a node was bound")
	}
}

// A Binding that is done late is found, and its place stays until watches tell of the pod.
func TestDoneLate(t *testing.T) {
	w := newWorld(t, nodeOf(t, "a", 1))
	w.add(podOf(t, "p", 10))
	var do func()
	w.manners(func(out http.ResponseWriter, d func()) { do = d; away(out) })
	if err := w.ask("p", "a"); !errors.Is(err, errUnanswered) {
		t.Fatal(err)
	}
	do()
	for range 5 {
		w.pass(answeredBy)
		w.binder.look(t.Context())
		if w.room("a", 16) {
			t.Fatal("the GPU is free")
		}
	}
	w.tell("p")
	if w.core.unseen() != 0 || w.room("a", 16) {
		t.Errorf("%d bindings are noted", w.core.unseen())
	}
	w.remove("p")
	w.tell("p")
	if !w.room("a", 16) {
		t.Error("the GPU is not free after the pod")
	}
}

// Of a pod that was bound, and is deleted before watches tell of it, nothing stays.
func TestNeverSeen(t *testing.T) {
	w := newWorld(t, nodeOf(t, "a", 1))
	w.add(podOf(t, "p", 10))
	if err := w.ask("p", "a"); err != nil {
		t.Fatal(err)
	}
	w.remove("p")
	w.binder.look(t.Context())
	if w.room("a", 16) {
		t.Error("a pod is read that was bound just now")
	}
	w.pass(unseenFor)
	w.binder.look(t.Context())
	if !w.room("a", 16) || w.core.unseen() != 0 {
		t.Error("the GPU is not free")
	}
}

// Two schedulers ask for the same pods at once, and the API server fails at random: no GPU is given twice, no pod has a node
// without an assignment, and what the core counts in the end is what pods have.
func TestGivenOnce(t *testing.T) {
	const nodes, pods, gibs = 4, 120, 5
	random := rand.New(rand.NewPCG(1, 2))
	var all []*corev1.Node
	var names []string
	for i := range nodes {
		names = append(names, "n"+strconv.Itoa(i))
		all = append(all, nodeOf(t, names[i], 2))
	}
	w := newWorld(t, all...)
	faults := []manner{lostAfter, lostBefore, broken, brokenAfter, forbidden, nil, nil, nil}
	for i := range pods {
		w.add(podOf(t, "p"+strconv.Itoa(i), gibs))
		w.next = append(w.next, faults[random.IntN(len(faults))])
	}
	var asking sync.WaitGroup
	for scheduler := range 2 {
		asking.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(scheduler)))
			for i := range pods {
				name := "p" + strconv.Itoa(i)
				if fits := w.fits(trimPod(w.pod(name)), names...); len(fits) > 0 {
					_ = w.ask(name, fits[random.IntN(len(fits))])
				}
				if random.IntN(3) == 0 {
					w.tell(name)
				}
			}
		})
	}
	asking.Wait()
	w.check(gibs)
	w.manners()
	w.pass(answeredBy)
	w.binder.look(t.Context())
	for i := range pods {
		w.tell("p" + strconv.Itoa(i))
	}
	if w.core.unseen() != 0 {
		t.Errorf("%d bindings are noted", w.core.unseen())
	}
	for i := range pods {
		name := "p" + strconv.Itoa(i)
		if fits := w.fits(trimPod(w.pod(name)), names...); len(fits) > 0 && w.pod(name).Spec.NodeName == "" {
			if err := w.ask(name, fits[0]); err != nil {
				t.Error(err)
			}
		}
	}
	if bound := w.check(gibs); bound != nodes*2*(16/gibs) {
		t.Errorf("%d pods have a place", bound)
	}
}

// check looks that no GPU is given twice, and counts the pods that have a node.
func (w *world) check(gibs uint64) (bound int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	given := map[string]uint64{}
	for name, pod := range w.pods {
		if pod.Spec.NodeName == "" {
			continue
		}
		bound++
		assignment, err := v1alpha1.ParsePodAssignment(pod.Annotations[v1alpha1.AssignmentAnnotation])
		if err != nil {
			w.t.Errorf("%s has a node and no assignment: %v", name, err)
			continue
		}
		given[assignment.Shares[0].GPUs[0].UUID] += assignment.Shares[0].GPUs[0].Memory / gib
	}
	for uuid, gave := range given {
		if gave > 16 {
			w.t.Errorf("%d GiB of %s are given", gave, uuid)
		}
	}
	if bound == 0 || gibs == 0 {
		w.t.Error("nothing is bound")
	}
	return bound
}
