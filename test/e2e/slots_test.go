package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// TestSlots tests clusters older than shared claims: the scheduler counts slots, Divvy's extender beside it chooses GPUs, the
// Binding carries the assignment, and the container runtime injects the share.
func TestSlots(t *testing.T) {
	l := newSlotsLab(t, slotsVersion(t), 3, "scheduler.replicas=2")
	l.slots("n2", 0)
	l.scenario("slots-third-waits", slotsThird)
	l.scenario("slots-shapes", slotsShapes)
	l.scenario("slots-sidecars", slotsSidecars)
	l.scenario("slots-several-gpus", slotsSeveralGPUs)
	l.scenario("slots-refused", slotsRefused)
	l.scenario("slots-foreign", slotsForeign)
	l.scenario("slots-quota", slotsQuota)
	l.scenario("slots-priority", slotsPriority)
	l.scenario("slots-agent-away", slotsAgentAway)
	l.scenario("slots-agent-killed", slotsAgentKilled)
	l.scenario("slots-runtime-restarts", slotsRuntimeRestarts)
	l.minutes("slots-parts-killed", slotsPartsKilled)
	l.scenario("slots-force-deleted", slotsForceDeleted)
	l.scenario("slots-node-restarts", slotsNodeRestarts)
}

// slotsVersion is the Kubernetes that the whole suite runs on: one that cannot share what it allocates by claims. Other runs skip it.
func slotsVersion(t *testing.T) string {
	t.Helper()
	if os.Getenv("DIVVY_E2E") != "slots" {
		t.Skip("starts a cluster of Kubernetes 1.32 to 1.35: run `make e2e-slots` as root")
	}
	return os.Getenv("DIVVY_E2E_KUBERNETES")
}

// slotsContainerd is the line of containerd that its nodes have.
func slotsContainerd() string { return os.Getenv("DIVVY_E2E_CONTAINERD") }

// slotsNodes are those of a lab of mode slots: n1 with two GPUs, of which the second is in MIG mode and not offered; n2, which
// has no NRI; n3 with two GPUs.
func slotsNodes(root string) []cluster.Node {
	two := filepath.Join(root, "test/e2e/testdata/two.yaml")
	return []cluster.Node{
		{Name: "n1", Machine: two, MachineFlags: []string{"--set", "gpus[1].migMode=true"}, NRI: true, Devices: vfioNodes},
		{Name: "n2", Machine: "a100-80g", MachineFlags: []string{"--memory", "16Gi"}},
		{Name: "n3", Machine: two, NRI: true},
	}
}

// slotsImages are those under test and the version's own scheduler, which the chart runs in mode slots.
func slotsImages(t *testing.T, version string) []string {
	t.Helper()
	scheduler, err := cluster.Image("kube-scheduler-" + version)
	if err != nil {
		t.Fatal(err)
	}
	return append(images(t), scheduler)
}

// newSlotsLab starts a cluster of so many nodes with Divvy in mode slots.
func newSlotsLab(t *testing.T, version string, count int, values ...string) *lab {
	t.Helper()
	if err := cluster.Available(version); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	nodes := slotsNodes(root)[:count]
	for i := range nodes {
		nodes[i].Labels = map[string]string{v1alpha1.NodeLabel: ""}
	}
	ctx, cancel := context.WithTimeout(t.Context(), begins)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{
		Nodes: nodes, Images: slotsImages(t, version), Version: version, Containerd: slotsContainerd(), Log: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	l := over(t, c, root)
	if count > 2 {
		l.kubectl("cordon", "n3") // but for scenarios that want it
	}
	install, end := context.WithTimeout(t.Context(), begins)
	defer end()
	l.must(c.Install(install, append([]string{"mode=slots", "agent.backends.passthrough={" + lentGPU + "}"}, values...)...))
	l.slots("n1", 64)
	return l
}

// What pods are told that wait.
const (
	tooLittle = "too little GPU memory left"
	noneFree  = "no GPU without tenants"
)

// slots waits until a node offers n slots.
func (l *lab) slots(node string, n int64) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("node %s offers %d slots", node, n), func() string {
		found, err := l.Client().CoreV1().Nodes().Get(l.ctx, node, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		_, described := found.Annotations[v1alpha1.GPUsAnnotation]
		if q := found.Status.Allocatable[v1alpha1.SlotResource]; q.Value() != n || !described {
			return fmt.Sprintf("it offers %d, and says what GPUs it has: %t", q.Value(), described)
		}
		return ""
	})
}

// held waits until the agent of n1 has so many tenants.
func (l *lab) held(n int) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("%d tenants on n1", n), func() string {
		listing, err := l.listing(l.Nodes[0])
		if err != nil {
			return err.Error()
		}
		if len(listing.Tenants) != n {
			return fmt.Sprintf("there are %d", len(listing.Tenants))
		}
		return ""
	})
}

func slotsThird(l *lab) {
	l.example("share")
	l.example("memory")
	l.running("share")
	l.running("memory")
	l.held(2)
	l.create(plain("third", "8Gi", ""))
	l.waitsFor("third", tooLittle)
	l.pending("third")
	l.recorded()
	l.remove("memory")
	l.running("third")
	l.held(2)
	l.recorded()
	l.limited("third", "main", 8*gib, 1)
	l.limited("third", "main", 8*gib, 1, "env", "-i", "PATH=/usr/local/bin:/usr/bin")
}

// Two containers, a container that ends first, and a whole GPU.
func slotsShapes(l *lab) {
	two := pod("two", container("large", "4Gi", "30"), container("small", "1Gi", "10"), container("none", "", ""))
	first := container("first", "2Gi", "")
	first.Command = []string{"sh", "-c", "gpubench info"}
	p := pod("turns", container("main", "2Gi", ""))
	p.Spec.InitContainers = []corev1.Container{first}
	l.run(two)
	l.run(p)
	l.limited("two", "large", 4*gib, 1)
	l.limited("two", "small", 1*gib, 1)
	l.limited("turns", "main", 2*gib, 1)
	if text := l.exec("two", "none", "sh", "-c", "ls -d /run/divvy/share || echo none"); strings.TrimSpace(text) != "none" {
		l.t.Errorf("a container that asks for nothing has %s", text)
	}
	l.held(3)
	l.recorded()
	l.create(whole("whole", 1))
	l.waitsFor("whole", noneFree)
	l.remove("two", "turns")
	l.running("whole")
	listing, err := l.listing(l.Nodes[0])
	l.must(err)
	l.limited("whole", "main", listing.GPUs[0].Capacity, 1)
}

// Users may not write Divvy's annotations, and some pods must be refused.
func slotsRefused(l *lab) {
	privileged := pod("privileged", container("main", "1Gi", ""), container("beside", "", ""))
	yes := true
	privileged.Spec.Containers[1].SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	if why := l.refused(privileged); !strings.Contains(why, "privileged") {
		l.t.Errorf("privileged: %s", why)
	}
	own := plain("own", "", "")
	own.Spec.Containers[0].Resources.Limits[v1alpha1.SlotResource] = quantity("1")
	if why := l.refused(own); !strings.Contains(why, v1alpha1.SlotResource) {
		l.t.Errorf("a slot without a request: %s", why)
	}
	assigned := plain("assigned", "", "")
	assigned.Annotations = map[string]string{v1alpha1.AssignmentAnnotation: "{}"}
	if why := l.refused(assigned); !strings.Contains(why, v1alpha1.AssignmentAnnotation) {
		l.t.Errorf("an assignment of the user's: %s", why)
	}
	l.run(plain("mine", "1Gi", ""))
	for _, note := range []string{v1alpha1.AssignmentAnnotation + "={}", v1alpha1.RequestAnnotation + "={}", v1alpha1.AssignmentAnnotation + "-"} {
		if text, err := l.Kubectl(l.ctx, "annotate", "--overwrite", "-n", l.namespace, "pod", "mine", note); err == nil {
			l.t.Errorf("annotate %s: %s", note, text)
		}
	}
	// A scheduler that knows nothing of GPUs assigns none.
	blind := plain("blind", "1Gi", "")
	blind.Spec.SchedulerName = "nobody"
	l.create(blind)
	bind := func(annotations map[string]string) error {
		return l.Client().CoreV1().Pods(l.namespace).Bind(l.ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "blind", Annotations: annotations},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "n1"},
		}, metav1.CreateOptions{})
	}
	if err := bind(map[string]string{v1alpha1.AssignmentAnnotation: "{}"}); err == nil {
		l.t.Error("somebody else than the binder assigns GPUs")
	}
	if err := bind(nil); err == nil || !strings.Contains(err.Error(), v1alpha1.AssignmentAnnotation) {
		l.t.Errorf("a Binding without an assignment: %v", err)
	}
	l.pending("blind")
}

// A sidecar has its share beside the containers that it serves, and what comes before them takes turns with them.
func slotsSidecars(l *lab) {
	first := container("first", "6Gi", "")
	first.Command = []string{"gpubench", "info"}
	side := container("side", "4Gi", "20")
	side.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	p := pod("sidecar", container("main", "8Gi", ""))
	p.Spec.InitContainers = []corev1.Container{first, side}
	l.run(p)
	l.limited("sidecar", "main", 8*gib, 1)
	l.limited("sidecar", "side", 4*gib, 1)
	l.recorded()
	l.create(plain("beyond", "5Gi", ""))
	l.waitsFor("beyond", tooLittle)
	l.run(plain("within", "3Gi", ""))
	l.remove("sidecar")
	l.running("beyond")
	l.recorded()
}

// A pod has shares of two GPUs, and one has both of a node while nobody else has any of them.
func slotsSeveralGPUs(l *lab) {
	l.kubectl("uncordon", "n3")
	defer l.kubectl("cordon", "n3")
	l.slots("n3", 2*64)
	two := plain("two", "4Gi", "30")
	two.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceGPU] = quantity("2")
	if p := l.run(two); p.Spec.NodeName != "n3" {
		l.t.Errorf("the pod with two GPUs is on %s", p.Spec.NodeName)
	}
	l.limited("two", "main", 4*gib, 2)
	l.recorded()
	l.create(whole("both", 2))
	l.waitsFor("both", noneFree)
	// A GPU that fails takes no new pods, and the node's other one does.
	n := l.Nodes[2]
	l.inject(n, 0, "--call", "nvml", "--return", "15")
	l.slots(n.Name, 64)
	l.run(on(n, plain("beside", "8Gi", "")))
	if has := l.indexOf(n, "beside"); has != 1 {
		l.t.Errorf("GPU 0 fails, and the pod has GPU %d", has)
	}
	l.create(on(n, plain("waits", "8Gi", "")))
	l.waitsFor("waits", "")
	l.inject(n, 0, "--clear")
	l.slots(n.Name, 2*64)
	l.running("waits")
	if has := l.indexOf(n, "waits"); has != 0 {
		l.t.Errorf("GPU 0 alone has room, and the pod has GPU %d", has)
	}
	l.recorded()
	l.remove("beside", "waits", "two")
	l.running("both")
	l.recorded()
}

// indexOf is the index of the first GPU that a pod has on its node.
func (l *lab) indexOf(n *cluster.Machine, name string) int {
	l.t.Helper()
	listing, err := l.listing(n)
	l.must(err)
	for i := range listing.Tenants {
		if t := &listing.Tenants[i]; t.Name == l.namespace+"/"+name {
			return slices.IndexFunc(listing.GPUs, func(g control.GPU) bool { return g.UUID == t.Shares[0].UUID })
		}
	}
	l.t.Fatalf("node %s has no share of %s", n.Name, name)
	return -1
}

// waits waits until a pod's container is refused for a reason.
func (l *lab) waits(name, why string) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("%s waits for %s", name, why), func() string {
		p, err := l.Client().CoreV1().Pods(l.namespace).Get(l.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, s := range p.Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil && strings.HasPrefix(w.Reason, "CreateContainer") && strings.Contains(w.Message, why) {
				return ""
			}
		}
		return fmt.Sprintf("%+v", p.Status.ContainerStatuses)
	})
}

// admitted makes a pod, also while the webhook is away, and waits until it runs.
func (l *lab) admitted(p *corev1.Pod) {
	l.t.Helper()
	l.taken(p.DeepCopy())
	l.accepted(p)
}

// accepted waits until a pod runs that was made. It makes the pod again where the kubelet refused it because it does not know yet
// that there are slots again.
func (l *lab) accepted(p *corev1.Pod) {
	l.t.Helper()
	l.eventually("the kubelet admits "+p.Name, func() string {
		why := ""
		l.eventually(p.Name+" runs or is refused", func() string {
			found, err := l.Client().CoreV1().Pods(l.namespace).Get(l.ctx, p.Name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if why = found.Status.Reason; why == "UnexpectedAdmissionError" || found.Status.Phase == corev1.PodRunning {
				return ""
			}
			return string(found.Status.Phase)
		})
		if why != "" {
			l.remove(p.Name)
			l.taken(p.DeepCopy())
		}
		return why
	})
	l.running(p.Name)
}

// again makes a pod whose container ends when it finds the file /run/end, and starts again.
func again(name, memory string) *corev1.Pod {
	p := plain(name, memory, "")
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	p.Spec.Containers[0].Command = []string{"sh", "-c", "while [ ! -e /run/end ]; do sleep 0.1; done"}
	return p
}

// restarted waits until a pod's container runs for the second time.
func (l *lab) restarted(name string) {
	l.t.Helper()
	l.eventually("the container of "+name+" runs again", func() string {
		p, err := l.Client().CoreV1().Pods(l.namespace).Get(l.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if s := p.Status.ContainerStatuses[0]; s.State.Running == nil || s.RestartCount != 1 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

// noAgents takes the agents away from all nodes, and agentsBack lets them come again.
func (l *lab) noAgents() {
	l.t.Helper()
	l.kubectl("patch", "-n", system, "daemonset/divvy-agent", "--type=merge", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":"yes"}}}}}`)
	for _, n := range l.Nodes {
		l.gone(n)
	}
}

func (l *lab) agentsBack() {
	l.t.Helper()
	l.kubectl("patch", "-n", system, "daemonset/divvy-agent", "--type=merge", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":null}}}}}`)
}
