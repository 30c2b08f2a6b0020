package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// Whichever part is away or dies, no share is lost, granted twice or left over, and
// running pods do not notice.
func TestInterruptions(t *testing.T) {
	l := newLab(t)
	l.scenario("agent-killed", agentKilled)
	l.scenario("kubelet-restarted", kubeletRestarted)
	l.scenario("containerd-restarted", containerdRestarted)
	l.scenario("sockets-gone", socketsGone)
	l.scenario("force-deleted", forceDeleted)
	l.scenario("deleted-during-prepare", deletedDuringPrepare)
	l.scenario("crashes", crashes)
	l.minutes("checkpoints", checkpoints)
	l.scenario("drained", drained)
	l.minutes("api-away", apiAway)
}

// tenants starts one busy pod on each node.
func (l *lab) tenants() []string {
	l.t.Helper()
	l.create(on(l.Nodes[0], busy("b1", "2Gi", "20")))
	l.create(on(l.Nodes[1], busy("b2", "2Gi", "")))
	l.running("b1")
	l.running("b2")
	l.agree()
	return []string{"b1", "b2"}
}

// runs checks that a pod can start and end on a node.
func (l *lab) runs(n *cluster.Machine, name string) {
	l.t.Helper()
	l.create(on(n, plain(name, "3Gi", "")))
	l.lives(name)
}

// lives checks that a pod of 3Gi runs within its limit, and ends it.
func (l *lab) lives(name string) {
	l.t.Helper()
	l.running(name)
	l.limited(name, "main", 3*gib, 1)
	l.agree()
	l.remove(name)
	l.agree()
}

// computes waits until a node's tenants have had more GPU time. It asks no API.
func (l *lab) computes(n *cluster.Machine) {
	l.t.Helper()
	before, err := l.gpuTime(l.ctx, n)
	l.must(err)
	l.eventually("tenants of "+n.Name+" compute", func() string {
		now, err := l.gpuTime(l.ctx, n)
		if err == nil && now <= before {
			return "they do not"
		}
		return reason(err)
	})
}

func agentKilled(l *lab) {
	n := l.Nodes[0]
	busy := l.tenants()
	l.killAgent(n)
	l.computes(n)
	l.agree()
	l.runs(n, "after")
	// A pod made while the agent is away starts when it is back, and one that is removed waits for the agent too.
	l.run(on(n, plain("ends", "1Gi", "")))
	l.signalAgent(n, "KILL")
	l.create(on(n, plain("comes", "1Gi", "")))
	l.remove("ends")
	l.running("comes")
	l.agree()
	l.unmoved(busy...)
}

func kubeletRestarted(l *lab) {
	n := l.Nodes[0]
	busy := l.tenants()
	l.run(on(n, plain("ends", "1Gi", "")))
	l.must(n.KillKubelet(l.ctx))
	l.must(l.Client().CoreV1().Pods(l.namespace).Delete(l.ctx, "ends", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(1))}))
	l.computes(n)
	l.must(n.StartKubelet(l.ctx))
	ctx, cancel := l.bound()
	defer cancel()
	l.must(l.WaitGone(ctx, l.namespace, "ends"))
	l.agree()
	l.runs(n, "after")
	l.unmoved(busy...)
}

func containerdRestarted(l *lab) {
	n := l.Nodes[0]
	busy := l.tenants()
	l.must(n.KillContainerd(l.ctx))
	l.computes(n)
	l.must(n.StartContainerd(l.ctx))
	ctx, cancel := l.bound()
	defer cancel()
	l.must(n.WaitReady(ctx))
	l.agree()
	l.runs(n, "after")
	l.unmoved(busy...)
}

// Nothing is lost where somebody removes the agent's sockets or starts the agent
// before the kubelet.
func socketsGone(l *lab) {
	n := l.Nodes[0]
	busy := l.tenants()
	_, err := n.Exec(l.ctx, "rm", "/var/lib/kubelet/plugins_registry/divvy.dev-reg.sock", "/var/lib/kubelet/plugins/divvy.dev/dra.sock")
	l.must(err)
	l.eventually("the sockets are back", func() string {
		_, err := n.Exec(l.ctx, "test", "-S", "/var/lib/kubelet/plugins/divvy.dev/dra.sock", "-a", "-S", "/var/lib/kubelet/plugins_registry/divvy.dev-reg.sock")
		return reason(err)
	})
	l.serving()
	l.runs(n, "after")
	l.dismiss(n)
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	// The agent runs without end, so its output is read while it runs.
	said := n.Path("/root/agent.log")
	cmd := n.Command(ctx, "sh", "-c", `exec "$@" 2> /root/agent.log`, "sh", "divvy", "agent", "--kubernetes", "--mode", "claims",
		"--node-name", n.Name, "--kubeconfig", l.Kubeconfig(), "--simgpu-dir", n.SimgpuDir(), "--kubelet-dir", "/run/none",
		"--metrics-address", "127.0.0.1:0")
	ended := make(chan error, 1)
	go func() {
		_, err := n.Output(cmd)
		ended <- err
	}()
	l.eventually("the agent says that there is no kubelet", func() string {
		text, err := os.ReadFile(said)
		if err == nil && !strings.Contains(string(text), "find the kubelet: there is no directory /run/none/plugins_registry") {
			return string(text)
		}
		return reason(err)
	})
	l.eventually("the agent without a kubelet has the node's tenant", func() string {
		listing, err := l.listing(n)
		if err == nil && len(listing.Tenants) != 1 {
			return fmt.Sprintf("it has %d", len(listing.Tenants))
		}
		return reason(err)
	})
	cancel()
	<-ended
	l.invite(n)
	l.agree()
	l.unmoved(busy...)
}

// dismiss removes the agent from a node, and invite brings it back.
func (l *lab) dismiss(n *cluster.Machine) {
	l.t.Helper()
	l.kubectl("label", "node", n.Name, "divvy.dev/node-")
	l.gone(n)
}

// gone waits until a node has no agent, not even one that is ending: that may still publish what it has.
func (l *lab) gone(n *cluster.Machine) {
	l.t.Helper()
	l.eventually("the agent of "+n.Name+" has left", func() string {
		agents, err := l.agents(n)
		if err == nil && len(agents) > 0 {
			return "it is there"
		}
		return reason(err)
	})
}

func (l *lab) invite(n *cluster.Machine) {
	l.t.Helper()
	l.kubectl("label", "node", n.Name, "divvy.dev/node=")
	l.serving()
}

// agents returns the pods of a node's agent: usually one, for moments none or two.
func (l *lab) agents(n *cluster.Machine) ([]corev1.Pod, error) {
	list, err := l.Client().CoreV1().Pods(system).List(l.ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=agent", FieldSelector: "spec.nodeName=" + n.Name,
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// After a forced deletion the API server has no pod, but its containers still run: the
// next pod with its share waits until they have ended.
func forceDeleted(l *lab) {
	n := l.Nodes[0]
	l.only(0)
	stubborn := busy("stubborn", "12Gi", "")
	// It ignores the signal to end for a while.
	stubborn.Spec.Containers[0].Command[2] = "trap '' TERM\n" + stubborn.Spec.Containers[0].Command[2]
	stubborn.Spec.TerminationGracePeriodSeconds = ptr.To(int64(5))
	l.run(on(n, stubborn))
	l.must(l.Client().CoreV1().Pods(l.namespace).Delete(l.ctx, "stubborn", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	l.run(on(n, plain("heir", "12Gi", "")))
	l.agree()
	l.limited("heir", "main", 12*gib, 1)
}

func deletedDuringPrepare(l *lab) {
	n := l.Nodes[0]
	busy := l.tenants()
	agent := strconv.Itoa(l.signalAgent(n, "STOP"))
	l.create(on(n, plain("gone", "4Gi", "")))
	l.eventually("the pod is placed", func() string {
		p, err := l.Client().CoreV1().Pods(l.namespace).Get(l.ctx, "gone", metav1.GetOptions{})
		if err == nil && p.Spec.NodeName == "" {
			return "it is not"
		}
		return reason(err)
	})
	l.must(l.Client().CoreV1().Pods(l.namespace).Delete(l.ctx, "gone", metav1.DeleteOptions{}))
	_, err := n.Exec(l.ctx, "kill", "-CONT", agent)
	l.must(err)
	ctx, cancel := l.bound()
	defer cancel()
	l.must(l.WaitGone(ctx, l.namespace, "gone"))
	l.agree()
	l.runs(n, "after")
	l.unmoved(busy...)
}

// A node is drained by ordinary means, and its pods run on another node.
func drained(l *lab) {
	n := l.Nodes[0]
	l.must(l.ApplyText(l.ctx, fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: %s}, spec: {replicas: 3, `+
		`selector: {matchLabels: {app: d}}, template: {metadata: {labels: {app: d}}, spec: {terminationGracePeriodSeconds: 1, containers: [`+
		`{name: main, image: "%s", command: [sleep, infinity], resources: {limits: {divvy.dev/gpu-memory: 5Gi}}}]}}}}`, l.namespace, bench)))
	l.kubectl("rollout", "status", "-n", l.namespace, "deployment/d", "--timeout=3m")
	l.agree()
	l.kubectl("drain", n.Name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=3m")
	defer l.kubectl("uncordon", n.Name)
	l.eventually("all run on the other node", func() string {
		list, err := l.Client().CoreV1().Pods(l.namespace).List(l.ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.Spec.NodeName != "n2" || !cluster.PodReady(p) {
				return p.Name + " does not"
			}
		}
		return ""
	})
	l.agree()
	listing, err := l.listing(n)
	l.must(err)
	if len(listing.Tenants) > 0 {
		l.t.Errorf("the node that was drained still has %d tenants", len(listing.Tenants))
	}
	l.serving()
}

// apiTime returns how long the API server is away. DIVVY_E2E_AWAY can shorten it.
func apiTime(t *testing.T) time.Duration {
	text := os.Getenv("DIVVY_E2E_AWAY")
	if text == "" {
		return time.Minute
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// While the API server is away, pods keep running and agents can start.
func apiAway(l *lab) {
	n := l.Nodes[0]
	busy := l.tenants()
	l.must(l.StopAPIServer(l.ctx))
	back := time.After(apiTime(l.t))
	l.computes(n)
	l.killAgent(n)
	l.computes(n)
	listing, err := l.listing(n)
	l.must(err)
	if len(listing.Tenants) != 1 {
		l.t.Errorf("an agent that started without the API has %d tenants, want 1", len(listing.Tenants))
	}
	<-back
	l.computes(n)
	l.must(l.StartAPIServer(l.ctx))
	ctx, cancel := l.bound()
	defer cancel()
	for _, n := range l.Nodes {
		l.must(n.WaitReady(ctx))
	}
	l.agree()
	l.unmoved(busy...)
	// For a moment the control plane may still consider nodes dead, and with its node
	// the webhook.
	l.taken(on(n, plain("after", "3Gi", "")))
	l.lives("after")
}
