package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
)

const (
	// ConditionGivesBack is said of a queue of which pods end for others, or are being suspended for them.
	ConditionGivesBack queue.ConditionType = "GivesBack"
	// ConditionSuspended is said of a queue of which pods are out of their GPUs for others.
	ConditionSuspended queue.ConditionType = "Suspended"
)

// Standings are the queues whose status is to be written: it says something else than the object.
func (e *Engine) Standings(now time.Time) (stale []v1alpha1.Queue) {
	q := &e.queues
	if !q.set.On() {
		return nil
	}
	said := map[string][]queue.Condition{}
	for _, c := range slices.Concat(q.set.Book.Conditions(), e.givesBack(), e.sleep()) {
		said[c.Queue] = append(said[c.Queue], c)
	}
	for _, name := range slices.Sorted(maps.Keys(q.known)) {
		object := q.known[name]
		status := v1alpha1.QueueStatus{ObservedGeneration: object.Metadata.Generation, Resources: q.set.Book.Standing(name)}
		status.Running, status.Waiting = q.set.Book.Counts(name)
		status.Conditions = conditions(&object, said[name], now)
		if !equalStatus(&status, &object.Status) {
			object.Status = status
			stale = append(stale, object)
		}
	}
	return stale
}

// givesBack says of each queue of which pods end for others whose they are and until when. Each rule that makes them end counts.
func (e *Engine) givesBack() (all []queue.Condition) {
	type loan struct {
		from, to string
		stays    bool
	}
	pods, until := map[loan]int{}, map[loan]time.Time{}
	for _, t := range e.queues.takings.all {
		for _, v := range append(t.Victims[:len(t.Victims):len(t.Victims)], t.ending...) {
			l := loan{v.Queue, t.queue, e.queues.set.Leaves(v.Pod.UID)}
			if l.from == "" || v.Rule == reclaim.RuleMove {
				continue
			}
			pods[l]++
			if t.Until.After(until[l]) {
				until[l] = t.Until
			}
		}
	}
	said := map[string][]string{}
	for _, l := range slices.SortedFunc(maps.Keys(pods), func(a, b loan) int {
		return cmp.Or(strings.Compare(a.from, b.from), strings.Compare(a.to, b.to), cmp.Compare(count(a.stays), count(b.stays)))
	}) {
		to := "queue " + l.to
		if l.to == "" {
			to = "pods outside all queues"
		}
		said[l.from] = append(said[l.from], fmt.Sprintf("%s for %s until %s", pluralEnds(pods[l], l.stays), to, until[l].UTC().Format(time.RFC3339)))
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		all = append(all, queue.Condition{Queue: name, Type: ConditionGivesBack, Message: strings.Join(said[name], "; ")})
	}
	return all
}

// conditions are those of a status, the messages of one type together. What was said before keeps its time.
func conditions(before *v1alpha1.Queue, said []queue.Condition, now time.Time) (all []v1alpha1.QueueCondition) {
	for _, c := range said {
		if last := len(all) - 1; last >= 0 && all[last].Type == string(c.Type) {
			all[last].Message += "; " + c.Message
			continue
		}
		one := v1alpha1.QueueCondition{
			Type: string(c.Type), Status: string(metav1.ConditionTrue), ObservedGeneration: before.Metadata.Generation,
			LastTransitionTime: now.UTC().Format(time.RFC3339), Reason: string(c.Type), Message: c.Message,
		}
		for i := range before.Status.Conditions {
			if old := &before.Status.Conditions[i]; old.Type == one.Type && old.Status == one.Status {
				one.LastTransitionTime = old.LastTransitionTime
			}
		}
		all = append(all, one)
	}
	return all
}

func equalStatus(a, b *v1alpha1.QueueStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration && a.Running == b.Running && a.Waiting == b.Waiting &&
		slices.Equal(a.Resources, b.Resources) && slices.Equal(a.Conditions, b.Conditions)
}

// sleep says of each queue how many of its pods are suspended.
func (e *Engine) sleep() (all []queue.Condition) {
	out := e.queues.set.Suspended()
	for _, name := range slices.Sorted(maps.Keys(out)) {
		if name == "" {
			continue
		}
		text := fmt.Sprintf("%d pods are suspended for others: their programs wait, and they resume in their turns", out[name])
		if out[name] == 1 {
			text = "1 pod is suspended for others: its programs wait, and it resumes in its turn"
		}
		all = append(all, queue.Condition{Queue: name, Type: ConditionSuspended, Message: text})
	}
	return all
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

func pluralEnds(pods int, stay bool) string {
	switch {
	case pods == 1 && stay:
		return "1 pod is suspended"
	case pods == 1:
		return "1 pod ends"
	case stay:
		return fmt.Sprintf("%d pods are suspended", pods)
	}
	return fmt.Sprintf("%d pods end", pods)
}
