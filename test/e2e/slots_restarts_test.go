package e2e

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// slotsAgentAway ends a container while no agent can put a share into the next one.
func slotsAgentAway(l *lab) {
	l.run(again("again", "4Gi"))
	l.run(busy("beside", "4Gi", ""))
	l.noAgents()
	l.slots("n1", 0)
	l.exec("again", "main", "touch", "/run/end")
	l.waits("again", "PreStartContainer")
	l.agentsBack()
	l.slots("n1", 64)
	l.restarted("again")
	l.held(2)
	l.limited("again", "main", 4*gib, 1)
	l.running("beside")
}

func slotsAgentKilled(l *lab) {
	l.run(busy("runs", "4Gi", "30"))
	l.killAgent(l.Nodes[0])
	l.slots("n1", 64)
	l.held(1)
	l.admitted(plain("next", "8Gi", ""))
	l.create(plain("third", "8Gi", ""))
	l.waitsFor("third", tooLittle)
	l.limited("next", "main", 8*gib, 1)
	l.running("runs")
}

func slotsRuntimeRestarts(l *lab) {
	l.run(busy("runs", "4Gi", "30"))
	l.must(l.Nodes[0].KillContainerd(l.ctx))
	l.must(l.Nodes[0].StartContainerd(l.ctx))
	l.must(l.Nodes[0].WaitReady(l.ctx))
	l.admitted(plain("next", "8Gi", ""))
	l.limited("next", "main", 8*gib, 1)
	l.held(2)
	l.must(l.Nodes[0].KillKubelet(l.ctx))
	l.must(l.Nodes[0].StartKubelet(l.ctx))
	l.must(l.Nodes[0].WaitReady(l.ctx))
	l.slots("n1", 64)
	l.admitted(plain("third", "1Gi", ""))
	l.held(3)
	l.running("runs")
}

// slotsPartsKilled kills each part while a pod is being placed, while it is being started, and while it is being ended. In the end
// every pod has its share, nothing is given twice, and who runs does not notice. A kubelet that starts ends pods for which it has no
// slots yet; these are made again, as their controllers do it.
func slotsPartsKilled(l *lab) {
	l.run(busy("stays", "4Gi", "30"))
	n := l.Nodes[0]
	for _, part := range []struct {
		name string
		kill func()
	}{
		{"extender", func() { l.killContainers("scheduler", "extender") }},
		{"scheduler", func() { l.killContainers("scheduler", "scheduler") }},
		{"agent", func() { l.signalAgent(n, "KILL") }},
		{"kubelet", func() { l.restartKubelet(n) }},
		{"apiserver", l.restartAPIServer},
	} {
		placed, started := part.name+"-1", part.name+"-2"
		l.taken(plain(placed, "4Gi", ""))
		part.kill()
		l.accepted(plain(placed, "4Gi", ""))
		l.taken(plain(started, "4Gi", ""))
		l.placed(started)
		part.kill()
		l.accepted(plain(started, "4Gi", ""))
		l.recorded()
		l.limited(started, "main", 4*gib, 1)
		l.must(l.Client().CoreV1().Pods(l.namespace).DeleteCollection(l.ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(1))},
			metav1.ListOptions{FieldSelector: "metadata.name!=stays"}))
		part.kill()
		l.gonePods(placed, started)
		l.held(1)
		l.recorded()
		l.slots(n.Name, 64)
	}
	l.unmoved("stays")
}

// killContainers kills the containers of a name in the pods of one of Divvy's parts. A container that ended often waits before it
// starts again, so such a pod is replaced.
func (l *lab) killContainers(component, name string) {
	l.t.Helper()
	pods, err := l.Client().CoreV1().Pods(system).List(l.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + component})
	l.must(err)
	for i := range pods.Items {
		p := &pods.Items[i]
		for _, s := range p.Status.ContainerStatuses {
			if s.Name != name {
				continue
			}
			if s.State.Running == nil || s.RestartCount > 0 {
				l.must(l.Client().CoreV1().Pods(system).Delete(l.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
				continue
			}
			l.killTask(p.Spec.NodeName, s.ContainerID)
		}
	}
}

// killTask kills a container by the container runtime's id of it. One that has just been killed the kubelet may still tell of.
func (l *lab) killTask(node, id string) {
	l.t.Helper()
	for _, n := range l.Nodes {
		if n.Name != node {
			continue
		}
		_, err := n.Exec(l.ctx, "ctr", "--address=/run/containerd/containerd.sock", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL",
			strings.TrimPrefix(id, "containerd://"))
		if err != nil && strings.Contains(err.Error(), "not found") {
			l.t.Logf("%s of node %s has ended already", id, node)
			continue
		}
		l.must(err)
	}
}

func (l *lab) restartKubelet(n *cluster.Machine) {
	l.t.Helper()
	l.must(n.KillKubelet(l.ctx))
	l.must(n.StartKubelet(l.ctx))
}

func (l *lab) restartAPIServer() {
	l.t.Helper()
	l.must(l.StopAPIServer(l.ctx))
	l.must(l.StartAPIServer(l.ctx))
}

// placed waits until a pod has a node.
func (l *lab) placed(name string) {
	l.t.Helper()
	ctx, cancel := l.bound()
	defer cancel()
	_, err := l.WaitPod(ctx, l.namespace, name, "it has a node", func(p *corev1.Pod) (bool, error) {
		if p == nil {
			return false, fmt.Errorf("it is gone")
		}
		return p.Spec.NodeName != "", nil
	})
	l.must(err)
}

// gonePods waits until pods are gone.
func (l *lab) gonePods(names ...string) {
	l.t.Helper()
	for _, name := range names {
		ctx, cancel := l.bound()
		l.must(l.WaitGone(ctx, l.namespace, name))
		cancel()
	}
}

// A pod that is deleted by force while its kubelet is away goes on in its container. What it has is given to nobody before that one
// has ended.
func slotsForceDeleted(l *lab) {
	n := l.Nodes[0]
	l.run(busy("stubborn", "12Gi", ""))
	l.recorded()
	l.must(n.KillKubelet(l.ctx))
	l.kubectl("delete", "pod", "-n", l.namespace, "stubborn", "--force", "--grace-period=0")
	l.create(plain("next", "12Gi", ""))
	l.waitsFor("next", "")
	l.computes(n)
	l.held(1)
	l.pending("next")
	l.must(n.StartKubelet(l.ctx))
	l.running("next")
	l.limited("next", "main", 12*gib, 1)
	l.held(1)
	l.recorded()
}

// slotsNodeRestarts ends all of a node's containers, containerd and the kubelet, and takes away what is in memory, as a node does
// that starts anew. Pods that are made again get shares, and nothing of those that were is left.
func slotsNodeRestarts(l *lab) {
	n := l.Nodes[0]
	l.run(busy("before", "12Gi", ""))
	l.recorded()
	l.must(n.Restart(l.ctx))
	ctx, cancel := l.bound()
	defer cancel()
	l.must(n.WaitReady(ctx))
	l.slots(n.Name, 64)
	l.remove("before")
	l.held(0)
	l.admitted(plain("after", "12Gi", ""))
	l.limited("after", "main", 12*gib, 1)
	l.recorded()
}
