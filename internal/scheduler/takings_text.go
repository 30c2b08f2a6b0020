package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
)

// reason is what the pods say for which others end.
func (t *Taking) reason() string {
	until := t.Until.UTC().Format(time.TimeOnly)
	if len(t.Victims) == 0 {
		return fmt.Sprintf("waits for pods that are ending, until %s", until)
	}
	var parts []string
	for _, way := range []string{"to end", "to be suspended"} {
		if some := t.whose(way); some != "" {
			parts = append(parts, some+" "+way)
		}
	}
	return fmt.Sprintf("waits for %s, until %s", strings.Join(parts, ", and "), until)
}

// whose counts the victims that go one way by whose they are; it is empty for none.
func (t *Taking) whose(way string) string {
	counts := map[string]int{}
	for i := range t.Victims {
		if v := &t.Victims[i]; (len(v.Orders) > 0) == (way != "to end") {
			counts[v.whose()]++
		}
	}
	var parts []string
	for _, whose := range slices.Sorted(maps.Keys(counts)) {
		pods := "pods"
		if counts[whose] == 1 {
			pods = "pod"
		}
		parts = append(parts, fmt.Sprintf("%d %s %s", counts[whose], pods, whose))
	}
	return strings.Join(parts, " and ")
}

// suspendedFor tells the owner of a pod that it is suspended. The rule is empty where it is not known any more.
func suspendedFor(whom, rule string) string {
	if rule != "" {
		whom += " (rule " + rule + ")"
	}
	return fmt.Sprintf("for %s: its programs wait, its memory is in the node's host memory", whom)
}

func (v *Victim) whose() string {
	switch {
	case v.Rule == reclaim.RuleMove:
		return "with a place elsewhere"
	case v.Rule == reclaim.RulePriority:
		return "with a lower priority"
	case v.Rule == reclaim.RuleOpportunistic:
		return "with opportunistic quota"
	case v.Queue == "":
		return "outside all queues"
	}
	return "of queue " + v.Queue
}

// note tells a victim's owner why it ends.
func note(demander, queue string, v *Victim) string {
	who := "pod " + demander
	if queue != "" {
		who += " of queue " + queue
	}
	switch {
	case len(v.Orders) > 0:
		return suspendedFor(who, string(v.Rule))
	case v.Rule == reclaim.RuleMove:
		return fmt.Sprintf("ends within %s so that %s has room: a place is kept for it on node %s (rule %s)", v.Grace, who, v.Node, v.Rule)
	case v.Rule == reclaim.RulePriority:
		return fmt.Sprintf("ends within %s for %s: its priority is lower (rule %s)", v.Grace, who, v.Rule)
	case v.Rule == reclaim.RuleOpportunistic:
		return fmt.Sprintf("ends within %s for %s: its quota is opportunistic (rule %s)", v.Grace, who, v.Rule)
	case v.Forced:
		return fmt.Sprintf("ends within %s for %s, which is entitled to its GPUs and has waited for disruption budgets long enough (rule %s)", v.Grace, who, v.Rule)
	case v.Queue == "":
		return fmt.Sprintf("ends within %s for %s, which is entitled to its GPUs: it is outside all queues (rule %s)", v.Grace, who, v.Rule)
	}
	return fmt.Sprintf("ends within %s for %s, which is entitled to its GPUs: queue %s uses more than it is entitled to (rule %s)", v.Grace, who, v.Queue, v.Rule)
}
