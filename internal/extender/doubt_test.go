package extender

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

func busy(w http.ResponseWriter, _ func()) { status(w, http.StatusTooManyRequests, "later") }

// A Binding that was not answered may yet be done, whatever the API server answers to the next one.
func TestRefusedAfterUnanswered(t *testing.T) {
	for name, next := range map[string]struct {
		how  manner
		read int // how many readings fail after it
	}{
		"refused":           {how: forbidden},
		"too many requests": {how: busy},
		"conflict, no read": {how: func(w http.ResponseWriter, _ func()) { status(w, http.StatusConflict, "assigned") }, read: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nodeOf(t, "a", 1))
			w.add(podOf(t, "p", 10))
			var do func()
			w.manners(func(out http.ResponseWriter, d func()) { do = d; away(out) }, next.how)
			if err := w.ask("p", "a"); !errors.Is(err, errUnanswered) {
				t.Fatal(err)
			}
			w.mu.Lock()
			w.unread = next.read
			w.mu.Unlock()
			if err := w.ask("p", "a"); err == nil {
				t.Fatal("it is bound")
			}
			if w.room("a", 16) {
				t.Error("the GPU is free, and the first Binding may yet be done")
			}
			do()
			if w.pod("p").Spec.NodeName != "a" {
				t.Fatal("the first Binding is not done")
			}
			if w.room("a", 16) {
				t.Error("the GPU is free, and the first Binding is done")
			}
			w.tell("p")
			if w.room("a", 16) || w.core.unseen() != 0 {
				t.Errorf("the GPU is free: %v, and %d bindings are noted", w.room("a", 16), w.core.unseen())
			}
		})
	}
}

// One that is refused again and again after one that was not answered has its place until that one cannot be done any more.
func TestDoubtEnds(t *testing.T) {
	w := newWorld(t, nodeOf(t, "a", 1))
	w.add(podOf(t, "p", 10))
	w.manners(lostBefore)
	if err := w.ask("p", "a"); !errors.Is(err, errUnanswered) {
		t.Fatal(err)
	}
	for range 3 {
		w.pass(answeredBy / 4)
		w.manners(forbidden)
		if err := w.ask("p", "a"); err == nil {
			t.Fatal("it is bound")
		}
		if w.binder.look(t.Context()); w.room("a", 16) {
			t.Fatal("the GPU is free")
		}
	}
	w.pass(answeredBy / 2)
	if w.binder.look(t.Context()); !w.room("a", 16) || w.core.unseen() != 0 {
		t.Error("the GPU is not free")
	}
}

// What a pod says of GPUs beside its request decides as well, and may be changed at any time.
func TestEditedBeforeBinding(t *testing.T) {
	for name, edit := range map[string]func(*corev1.Pod){
		"models":     func(p *corev1.Pod) { p.Annotations[v1alpha1.ModelsAnnotation] = "B" },
		"preference": func(p *corev1.Pod) { p.Annotations[v1alpha1.PreferAnnotation] = "memory" },
		"queue":      func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.QueueLabel: "q"} },
	} {
		for _, told := range []bool{false, true} {
			w := newWorld(t, nodeOf(t, "a", 1))
			pod := podOf(t, "p", 10)
			w.add(pod)
			if got := w.fits(trimPod(pod), "a"); !slices.Equal(got, []string{"a"}) {
				t.Fatalf("it fits on %q", got)
			}
			w.change("p", edit)
			if told {
				w.tell("p")
			}
			if err := w.ask("p", "a"); !errors.Is(err, errRefused) || w.pod("p").Spec.NodeName != "" {
				t.Errorf("%s, told %v: it is bound to %q: %v", name, told, w.pod("p").Spec.NodeName, err)
			}
			if !w.room("a", 16) {
				t.Errorf("%s, told %v: the GPU is not free", name, told)
			}
		}
	}
}

// A pod is not bound to what was chosen for what it asked before.
func TestEditedWhileUnanswered(t *testing.T) {
	w := newWorld(t, nodeOf(t, "a", 1))
	pod := podOf(t, "p", 10)
	w.add(pod)
	w.manners(lostBefore)
	if err := w.ask("p", "a"); !errors.Is(err, errUnanswered) {
		t.Fatal(err)
	}
	w.change("p", func(p *corev1.Pod) { p.Annotations[v1alpha1.RequestAnnotation] = requestText(t, 2) })
	w.tell("p")
	for range 2 {
		if err := w.ask("p", "a"); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "changed") {
			t.Errorf("it is bound to %q: %v", w.pod("p").Spec.NodeName, err)
		}
	}
	for range 2 {
		w.pass(answeredBy)
		w.binder.look(t.Context())
	}
	if err := w.ask("p", "a"); err != nil {
		t.Error(err)
	}
	request, _ := v1alpha1.ParsePodRequest(w.pod("p").Annotations[v1alpha1.RequestAnnotation])
	assignment, err := v1alpha1.ParsePodAssignment(w.pod("p").Annotations[v1alpha1.AssignmentAnnotation])
	if err != nil || assignment.Answers("uid-p", &request) != nil {
		t.Errorf("%+v, %v", assignment, err)
	}
}
