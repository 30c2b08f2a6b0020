package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// TestSlotsOfReplicas tests mode slots under the names of NVIDIA's device plugin.
func TestSlotsOfReplicas(t *testing.T) {
	replicas(t, slotsVersion(t))
}

// TestReplicasToClaims does so on the newest version, and then changes the node to mode claims.
func TestReplicasToClaims(t *testing.T) {
	if os.Getenv("DIVVY_E2E") != "claims" {
		t.Skip("starts a cluster: run `make e2e` as root")
	}
	l := replicas(t, cluster.DefaultVersion)
	l.minutes("replicas-to-claims", replicasToClaims)
}

const (
	wholeGPU  = "nvidia.com/gpu"
	sharedGPU = "nvidia.com/gpu.shared"
	choice    = "nvidia.com/device-plugin.config"
)

// pluginConfigs are named configurations as NVIDIA's device plugin takes them: every GPU as two renamed replicas, and the
// first one as four that are not.
var pluginConfigs = map[string]string{
	"halves": `
version: v1
flags: {failOnInitError: true}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources: [{name: nvidia.com/gpu, replicas: 2}]
`,
	"quarters": `
version: v1
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4, devices: [0]}]}}
`,
	"instances": `
version: v1
flags: {migStrategy: mixed}
sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/mig-1g.6gb, replicas: 2, devices: 1}]}}
`,
	"sides": `
version: v1
sharing: {mps: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 2, devices: [0]}]}}
`,
}

func replicas(t *testing.T, version string) *lab {
	t.Helper()
	if err := cluster.Available(version); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), begins)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{
		Nodes: []cluster.Node{
			{
				Name: "n1", Machine: filepath.Join(root, "test/e2e/testdata/two.yaml"), NRI: true,
				Labels: map[string]string{v1alpha1.NodeLabel: "", choice: "halves"},
			},
			{
				Name: "n2", Machine: "a30", MachineFlags: []string{"--set", "gpus[0].migMode=true"}, NRI: true,
				Labels: map[string]string{v1alpha1.NodeLabel: "", choice: "instances"},
			},
		},
		Images: slotsImages(t, version), Version: version, Containerd: slotsContainerd(), Log: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	l := over(t, c, root)
	install, end := context.WithTimeout(t.Context(), begins)
	defer end()
	l.makeNamespace(system)
	_, err = c.Client().CoreV1().ConfigMaps(system).Create(install, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "plugin-configs"}, Data: pluginConfigs}, metav1.CreateOptions{})
	l.must(err)
	l.must(c.Install(install, "mode=slots", "scheduler.replicas=1", "agent.devicePlugin.configMap=plugin-configs", "agent.nvidiaLabels=true"))
	l.scenario("replicas-are-shares", replicasAreShares)
	l.minutes("replicas-follow-the-label", replicasFollowTheLabel)
	l.minutes("replicas-outlive-the-kubelet", replicasOutliveTheKubelet)
	l.minutes("replicas-by-mps", replicasByMPS)
	l.scenario("replicas-of-instances", replicasOfInstances)
	return l
}

// counted waits until the node has so many of both resources for pods.
func (l *lab) counted(whole, shared int64) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("node n1 counts %d of %s and %d of %s", whole, wholeGPU, shared, sharedGPU), func() string {
		found, err := l.Client().CoreV1().Nodes().Get(l.ctx, "n1", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		a, b := found.Status.Allocatable[wholeGPU], found.Status.Allocatable[sharedGPU]
		if a.Value() != whole || b.Value() != shared {
			return fmt.Sprintf("there are %d and %d", a.Value(), b.Value())
		}
		return ""
	})
}

// asking makes a pod that asks for so many of a resource.
func asking(name, resource, n string) *corev1.Pod {
	p := pod(name, container("main", "", ""))
	p.Spec.Containers[0].Resources.Limits[corev1.ResourceName(resource)] = quantity(n)
	return p
}

// label sets a label of the node.
func (l *lab) label(name, value string) {
	l.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, name, value)
	_, err := l.Client().CoreV1().Nodes().Patch(l.ctx, "n1", types.MergePatchType, patch, metav1.PatchOptions{})
	l.must(err)
}

// Four pods have half a GPU each, and a fifth waits; two replicas of one container are refused.
func replicasAreShares(l *lab) {
	l.counted(0, 4)
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		l.create(asking(name, sharedGPU, "1"))
	}
	for _, name := range names {
		l.running(name)
	}
	l.held(4)
	listing, err := l.listing(l.Nodes[0])
	l.must(err)
	half := listing.GPUs[0].Capacity / 2 / (2 * mib) * (2 * mib)
	l.limited("a", "main", half, 1)
	l.limited("a", "main", half, 1, "env", "-i", "PATH=/usr/local/bin:/usr/bin")
	on := map[string]int{}
	for _, tenant := range listing.Tenants {
		on[tenant.Shares[0].UUID]++
		if tenant.Shares[0].Backend != v1alpha1.BackendTimeslice {
			l.t.Errorf("%s has a share of backend %q", tenant.Name, tenant.Shares[0].Backend)
		}
	}
	if len(on) != 2 {
		l.t.Errorf("the shares are on %v", on)
	}
	l.create(asking("fifth", sharedGPU, "1"))
	l.pending("fifth")
	l.remove("b")
	l.running("fifth")
	l.remove("a", "c", "d", "fifth")
	l.held(0)
	l.create(asking("two", sharedGPU, "2"))
	l.eventually("the kubelet refuses two replicas", func() string {
		p, err := l.Client().CoreV1().Pods(l.namespace).Get(l.ctx, "two", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if p.Status.Phase != corev1.PodFailed || !strings.Contains(p.Status.Message, "failRequestsGreaterThanOne") {
			return fmt.Sprintf("%s: %s", p.Status.Phase, p.Status.Message)
		}
		return ""
	})
	l.eventually("the node has NVIDIA's labels", func() string {
		node, err := l.Client().CoreV1().Nodes().Get(l.ctx, "n1", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for name, want := range map[string]string{"gpu.replicas": "2", "gpu.sharing-strategy": "time-slicing", "gpu.product": "NVIDIA-A100-80GB-PCIe", "gpu.count": "2"} {
			if got := node.Labels["nvidia.com/"+name]; got != want {
				return fmt.Sprintf("label nvidia.com/%s is %q, not %q", name, got, want)
			}
		}
		return ""
	})
}

// Another configuration comes into force on each GPU when it is free, and an unknown one never.
func replicasFollowTheLabel(l *lab) {
	l.counted(0, 4)
	l.run(asking("stays", sharedGPU, "1"))
	l.label(choice, "quarters")
	l.eventually("the node counts what the free GPU has become", func() string {
		found, err := l.Client().CoreV1().Nodes().Get(l.ctx, "n1", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if q := found.Status.Allocatable[wholeGPU]; q.Value() != 1 && q.Value() != 4 {
			return fmt.Sprintf("there are %d", q.Value())
		}
		return ""
	})
	l.exec("stays", "main", "gpubench", "info")
	l.remove("stays")
	l.counted(5, 0)
	l.label(choice, "nowhere")
	l.eventually("an event names the unknown configuration", func() string {
		events, err := l.Client().EventsV1().Events("default").List(l.ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, e := range events.Items {
			if e.Reason == "UnknownDevicePluginConfig" && strings.Contains(e.Note, "nowhere") && strings.Contains(e.Note, "halves, instances, quarters, sides") {
				return ""
			}
		}
		return fmt.Sprintf("there are %d events", len(events.Items))
	})
	l.counted(5, 0)
	l.run(asking("quarter", wholeGPU, "1"))
	l.label(choice, "halves")
}

// A kubelet that starts anew knows of the replicas that pods have, gives nobody the same, and starts containers with them
// again.
func replicasOutliveTheKubelet(l *lab) {
	l.counted(0, 4)
	for _, name := range []string{"a", "b", "c"} {
		p := asking(name, sharedGPU, "1")
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
		p.Spec.Containers[0].Command = again(name, "").Spec.Containers[0].Command
		l.run(p)
	}
	had := l.replicasOf()
	ctx, cancel := l.bound()
	defer cancel()
	l.must(l.Nodes[0].KillKubelet(ctx))
	l.must(l.Nodes[0].StartKubelet(ctx))
	l.must(l.Nodes[0].WaitReady(ctx))
	l.counted(0, 4)
	l.admitted(asking("d", sharedGPU, "1"))
	l.held(4)
	l.create(asking("fifth", sharedGPU, "1"))
	l.pending("fifth")
	l.exec("b", "main", "touch", "/run/end")
	l.restarted("b")
	now := l.replicasOf()
	for name, gpu := range had {
		if now[name] != gpu {
			l.t.Errorf("%s has a share of %s, and had one of %s", name, now[name], gpu)
		}
	}
	on := map[string]int{}
	for _, gpu := range now {
		on[gpu]++
	}
	if len(on) != 2 || len(now) != 4 {
		l.t.Errorf("the shares are on %v", now)
	}
}

// replicasOf are the GPUs of the tenants of n1 by name.
func (l *lab) replicasOf() map[string]string {
	l.t.Helper()
	listing, err := l.listing(l.Nodes[0])
	l.must(err)
	found := map[string]string{}
	for _, t := range listing.Tenants {
		found[t.Name] = t.Shares[0].UUID
	}
	return found
}

// Two pods have half of the multiprocessors each, side by side under MPS, and the daemon outlives the agent.
func replicasByMPS(l *lab) {
	n := l.Nodes[0]
	l.label(choice, "sides")
	l.counted(1, 2)
	for _, name := range []string{"left", "right"} {
		p := asking(name, sharedGPU, "1")
		p.Spec.Containers[0].Command = loaded(name, "", "").Spec.Containers[0].Command
		l.run(p)
	}
	listing, err := l.listing(n)
	l.must(err)
	half := listing.GPUs[0].Capacity / 2 / (2 * mib) * (2 * mib)
	want := map[int]uint64{54: half} // of 108 multiprocessors
	told := func() string { return l.ceilings(n.Name, want) }
	l.eventually("each has half of the multiprocessors", told)
	for _, name := range []string{"left", "right"} {
		if got := l.nvml(name, "main"); len(got) != 1 || got[0].Total != half {
			l.t.Errorf("pod %s sees %+v, want %d bytes", name, got, half)
		}
	}
	servers := l.servers(n.Name)
	l.killAgent(n)
	l.eventually("the daemon's server outlives the agent", func() string {
		if now := l.servers(n.Name); now != servers || now == "" {
			return "MPS servers " + now + ", want " + servers
		}
		return told()
	})
	l.remove("left", "right")
	l.held(0)
	l.label(choice, "halves")
}

// Pods with replicas run on when the node goes over to claims, and their containers start again. The node's label chooses
// the forms of GPUs then, of each when it is free.
func replicasToClaims(l *lab) {
	n := l.Nodes[0]
	l.counted(0, 4)
	p := asking("stays", sharedGPU, "1")
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	p.Spec.Containers[0].Command = again("stays", "").Spec.Containers[0].Command
	l.run(p)
	l.must(l.Install(l.ctx, "mode=claims", "agent.devicePlugin.configMap=plugin-configs"))
	l.eventually("the kubelet knows a plugin without replicas", func() string {
		node, err := l.Client().CoreV1().Nodes().Get(l.ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if left, known := node.Status.Capacity[sharedGPU]; !known || !left.IsZero() {
			return fmt.Sprintf("it has %s replicas, and knows the plugin: %t", left.String(), known)
		}
		return ""
	})
	first, second := l.uuidOf(0), l.uuidOf(1)
	l.published(n, pool.Name(first, pool.Timeslice), pool.Name(second, pool.Timeslice))
	l.exec("stays", "main", "touch", "/run/end")
	l.restarted("stays")
	l.held(1)
	l.remove("stays")
	l.held(0)
	l.label(choice, "sides")
	l.published(n, pool.Name(first, pool.MPS), pool.Name(second, pool.Shared))
	l.translates()
	beside := plain("beside", "2Gi", "30")
	beside.Annotations = map[string]string{v1alpha1.BackendAnnotation: string(v1alpha1.BackendMPS)}
	l.run(beside)
	l.limited("beside", "main", 2*gib, 1)
	l.label(choice, "halves")
	l.eventually("the other GPU gets its form, and the one in use waits", func() string {
		return l.forms(n, map[string]pool.Form{first: pool.MPS, second: pool.Timeslice})
	})
	l.remove("beside")
	l.published(n, pool.Name(first, pool.Timeslice), pool.Name(second, pool.Timeslice))
}

// uuidOf is a GPU of n1.
func (l *lab) uuidOf(index int) string {
	l.t.Helper()
	listing, err := l.listing(l.Nodes[0])
	l.must(err)
	return listing.GPUs[index].UUID
}

// forms says in which other forms a node's GPUs are published.
func (l *lab) forms(n *cluster.Machine, want map[string]pool.Form) string {
	list, err := l.Client().ResourceV1().ResourceSlices().List(l.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
	if err != nil {
		return err.Error()
	}
	got := map[string]bool{}
	for i := range list.Items {
		for _, d := range list.Items[i].Spec.Devices {
			got[d.Name] = true
		}
	}
	for uuid, form := range want {
		if !got[pool.Name(uuid, form)] {
			return fmt.Sprintf("there are %v", got)
		}
	}
	return ""
}
