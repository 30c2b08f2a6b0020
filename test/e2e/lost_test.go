package e2e

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// away has Divvy's own pods, but for the agent, run on other nodes than this one.
func (l *lab) away(n *cluster.Machine) {
	l.t.Helper()
	l.kubectl("cordon", n.Name)
	l.kubectl("delete", "pods", "-n", system, "-l", "app.kubernetes.io/component in (webhook, controller, scheduler)", "--field-selector", "spec.nodeName="+n.Name)
	l.serving()
	l.kubectl("uncordon", n.Name)
}

// brief has a pod leave a node that is lost at once.
func brief(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{
		Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(1)),
	}}
}

// A gang over two nodes loses one: its kubelet and its agent die, and its member there is evicted and then deleted by force, while
// its containers run on. Another member takes its place on the node that is left. When the node is back, a pod that has waited gets
// what is free there, after those containers have ended.
func nodeOfGangLost(l *lab) {
	lost, left := l.Nodes[0], l.Nodes[1]
	l.away(lost)
	l.run(on(left, whole("fills", 1)))
	members := gang("train", "one", "two")
	for _, p := range members {
		brief(p)
		p.Spec.Containers[0].Command = []string{"sh", "-c", busyScript}
	}
	l.createAll(members)
	gone, stays := "", ""
	for _, p := range members {
		if l.running(p.Name).Spec.NodeName == lost.Name {
			gone = p.Name
		} else {
			stays = p.Name
		}
	}
	if gone == "" || stays == "" {
		l.t.Fatal("the gang is on one node")
	}
	l.settled()
	l.must(lost.KillKubelet(l.ctx))
	l.signalAgent(lost, "KILL")
	ctx, cancel := l.bound()
	defer cancel()
	_, err := l.WaitPod(ctx, l.namespace, gone, "it is evicted", func(p *corev1.Pod) (bool, error) { return p.DeletionTimestamp != nil, nil })
	l.must(err)
	l.create(plain("waits", "12Gi", ""))
	l.waitsFor("waits", "")
	again := gang("train", "again", "")[0]
	l.create(again)
	l.waitsFor("again", "")
	l.remove("fills")
	if p := l.running("again"); p.Spec.NodeName != left.Name {
		l.t.Errorf("the other member is on %s", p.Spec.NodeName)
	}
	l.pending("waits")
	l.kubectl("delete", "pod", "-n", l.namespace, gone, "--force", "--grace-period=0")
	l.counts()
	l.computes(lost)
	l.must(lost.StartKubelet(l.ctx))
	l.must(lost.WaitReady(l.ctx))
	if p := l.running("waits"); p.Spec.NodeName != lost.Name {
		l.t.Errorf("the pod that waited is on %s", p.Spec.NodeName)
	}
	l.limited("waits", "main", 12*gib, 1)
	l.limited("again", "main", 8*gib, 1)
	l.settled()
	l.unmoved(stays)
}
