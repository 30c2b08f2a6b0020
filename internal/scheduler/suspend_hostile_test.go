package scheduler

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/scheduler/workload"
)

// outForOther has a/p1 leave its GPU for b/d, which gets its place.
func (w *suspending) outForOther() {
	w.t.Helper()
	for i := range 2 {
		w.create("a", fmt.Sprint("p", i), 70-30*i)
		w.deliver()
		w.try(fmt.Sprint("a/p", i))
		w.deliver()
	}
	w.create("b", "d", 60)
	w.deliver()
	for range 3 {
		w.try("b/d")
		w.finish()
	}
	if w.pods["b/d"].Spec.NodeName == "" || w.e.Suspended() != 1 {
		w.t.Fatalf("the demander is %+v, and %d are suspended", w.pods["b/d"], w.e.Suspended())
	}
}

// What is known of an order ends with its claim, whichever way that goes.
func TestOrdersAreForgotten(t *testing.T) {
	for name, end := range map[string]func(w *suspending){
		"the pod is deleted": func(w *suspending) { w.delete("a/p1") },
		"the claim stays": func(w *suspending) {
			w.putPod("a/p1", nil)
			claim := w.api["a/p1"].DeepCopy()
			claim.Status = resourcev1.ResourceClaimStatus{}
			w.put("a/p1", claim)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSuspending(t)
			w.outForOther()
			end(w)
			for range 3 {
				w.finish()
			}
			s := &w.e.queues.suspensions
			if s.told["a/p1"] != nil || s.idle["a/p1"] || s.ending["a/p1"] != 0 || !s.asked["a/p1"].IsZero() || w.api["a/p1"] != nil && w.api["a/p1"].Annotations[v1alpha1.SuspendAnnotation] != "" {
				t.Errorf("of the claim it is known: told %v, idle %v, ending %v, asked %v", s.told["a/p1"] != nil, s.idle["a/p1"], s.ending["a/p1"], s.asked["a/p1"])
			}
		})
	}
}

// Whoever has a claim may write on it as often as he likes: what does not change where its shares are wakes nobody.
func TestNotesOnSuspendedClaimsWakeNobody(t *testing.T) {
	w := newSuspending(t)
	w.outForOther()
	was := w.e.freed.Load()
	for i := range 5 {
		claim := w.api["a/p1"].DeepCopy()
		claim.Labels = map[string]string{"mine": fmt.Sprint(i)}
		w.put("a/p1", claim)
	}
	w.deliver()
	if now := w.e.freed.Load(); now != was {
		t.Errorf("room may have come %d times", now-was)
	}
}

// An order that no agent answers ends though the queue is at its limit by then: what it was for has gone, and the pod uses its GPU all along.
func TestUnansweredOrderEndsAtTheLimit(t *testing.T) {
	w := newSuspending(t)
	for i := range 2 {
		w.create("a", fmt.Sprint("p", i), 70-30*i)
		w.deliver()
		w.try(fmt.Sprint("a/p", i))
		w.deliver()
	}
	w.create("b", "d", 60)
	w.deliver()
	w.try("b/d")
	w.writeAll()
	w.delete("b/d")
	w.deliver()
	if !w.e.queues.set.Leaves("a/p1") {
		t.Fatal("it is not ordered out")
	}
	spec := queue.Spec{Name: "a", QueueSpec: v1alpha1.QueueSpec{Namespaces: []string{"a"}, Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.Written("1"), Limit: v1alpha1.Written("1")}}}}
	w.e.queues.specs["a"], w.e.queues.specsStale = spec, true
	w.now = w.now.Add(answerLimit + time.Second)
	for range 3 {
		w.deliver()
		w.writeAll()
	}
	if text, ordered := w.api["a/p1"].Annotations[v1alpha1.SuspendAnnotation]; ordered {
		t.Errorf("it is ordered out for ever: %s", text)
	}
}

// An agent that never answers keeps nobody waiting for ever, also where the order is of an earlier leader: the pod ends in the end.
func TestUnansweredOrderOfAnEarlierLeader(t *testing.T) {
	w := newSuspending(t)
	for i := range 2 {
		p := w.create("a", fmt.Sprint("p", i), 70-30*i)
		if i == 0 { // nobody ends it
			p.Labels = map[string]string{v1alpha1.QuotaLabel: string(v1alpha1.QuotaGuaranteed)}
		}
		w.deliver()
		w.try(fmt.Sprint("a/p", i))
		w.deliver()
	}
	w.create("b", "d", 60)
	w.deliver()
	w.try("b/d")
	w.deliver()
	w.writeAll()
	if !w.e.queues.set.Leaves("a/p1") {
		t.Fatal("it is not ordered out")
	}
	w.lead()
	for range 60 {
		w.now = w.now.Add(5 * time.Second)
		w.deliver()
		w.try("b/d")
		w.writeAll()
		w.deliver()
	}
	if w.pods["b/d"].Spec.NodeName == "" {
		t.Errorf("after 5 minutes the demander waits: %+v, beside %+v", w.e.queues.takings.all, w.api["a/p1"])
	}
}

// A node whose clock is ahead has its pods neither ended instead of suspended, nor protected for longer.
func TestClockOfANodeIsAhead(t *testing.T) {
	for _, reason := range []string{v1alpha1.RefusedReason, v1alpha1.ResumedReason} {
		w := newSuspending(t)
		for i := range 2 {
			w.create("a", fmt.Sprint("p", i), 70-30*i)
			w.deliver()
			w.try(fmt.Sprint("a/p", i))
			w.deliver()
		}
		now := w.now
		w.now = now.Add(time.Hour)
		w.answer("a/p1", 1, reason)
		w.now = now
		w.deliver()
		w.now = now.Add(5 * time.Minute)
		candidates, pods := w.e.queues.set.Candidates(workload.View{Now: w.now, Held: w.e.ledger.Held, Budgets: func(*corev1.Pod) []int { return nil }})
		for i := range candidates {
			if candidates[i].Start.After(now) {
				t.Errorf("%s: pod %s began at %v, and it was %v", reason, pods[i][0].Name, candidates[i].Start, now)
			}
		}
		w.create("b", "d", 60)
		w.deliver()
		w.try("b/d")
		if taking, _ := w.e.Taking(w.pods["b/d"]); taking == nil || len(taking.Victims) != 1 || len(taking.Victims[0].Orders) != 1 {
			t.Errorf("%s: the plan is %+v", reason, taking)
		}
	}
}

// writeAll has the API server take in all that is to be written.
func (w *suspending) writeAll() {
	for len(w.writes) > 0 {
		w.writes[0]()
		w.writes = w.writes[1:]
	}
}

// An order that ended without an answer has a number that no later one has: its answer may come late.
func TestUnansweredOrderKeepsItsNumber(t *testing.T) {
	w := newSuspending(t)
	for i := range 2 {
		w.create("a", fmt.Sprint("p", i), 70-30*i)
		w.deliver()
		w.try(fmt.Sprint("a/p", i))
		w.deliver()
	}
	numbers := map[string]bool{}
	for i := range 2 {
		demander := fmt.Sprint("d", i)
		w.create("b", demander, 60)
		w.deliver()
		w.try("b/" + demander)
		w.writeAll()
		text, ordered := w.api["a/p1"].Annotations[v1alpha1.SuspendAnnotation]
		order, err := v1alpha1.ParseSuspension(text)
		if !ordered || err != nil {
			t.Fatalf("it is not ordered out: %v, %v", w.api["a/p1"].Annotations, err)
		}
		numbers[fmt.Sprint(order.Order)] = true
		w.delete("b/" + demander)
		w.deliver()
		w.now = w.now.Add(answerLimit + time.Second)
		for range 3 {
			w.deliver()
			w.writeAll()
		}
		if text, ordered := w.api["a/p1"].Annotations[v1alpha1.SuspendAnnotation]; ordered {
			t.Fatalf("its order stays: %s", text)
		}
	}
	if len(numbers) != 2 {
		t.Errorf("both orders had number %v", numbers)
	}
}
