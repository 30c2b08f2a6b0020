package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// A request that cannot be granted is refused, or waits, with a message of one line.
func badRequests(l *lab) {
	privileged := plain("privileged", "1Gi", "")
	privileged.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	placed := plain("placed", "1Gi", "")
	placed.Spec.NodeName = "n1"
	mixed := plain("mixed", "1Gi", "")
	mixed.Spec.Containers[0].Resources.Limits["tencent.com/vcuda-core"] = quantity("30")
	mixed.Spec.Containers[0].Resources.Limits["tencent.com/vcuda-memory"] = quantity("4")
	percent := plain("percent", "", "")
	percent.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceMemoryPercent] = quantity("101")
	worker := plain("worker", "1Gi", "")
	worker.Spec.SchedulerName = "volcano"
	worker.Annotations = map[string]string{"scheduling.k8s.io/group-name": "mpi"}
	joint := plain("joint", "1Gi", "")
	joint.Annotations = map[string]string{"scheduling.koordinator.sh/device-joint-allocate": `{"deviceTypes": ["gpu", "rdma"]}`}
	for _, bad := range []struct {
		pod *corev1.Pod
		say string
	}{
		{percent, "gpu-memory-percent"},
		{worker, `group "mpi" of scheduler volcano`},
		{joint, "device-joint-allocate is not offered"},
		{plain("bytes", "1000", ""), "whole MiB"},
		{plain("negative", "-1Gi", ""), "gpu-memory"},
		{plain("cores", "1Gi", "101"), "cores"},
		{plain("half", "1Gi", "500m"), "cores"},
		{privileged, "privileged"},
		{placed, "node selector"},
		{mixed, "dialect"},
	} {
		why := l.refused(bad.pod)
		l.t.Logf("%s: %s", bad.pod.Name, why)
		if !strings.Contains(why, bad.say) || strings.Contains(why, "\n") {
			l.t.Errorf("pod %s is refused with %q, which does not say %q in one line", bad.pod.Name, why, bad.say)
		}
	}
	// A pod that asks for nothing gets nothing and is not changed.
	if p := l.run(plain("nothing", "0", "")); len(p.Spec.ResourceClaims) > 0 {
		l.t.Errorf("a pod that asks for nothing has claims: %+v", p.Spec.ResourceClaims)
	}
	l.create(plain("giant", "100Gi", ""))
	l.create(whole("many", 3))
	l.event("giant", "NoShareFits")
	l.event("many", "NoShareFits")
	l.pending("giant")
	l.pending("many")
	l.agree()
}

// Configurations are read strictly by the webhook, and again by the agent where a
// device class bypasses the webhook.
func badClaims(l *lab) {
	for fault, claim := range map[string]string{
		"wieght":  l.claim("unknown", "memory: 1Gi", shareConfig("policy: weighted, wieght: 3")),
		"sharing": l.claim("value", "memory: 1Gi", shareConfig("policy: sharing")),
		"two configurations": l.claim("conflict", `memory: 1Gi, cores: "20"`, shareConfig("policy: fixed"),
			shareConfig("policy: weighted, weight: 2")),
		"memory": l.claim("none", `memory: "0"`),
		"cores":  l.claim("time", `memory: 1Gi, cores: "101"`),
	} {
		err := l.ApplyText(l.ctx, claim)
		if err == nil {
			l.t.Errorf("a claim is admitted in spite of its fault: %s", fault)
			continue
		}
		l.t.Logf("%s: %v", fault, err)
		if !strings.Contains(err.Error(), fault) {
			l.t.Errorf("a claim is refused with %v, which does not say: %s", err, fault)
		}
	}
	l.classConfig()
	l.twoClaims()
	l.agree()
}

// classConfig puts a wrong configuration into a device class, which the webhook does not see.
func (l *lab) classConfig() {
	l.t.Helper()
	l.must(l.ApplyText(l.ctx, `{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: wrong.example.com}, spec: {`+
		`selectors: [{cel: {expression: 'device.driver == "divvy.dev" && device.attributes["divvy.dev"].form == "shared"'}}], `+
		`config: [`+shareConfig("policy: weighted, wieght: 3")+`]}}`))
	claim := strings.Replace(l.claim("wrong", "memory: 1Gi"), v1alpha1.ClassShare, "wrong.example.com", 1)
	l.must(l.ApplyText(l.ctx, claim))
	l.create(uses(plain("wrong", "", ""), "wrong"))
	if why := l.event("wrong", "PrepareFailed"); !strings.Contains(why, "wieght") {
		l.t.Errorf("the event does not name the field: %s", why)
	}
	l.remove("wrong")
	l.kubectl("delete", "-n", l.namespace, "resourceclaim/wrong")
	l.kubectl("delete", "deviceclass/wrong.example.com")
}

// twoClaims gives one container two claims.
func (l *lab) twoClaims() {
	l.t.Helper()
	l.must(l.ApplyText(l.ctx, l.claim("first", "memory: 1Gi")))
	l.must(l.ApplyText(l.ctx, l.claim("second", "memory: 1Gi")))
	why := l.refused(uses(uses(plain("both", "", ""), "first"), "second"))
	l.t.Logf("two claims: %s", why)
	if !strings.Contains(why, "one claim") {
		l.t.Errorf("two claims in one container are refused with: %s", why)
	}
	// A claim that two pods use is one share.
	l.run(uses(plain("one", "", ""), "first"))
	l.run(uses(on(l.nodeOf("one"), plain("two", "", "")), "first"))
	l.agree()
	l.limited("two", "main", 1*gib, 1)
	l.remove("one")
	l.agree()
	l.limited("two", "main", 1*gib, 1)
	l.remove("two")
}

// nodeOf returns the node of a pod.
func (l *lab) nodeOf(pod string) *cluster.Machine {
	l.t.Helper()
	p, err := l.Client().CoreV1().Pods(l.namespace).Get(l.ctx, pod, metav1.GetOptions{})
	l.must(err)
	for _, n := range l.Nodes {
		if n.Name == p.Spec.NodeName {
			return n
		}
	}
	l.t.Fatalf("pod %s is on node %q", pod, p.Spec.NodeName)
	return nil
}

// handMade asks an agent directly for claims that no scheduler would allocate.
func handMade(l *lab) {
	kubelet := l.asKubelet(l.Nodes[0])
	first, err := l.listing(l.Nodes[0])
	l.must(err)
	uuid := first.GPUs[0].UUID
	for name, bad := range map[string]struct{ pool, uuid, memory, say string }{
		"other":    {"n2", uuid, "1Gi", "n2"},
		"vanished": {"n1", "GPU-00000000-0000-0000-0000-000000000000", "1Gi", "not on this machine"},
		"large":    {"n1", uuid, "17Gi", "GPU 0"},
	} {
		claim := l.allocated(name, bad.pool, bad.uuid, bad.memory)
		_, why := kubelet.prepare(claim)
		l.t.Logf("%s: %s", name, why)
		if !strings.Contains(why, bad.say) || strings.Contains(why, "\n") {
			l.t.Errorf("claim %s is refused with %q, which does not say %q in one line", name, why, bad.say)
		}
		l.event(name, "PrepareFailed")
		if why := kubelet.unprepare(claim); why != "" {
			l.t.Errorf("claim %s, which was never prepared, is not let go: %s", name, why)
		}
		l.must(l.Client().ResourceV1().ResourceClaims(l.namespace).Delete(l.ctx, name, metav1.DeleteOptions{}))
	}
	l.agree()

	claim := l.allocated("twice", "n1", uuid, "9Gi")
	devices, why := kubelet.prepare(claim)
	again, whyAgain := kubelet.prepare(claim)
	if why+whyAgain != "" || len(devices) != 1 || fmt.Sprint(devices) != fmt.Sprint(again) {
		l.t.Errorf("prepared twice: %v %s, then %v %s", devices, why, again, whyAgain)
	}
	l.agree()
	beside := l.allocated("beside", "n1", uuid, "9Gi")
	if _, why := kubelet.prepare(beside); why == "" {
		l.t.Error("two claims of 9 GiB are prepared on a GPU of 16")
	}
	for range 2 {
		if why := kubelet.unprepare(claim); why != "" {
			l.t.Errorf("let go: %s", why)
		}
	}
	if _, why := kubelet.prepare(beside); why != "" {
		l.t.Errorf("the place of a claim that was let go is not free: %s", why)
	}
	if why := kubelet.unprepare(beside); why != "" {
		l.t.Errorf("let go: %s", why)
	}
}

// allocated makes a claim and writes its allocation itself.
func (l *lab) allocated(name, node, uuid, memory string) *resourcev1.ResourceClaim {
	l.t.Helper()
	return l.allocate(name, v1alpha1.ClassShare, resourcev1.DeviceRequestAllocationResult{
		Pool: node, Device: pool.Name(uuid, pool.Shared),
		ConsumedCapacity: map[resourcev1.QualifiedName]resource.Quantity{
			v1alpha1.CapacityMemory: quantity(memory), v1alpha1.CapacityCores: quantity("0"), v1alpha1.CapacitySlots: quantity("1"),
		},
	})
}

// allocate makes a claim of a class and writes what a scheduler would have given it.
func (l *lab) allocate(name, class string, given resourcev1.DeviceRequestAllocationResult) *resourcev1.ResourceClaim {
	l.t.Helper()
	given.Request, given.Driver = "gpu", v1alpha1.Driver
	claims := l.Client().ResourceV1().ResourceClaims(l.namespace)
	claim, err := claims.Create(l.ctx, &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class},
		}}}},
	}, metav1.CreateOptions{})
	l.must(err)
	if given.ConsumedCapacity != nil {
		given.ShareID = &claim.UID
	}
	on := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
		Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{given.Pool},
	}}}
	claim.Status.Allocation = &resourcev1.AllocationResult{
		Devices:      resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{given}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{on}},
	}
	scheduler := l.as("system:kube-scheduler") // the admission policy lets nobody else give GPUs
	claim, err = scheduler.ResourceV1().ResourceClaims(l.namespace).UpdateStatus(l.ctx, claim, metav1.UpdateOptions{})
	l.must(err)
	return claim
}

// kubelet calls a node's agent as the kubelet does.
type kubelet struct {
	*lab
	client drav1.DRAPluginClient
}

func (l *lab) asKubelet(n *cluster.Machine) *kubelet {
	l.t.Helper()
	socket := n.Path(filepath.Join("/var/lib/kubelet/plugins", v1alpha1.Driver, "dra.sock"))
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	l.must(err)
	l.t.Cleanup(func() { _ = conn.Close() })
	return &kubelet{l, drav1.NewDRAPluginClient(conn)}
}

func (k *kubelet) prepare(c *resourcev1.ResourceClaim) ([]*drav1.Device, string) {
	k.t.Helper()
	answer, err := k.client.NodePrepareResources(k.ctx, &drav1.NodePrepareResourcesRequest{Claims: asked(c)})
	k.must(err)
	one := answer.Claims[string(c.UID)]
	return one.Devices, one.Error
}

func (k *kubelet) unprepare(c *resourcev1.ResourceClaim) string {
	k.t.Helper()
	answer, err := k.client.NodeUnprepareResources(k.ctx, &drav1.NodeUnprepareResourcesRequest{Claims: asked(c)})
	k.must(err)
	return answer.Claims[string(c.UID)].Error
}

func asked(c *resourcev1.ResourceClaim) []*drav1.Claim {
	return []*drav1.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}}
}

// While the webhook is away, pods that name a dialect are refused, other pods are
// admitted, and running pods continue.
func webhookAway(l *lab) {
	l.run(busy("busy", "2Gi", ""))
	l.kubectl("scale", "-n", system, "deployment/divvy-webhook", "--replicas=0")
	l.eventually("the webhook is away", func() string {
		_, err := l.Client().CoreV1().Pods(l.namespace).Create(l.ctx, plain("share", "1Gi", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), `failed calling webhook "pods.divvy.dev"`) {
			return fmt.Sprint(err)
		}
		return ""
	})
	l.run(plain("none", "", ""))
	l.unmoved("busy")
	l.kubectl("scale", "-n", system, "deployment/divvy-webhook", "--replicas=1")
	l.serving()
	l.run(plain("share", "1Gi", ""))
	l.agree()
}

// A faulty GPU gets no new pods and a lost GPU loses its pods. Both are published
// again once they work.
func health(l *lab) {
	l.only(1)
	n := l.Nodes[1]
	l.run(whole("a", 1))
	l.run(whole("b", 1))
	listing, err := l.listing(n)
	l.must(err)
	index := map[string]int{}
	for _, gpu := range listing.GPUs {
		index[gpu.UUID] = gpu.Index
	}
	ill, lost := index[l.nvml("a", "main")[0].UUID], index[l.nvml("b", "main")[0].UUID]
	l.inject(n, ill, "--xid", "48")
	l.tainted(1)
	l.running("a")
	l.remove("a")
	l.create(whole("c", 1))
	l.event("c", "NoShareFits")
	l.pending("c")
	l.agree()
	l.inject(n, ill, "--clear")
	l.running("c")
	l.tainted(0)
	// NVML_ERROR_GPU_IS_LOST
	l.inject(n, lost, "--call", "nvml", "--return", "15")
	ctx, cancel := l.bound()
	defer cancel()
	l.must(l.WaitGone(ctx, l.namespace, "b"))
	l.tainted(1)
	l.create(whole("d", 1))
	l.event("d", "NoShareFits")
	l.pending("d")
	l.running("c")
	l.inject(n, lost, "--clear")
	l.running("d")
	l.tainted(0)
	l.agree()
	l.lostUnseen(n, lost, "d")
	l.remove("again", "c")
	l.refusedGPU(n, lost)
}

// lostUnseen loses a GPU while no agent runs. The next agent, which starts without that GPU, evicts its pods too, and
// serves the GPU when it is back.
func (l *lab) lostUnseen(n *cluster.Machine, gpu int, pod string) {
	l.t.Helper()
	agent := l.signalAgent(n, "STOP")
	l.inject(n, gpu, "--call", "nvml", "--return", "15")
	_, err := n.Exec(l.ctx, "kill", "-KILL", strconv.Itoa(agent))
	l.must(err)
	ctx, cancel := l.bound()
	defer cancel()
	l.must(l.WaitGone(ctx, l.namespace, pod))
	l.inject(n, gpu, "--clear")
	l.run(whole("again", 1))
	l.tainted(0)
	l.agree()
}

// refusedGPU has an agent start while the driver answers about a GPU with NVML's unknown error: it serves the others.
func (l *lab) refusedGPU(n *cluster.Machine, gpu int) {
	l.t.Helper()
	l.inject(n, gpu, "--call", "nvml", "--return", "999")
	l.killAgent(n)
	l.tainted(1)
	l.run(whole("other", 1))
	l.create(whole("waits", 1))
	l.event("waits", "NoShareFits")
	l.inject(n, gpu, "--clear")
	l.running("waits")
	l.tainted(0)
	l.agree()
}

func (l *lab) inject(n *cluster.Machine, gpu int, args ...string) {
	l.t.Helper()
	_, err := n.Exec(l.ctx, "divvy", append([]string{"simgpu", "inject", "node", "--gpu", fmt.Sprint(gpu)}, args...)...)
	l.must(err)
}

// tainted waits until n devices have a taint.
func (l *lab) tainted(want int) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("%d devices are tainted", want), func() string {
		slices, err := l.Client().ResourceV1().ResourceSlices().List(l.ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		got := 0
		for i := range slices.Items {
			for _, d := range slices.Items[i].Spec.Devices {
				if len(d.Taints) > 0 {
					got++
				}
			}
		}
		if got != want {
			return fmt.Sprintf("%d are", got)
		}
		return ""
	})
}
