package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// A pod on a node without a GPU, and without a driver, has 4 GiB of a GPU of another node. It cannot have more, does not notice that
// the agents of both nodes are killed, and learns of its host's death.
func TestRemote(t *testing.T) {
	gate(t)
	l := startLab(t, cluster.Node{Name: "bare"})
	ctx, cancel := context.WithTimeout(l.ctx, scenarios) // of all commands that it waits for
	defer cancel()
	l.ctx = ctx
	host, bare := l.Nodes[0], l.Nodes[2]
	l.kubectl("label", "node", host.Name, "example.org/pool=true")
	l.kubectl("cordon", host.Name) // Divvy's own pods are to outlive it
	l.install("pool.gpus=all", "pool.hosts=example.org/pool=true", "controller.replicas=1")
	l.kubectl("uncordon", host.Name)
	l.namespace = "remote"
	l.makeNamespace(l.namespace)
	l.resolveIssuer()
	l.must(l.ApplyText(l.ctx, fmt.Sprintf("{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {namespace: %s, name: four}, "+
		"spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: remote.divvy.dev, capacity: {requests: {memory: 4Gi}}}}]}}}}", l.namespace)))
	p := on(bare, busy("far", "", ""))
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("four")}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	l.run(p)
	l.eventually("the pod allocates", func() string {
		if l.rounds("far") == 0 {
			return "it does not"
		}
		return ""
	})
	l.computes(host) // the program that stays has what it needs
	l.onHost(host, "far")
	l.listedAway(bare, host)

	l.killBare(bare)
	l.killAgent(host)
	l.unmoved("far")
	l.onHost(host, "far")
	l.listedAway(bare, host)

	l.cut(host)
	why := l.event("far", "RemoteShareEnded")
	if !strings.Contains(why, "on host "+host.Name+" has ended") {
		l.t.Errorf("the event says: %s", why)
	}
	l.eventually("the program is told", func() string {
		text, err := l.PodLogs(l.ctx, l.namespace, "far", "main")
		if err == nil && !strings.Contains(text, "CUDA_ERROR_DEVICE_UNAVAILABLE") {
			err = fmt.Errorf("it says %s", tail(text))
		}
		return reason(err)
	})
	l.eventually("nobody gets GPUs of the host", func() string { return reason(l.hostAway(host)) })
	l.remove("far")
	l.eventually("nothing is left on "+bare.Name, func() string { // a relay that was told to end takes a moment
		left, err := bare.Exec(l.ctx, "sh", "-c", "ls /var/run/cdi; pgrep -fa '[d]ivvy relay' || true")
		return strings.TrimSpace(left) + reason(err)
	})
}

// killBare kills the agent of a node without a machine, by which it could be found, and returns once another one is ready.
func (l *lab) killBare(n *cluster.Machine) {
	l.t.Helper()
	agent := func() string {
		text, err := n.Exec(l.ctx, "sh", "-c", "pgrep -f '^divvy agent --kubernetes' || true")
		l.must(err)
		return strings.TrimSpace(text)
	}
	before := agent()
	_, err := n.Exec(l.ctx, "kill", "-KILL", before)
	l.must(err)
	l.eventually("another agent runs on "+n.Name, func() string {
		if now := agent(); now == "" || now == before {
			return "process " + now
		}
		return ""
	})
	l.serving()
}

// onHost checks a pod with 4 GiB of a GPU of another node: what it is told, what it can have, and what the simulator of that node has.
func (l *lab) onHost(host *cluster.Machine, name string) {
	l.t.Helper()
	if text := l.exec(name, "main", "sh", "-c", "ls /dev | grep nvidia || echo no device"); strings.TrimSpace(text) != "no device" {
		l.t.Errorf("pod %s sees %s", name, text)
	}
	devices := l.nvml(name, "main")
	if len(devices) != 1 || devices[0].Total != 4*gib {
		l.t.Errorf("pod %s is shown %+v", name, devices)
	}
	// What the pod's program that stays has is neither allocated nor free.
	f := l.fill(name, "main", 0, turn...)
	if f.Result != "CUDA_ERROR_OUT_OF_MEMORY" || f.Total != 4*gib || f.Allocated < 2*gib || f.Allocated > 4*gib {
		l.t.Errorf("pod %s could allocate %+v", name, f)
	}
	if next := l.fill(name, "main", 0, turn...); next != f {
		l.t.Errorf("the next program of pod %s could allocate %+v, the one before it %+v", name, next, f)
	}
	report, err := host.Oracle(l.ctx)
	l.must(err)
	for _, gpu := range report.GPUs {
		if gpu.Used == 0 || gpu.Used > 4*gib || gpu.Peak > 4*gib {
			l.t.Errorf("GPU %d of node %s: %d bytes are used, and %d were at most", gpu.Index, host.Name, gpu.Used, gpu.Peak)
		}
	}
	listing, err := l.listing(host)
	l.must(err)
	if len(listing.Tenants) != 1 || listing.Tenants[0].Remote == nil || listing.Tenants[0].Remote.Host != "bare" {
		l.t.Errorf("node %s lists %+v", host.Name, listing.Tenants)
	}
}

// listedAway checks what lists of a pod's node tell of the pod's share. Its agent's directory is named: it is that of a simulated machine,
// and none is there.
func (l *lab) listedAway(n, host *cluster.Machine) {
	l.t.Helper()
	text, err := n.Exec(l.ctx, "env", "DIVVY_RUNDIR=/run/divvy/simgpu/node", "divvy", "ls", "-o", "json")
	l.must(err)
	var document struct {
		Remote []relay.Record `json:"remote"`
	}
	l.must(json.Unmarshal([]byte(text), &document))
	if all := document.Remote; len(all) != 1 || all[0].Host != host.Name || all[0].State != relay.StateTaken || all[0].Memory != 4*gib || len(all[0].Processes) == 0 {
		l.t.Errorf("node %s lists %+v", n.Name, all)
	}
}

// hostAway tells of each GPU of a host that is offered without the taint of one that is away.
func (l *lab) hostAway(host *cluster.Machine) error {
	found, err := l.Client().ResourceV1().ResourceSlices().Get(l.ctx, v1alpha1.RemoteSlice(host.Name), metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, d := range found.Spec.Devices {
		if !slices.ContainsFunc(d.Taints, func(t resourcev1.DeviceTaint) bool { return t.Key == v1alpha1.HostTaint }) {
			err = errors.Join(err, fmt.Errorf("device %s has %v", d.Name, d.Taints))
		}
	}
	return err
}

// cut takes a node off the network, as a host that has died is, until the test ends.
func (l *lab) cut(n *cluster.Machine) {
	l.t.Helper()
	_, err := n.Exec(l.ctx, "ip", "link", "set", "eth0", "down")
	l.must(err)
	l.t.Cleanup(func() {
		if _, err := n.Exec(context.WithoutCancel(l.ctx), "ip", "link", "set", "eth0", "up"); err != nil {
			l.t.Error(err)
		}
	})
}

// resolveIssuer has nodes reach the controller's Service, for which this cluster has neither names nor a proxy.
func (l *lab) resolveIssuer() {
	l.t.Helper()
	pods, err := l.Client().CoreV1().Pods(system).List(l.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
	l.must(err)
	if len(pods.Items) != 1 {
		l.t.Fatalf("there are %d controllers", len(pods.Items))
	}
	const name = "divvy-controller-pool." + system + ".svc"
	for daemons, container := range map[string]string{"divvy-agent": "agent", "divvy-serve": "serve"} {
		set, err := l.Client().AppsV1().DaemonSets(system).Get(l.ctx, daemons, metav1.GetOptions{})
		l.must(err)
		args := set.Spec.Template.Spec.Containers[0].Args
		for i := range args {
			args[i] = strings.Replace(args[i], name+":443", name+":8444", 1)
		}
		text, err := json.Marshal(args)
		l.must(err)
		l.kubectl("patch", "-n", system, "daemonset/"+daemons, "-p", fmt.Sprintf(
			`{"spec": {"template": {"spec": {"hostAliases": [{"ip": %q, "hostnames": [%q]}], "containers": [{"name": %q, "args": %s}]}}}}`,
			pods.Items[0].Status.PodIP, name, container, text))
	}
	l.kubectl("delete", "pods", "-n", system, "-l", "app.kubernetes.io/component=serve")
	l.kubectl("rollout", "status", "-n", system, "daemonset/divvy-agent", "--timeout=3m")
	l.serving()
	l.eventually("the host serves", func() string {
		text, err := l.Kubectl(l.ctx, "logs", "-n", system, "-l", "app.kubernetes.io/component=serve", "--tail=20")
		if err == nil && !strings.Contains(text, "serving claims") {
			err = fmt.Errorf("it says %s", text)
		}
		return reason(err)
	})
}
