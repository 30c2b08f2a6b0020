package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// In random histories of pods, agents, writes that fail, events that come late and leaders that follow each other, never more is given
// than there is by what claims say, and once those have gone for whom others were suspended, all of these come back.
func TestSuspensionModel(t *testing.T) {
	const runs, steps = 100, 250
	suspended, refused, resumed, restarts := 0, 0, 0, 0
	for run := range runs {
		w, random := newSuspending(t), rand.New(rand.NewPCG(1, uint64(run)))
		if run%5 == 0 {
			w.without = true
			w.lead()
		}
		for i := range 5 { // a borrows what b leaves
			w.create("a", fmt.Sprint("first", i), 20+random.IntN(16))
			w.deliver()
			w.try(fmt.Sprint("a/first", i))
			w.deliver()
		}
		for step := range steps {
			if w.step(random, fmt.Sprintf("p%d", step)) {
				restarts++
			}
			w.judge(fmt.Sprintf("run %d, step %d", run, step))
			if t.Failed() {
				t.Fatalf("run %d, step %d", run, step)
			}
		}
		w.settleDown()
		for key, claim := range w.api {
			if claim.Annotations[v1alpha1.SuspendAnnotation] != "" && w.fits(claim) {
				t.Fatalf("run %d: claim %s is suspended for ever: %+v", run, key, claim)
			}
		}
		w.judge(fmt.Sprintf("run %d, at its end", run))
		for _, s := range w.said {
			switch s.Reason {
			case ReasonSuspended:
				suspended++
			case ReasonResumed:
				resumed++
			case ReasonNotAllowed:
				refused++
			}
		}
	}
	t.Logf("%d were suspended, %d resumed, %d ended because they could not be, and %d leaders began", suspended, resumed, refused, restarts)
	if suspended < runs || resumed < runs/2 || refused < runs/10 || restarts < runs/2 {
		t.Error("too little has happened")
	}
}

// step is one random thing that happens. It reports whether that is a new leader.
func (w *suspending) step(random *rand.Rand, name string) (restart bool) {
	w.t.Helper()
	switch n := random.IntN(200); {
	case n < 16:
		if len(w.pods) > 12 {
			return false
		}
		namespace := []string{"a", "b"}[random.IntN(2)]
		p := w.create(namespace, name, 12+random.IntN(7)*8)
		if namespace == "b" {
			p.Spec.Priority = new(int32)
			*p.Spec.Priority = int32(random.IntN(3))
			w.tight[p.UID] = random.IntN(8) == 0
		}
	case n < 70:
		if key := some(random, w.pods); key != "" {
			w.try(key)
		}
	case n < 105:
		if key := some(random, w.api); key != "" {
			w.agent(key, random.IntN(5) == 0)
		}
	case n < 140:
		if len(w.writes) > 0 {
			w.writes[0]()
			w.writes = w.writes[1:]
		}
	case n < 182:
		for range min(len(w.events), 1+random.IntN(8)) {
			w.events[0]()
			w.events = w.events[1:]
		}
	case n < 187:
		if key := some(random, w.pods); strings.HasPrefix(key, "b/") || random.IntN(4) == 0 {
			w.delete(key)
		}
	case n < 196:
		w.now = w.now.Add(time.Duration(random.IntN(8)) * time.Second)
		w.cycle()
	case n < 198:
		w.fail()
	default:
		w.lead()
		return true
	}
	return false
}

// fail has the API server refuse the next order that is to be written.
func (w *suspending) fail() {
	all := w.e.queues.suspensions.changes.Ends
	if len(all) > 0 {
		w.e.queues.suspensions.changes.Ends = all[1:]
		w.write(&all[0], errors.New("refused by a webhook"))
	}
}

// fits reports whether a claim that is suspended has room on its GPU.
func (w *suspending) fits(claim *resourcev1.ResourceClaim) bool {
	device, memory := claim.Status.Allocation.Devices.Results[0].Device, claim.Status.Allocation.Devices.Results[0].ConsumedCapacity[v1alpha1.CapacityMemory]
	used := w.used(func(c *resourcev1.ResourceClaim) bool {
		return !w.out[c.Namespace+"/"+c.Name] && c.Status.Allocation.Devices.Results[0].Device == device
	})
	return slices.Max(used)+int(memory.Value()/gib) <= suspendingGPU
}

// settleDown ends everybody for whom others were suspended, and lets all that is under way happen.
func (w *suspending) settleDown() {
	w.t.Helper()
	for range 60 {
		for _, key := range slices.Sorted(maps.Keys(w.pods)) {
			if strings.HasPrefix(key, "b/") || w.pods[key].Spec.NodeName == "" {
				w.delete(key)
			}
		}
		w.deliver()
		for len(w.writes) > 0 {
			w.writes[0]()
			w.writes = w.writes[1:]
		}
		for _, key := range slices.Sorted(maps.Keys(w.api)) {
			w.agent(key, false)
		}
		w.deliver()
		w.now = w.now.Add(10 * time.Second)
	}
}

// A borrower leaves its GPU for whoever is entitled to it, keeps its pod, and comes back once that has ended.
func TestSuspendsInsteadOfEnding(t *testing.T) {
	w := newSuspending(t)
	for i := range 4 { // two of each GPU
		w.create("a", fmt.Sprint("p", i), 36)
		w.deliver()
		w.try(fmt.Sprint("a/p", i))
	}
	w.deliver()
	demander := w.create("b", "d", 60)
	w.deliver()
	w.try("b/d")
	taking, ready := w.e.Taking(demander)
	if taking == nil || ready || !strings.HasPrefix(taking.Reason, "waits for 1 pod of queue a to be suspended, until ") && !strings.HasPrefix(taking.Reason, "waits for 1 pod of queue a to end, and 1 pod of queue a to be suspended, until ") {
		t.Fatalf("the demander has %+v", taking)
	}
	w.judge("ordered")
	for range 3 {
		w.finish()
		w.try("b/d")
		w.deliver()
	}
	if got := w.pods["b/d"]; got.Spec.NodeName == "" {
		t.Fatalf("the demander waits: %+v", w.e.queues.takings.all)
	}
	w.judge("the demander runs")
	out := w.e.Suspended()
	if out == 0 {
		t.Fatal("nobody is suspended")
	}
	if said := w.said[len(w.said)-1]; said.Reason != ReasonSuspended || said.Words != "for pod b/d of queue b (rule entitlement): its programs wait, its memory is in the node's host memory" {
		t.Errorf("its owner hears %+v", said)
	}
	w.lead() // whoever leads next knows
	if n := w.e.Suspended(); n != out {
		t.Errorf("%d are suspended for the next leader, and were %d", n, out)
	}
	w.finish()
	if n := w.e.Suspended(); n != out {
		t.Errorf("while the demander runs, %d stay suspended of %d", n, out)
	}
	w.delete("b/d")
	for range 3 {
		w.finish()
	}
	if n := w.e.Suspended(); n != 0 || w.said[len(w.said)-1].Reason != ReasonResumed {
		t.Errorf("%d are suspended for ever: %+v", n, w.said)
	}
	w.judge("at the end")
}

// finish has everything happen that is under way, with an agent that does what it is told.
func (w *suspending) finish() {
	w.t.Helper()
	w.deliver()
	for len(w.writes) > 0 {
		w.writes[0]()
		w.writes = w.writes[1:]
	}
	for _, key := range slices.Sorted(maps.Keys(w.api)) {
		w.agent(key, false)
	}
	w.deliver()
}

// Whoever cannot be suspended ends: its agent refuses or does not answer, its claim is of another kind, its host has no room, or the
// demander needs the processors of its pod.
func TestEndsWhoCannotBeSuspended(t *testing.T) {
	for name, change := range map[string]func(w *suspending, victim *corev1.Pod){
		"not running": func(_ *suspending, p *corev1.Pod) { p.Status.Phase = corev1.PodPending },
		"tight":       func(w *suspending, _ *corev1.Pod) { w.tight["b/d"] = true },
		"refuses":     nil,
		"never":       nil,
		"other driver": func(w *suspending, p *corev1.Pod) {
			w.api[keyOf(p)].Status.Allocation.Devices.Results[0].Driver = "other"
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSuspending(t)
			w.create("a", "p0", 70)
			w.deliver()
			w.try("a/p0")
			w.deliver()
			w.create("a", "p1", 40)
			w.deliver()
			w.try("a/p1")
			if change != nil {
				change(w, w.pods["a/p1"])
			}
			w.deliver()
			w.create("b", "d", 60)
			w.deliver()
			w.try("b/d")
			taking, _ := w.e.Taking(w.pods["b/d"])
			if name == "other driver" {
				if w.api["a/p1"] != nil && taking != nil && len(taking.Victims) > 0 && len(taking.Victims[0].Orders) > 0 {
					t.Fatal("a claim of another driver is suspended")
				}
				return
			}
			if taking == nil || len(taking.Victims) != 1 || (len(taking.Victims[0].Orders) > 0) != (change == nil) {
				t.Fatalf("the plan is %+v", taking)
			}
			for len(w.writes) > 0 {
				w.writes[0]()
				w.writes = w.writes[1:]
			}
			if name == "refuses" {
				w.agent("a/p1", true)
			}
			w.deliver()
			if name == "never" {
				w.now = w.now.Add(answerLimit + time.Second)
				w.deliver()
			}
			if len(w.writes) == 0 && change == nil {
				t.Fatal("it is not ended")
			}
			for range 3 {
				w.finish()
				w.try("b/d")
				w.deliver()
			}
			if w.pods["a/p1"] != nil || w.pods["b/d"].Spec.NodeName == "" && name != "tight" {
				t.Errorf("the victim is %+v, the demander %+v", w.pods["a/p1"], w.pods["b/d"])
			}
			if told := len(w.said) > 0 && w.said[0].Reason == ReasonNotAllowed && w.said[0].Warning; told != (change == nil) {
				t.Errorf("its owner hears %+v", w.said)
			}
			w.judge("at the end")
		})
	}
}
