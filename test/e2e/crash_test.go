package e2e

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// steps are the agent's steps for a claim, in order.
var steps = []string{"prepare-entered", "prepare-made", "prepare-spec", "release-begun", "release-undone", "release-done"}

// An agent that dies after a step continues from there when it starts again.
func crashes(l *lab) {
	n := l.Nodes[0]
	busy := l.tenants()
	l.startCrashing(n)
	l.create(on(n, plain("one", "4Gi", "30")))
	l.survive(n, "the pod runs", func() string {
		p, err := l.Client().CoreV1().Pods(l.namespace).Get(l.ctx, "one", metav1.GetOptions{})
		if err == nil && !cluster.PodReady(p) {
			return "it is " + string(p.Status.Phase)
		}
		return reason(err)
	})
	l.crashed(n, steps[:3])
	l.agree()
	l.limited("one", "main", 4*gib, 1)
	l.must(l.Client().CoreV1().Pods(l.namespace).Delete(l.ctx, "one", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(1))}))
	l.survive(n, "the pod is gone", func() string {
		list, err := l.Client().CoreV1().Pods(l.namespace).List(l.ctx, metav1.ListOptions{FieldSelector: "metadata.name=one"})
		if err == nil && len(list.Items) > 0 {
			return "it is there"
		}
		return reason(err)
	})
	l.crashed(n, steps)
	l.kubectl("rollout", "undo", "-n", system, "daemonset/divvy-agent")
	l.serving()
	l.agree()
	l.runs(n, "after")
	l.unmoved(busy...)
}

// startCrashing replaces the agents by some that kill themselves.
func (l *lab) startCrashing(n *cluster.Machine) {
	l.t.Helper()
	l.replaceAgents(map[string]string{"DIVVY_CRASH_MARKS": n.SimgpuDir(), "DIVVY_CRASH_AFTER": strings.Join(steps, ",")})
	l.serving()
}

// survive is eventually for an agent that dies again and again, each time with a pod of its own that
// has to come and go: it removes the growing delay before each restart.
func (l *lab) survive(n *cluster.Machine, what string, holds func() string) {
	l.t.Helper()
	l.within(3*longest, what, func() string {
		why := holds()
		if why == "" {
			return ""
		}
		agents, err := l.agents(n)
		if err != nil {
			return err.Error()
		}
		for i := range agents {
			p := &agents[i]
			waits := func(s corev1.ContainerStatus) bool {
				return s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff"
			}
			if p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.ContainerStatuses, waits) {
				l.must(l.Client().CoreV1().Pods(system).Delete(l.ctx, p.Name, metav1.DeleteOptions{}))
			}
		}
		return why
	})
}

// crashed checks after which steps an agent ended itself.
func (l *lab) crashed(n *cluster.Machine, want []string) {
	l.t.Helper()
	text, err := n.Exec(l.ctx, "sh", "-c", "cd "+n.SimgpuDir()+" && ls -d crashed-after-*")
	l.must(err)
	got := strings.Fields(strings.ReplaceAll(text, "crashed-after-", ""))
	want = slices.Sorted(slices.Values(want))
	slices.Sort(got)
	if !slices.Equal(got, want) {
		l.t.Errorf("the agent has ended after %v, want %v", got, want)
	}
}
