package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// TestForms gives all GPUs form mps and has pods share them side by side, also by claims for NVIDIA's DRA driver.
func TestForms(t *testing.T) {
	l := newLab(t, cluster.Node{Name: "n2", Devices: vfioNodes})
	l.scenario("forms", func(l *lab) {
		defer l.install()
		gpu := l.gpuOf(0)
		l.install("nvidiaClass=true", "agent.backends.mps.gpus=all")
		l.published(l.Nodes[0], pool.Name(gpu, pool.MPS))
		sideBySide(l)
		forNVIDIA(l)
		bothForNVIDIA(l)
		l.install()
		l.published(l.Nodes[0], pool.Name(gpu, pool.Shared))
	})
	l.scenario("lent-by-claim", lentByClaim)
	l.minutes("parts-by-claim", partsByClaim)
}

// gpuOf is the UUID of a node's first GPU.
func (l *lab) gpuOf(node int) string {
	l.t.Helper()
	listing, err := l.listing(l.Nodes[node])
	l.must(err)
	return listing.GPUs[0].UUID
}

// loaded makes a pod of backend mps whose processes launch without end.
func loaded(name, memory, cores string) *corev1.Pod {
	p := plain(name, memory, cores)
	p.Annotations = map[string]string{v1alpha1.BackendAnnotation: string(v1alpha1.BackendMPS)}
	p.Spec.Containers[0].Command = []string{"sh", "-c", "while true; do gpubench load --ns=2000000 --sync=1 > /run/load 2>&1; done"}
	return p
}

// sideBySide has two pods share a GPU 30 to 70 under MPS, as the simulated driver tells, and goes on with the same server
// when the agent was killed.
func sideBySide(l *lab) {
	n := l.Nodes[0]
	l.run(on(n, loaded("thirty", "4Gi", "30")))
	l.run(on(n, loaded("seventy", "8Gi", "70")))
	want := map[int]uint64{32: 4 * gib, 75: 8 * gib} // of 108 multiprocessors
	told := func() string { return l.ceilings(n.Name, want) }
	l.eventually("each has its part of the multiprocessors", told)
	for pod, limit := range map[string]uint64{"thirty": 4 * gib, "seventy": 8 * gib} {
		if got := l.nvml(pod, "main"); len(got) != 1 || got[0].Total != limit {
			l.t.Errorf("pod %s sees %+v, want %d bytes", pod, got, limit)
		}
	}
	logs := l.kubectl("logs", "-n", system, "-l", "app.kubernetes.io/component=agent", "--tail=400", "--prefix")
	for line := range strings.SplitSeq(logs, "\n") {
		if strings.Contains(line, "msg=prepared") {
			l.t.Log(line)
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
	l.remove("thirty", "seventy")
}

// ceilings says how the clients of living MPS servers on a node differ from what is wanted: bytes by how many multiprocessors each may
// occupy, of which the driver may round one off.
func (l *lab) ceilings(node string, want map[int]uint64) string {
	for _, n := range l.Nodes {
		if n.Name != node {
			continue
		}
		report, err := n.Oracle(l.ctx)
		if err != nil {
			return err.Error()
		}
		var got []string
		found := 0
		alive := map[int]bool{}
		for _, p := range report.Processes {
			alive[p.PID] = p.MPSServer == p.PID
		}
		for _, p := range report.Processes {
			if p.MPSServer == 0 || p.MPSServer == p.PID {
				continue
			}
			for _, g := range p.GPUs {
				got = append(got, fmt.Sprintf("%s: %d multiprocessors, %d bytes", p.Command, g.Multiprocessors, g.MemoryLimit))
				if matches(want, &g) && alive[p.MPSServer] {
					found++
				}
			}
		}
		if found < len(want) || found < len(got) {
			return strings.Join(got, "; ") + fmt.Sprintf("; want %v", want)
		}
	}
	return ""
}

// servers are the processes of the MPS servers of a node.
func (l *lab) servers(node string) string {
	var pids []string
	for _, n := range l.Nodes {
		if n.Name != node {
			continue
		}
		report, err := n.Oracle(l.ctx)
		l.must(err)
		for _, p := range report.Processes {
			if p.MPSServer == p.PID && p.PID != 0 {
				pids = append(pids, strconv.Itoa(p.PID))
			}
		}
	}
	slices.Sort(pids)
	return strings.Join(pids, " ")
}

func matches(want map[int]uint64, g *simgpu.ProcessGPU) bool {
	for multiprocessors, bytes := range want {
		if d := int(g.Multiprocessors) - multiprocessors; (d == 0 || d == 1) && g.MemoryLimit == bytes {
			return true
		}
	}
	return false
}

// forNVIDIA runs a pod of the shape of NVIDIA's examples: two containers share a whole GPU by MPS
// (kubernetes-sigs/dra-driver-nvidia-gpu, demo/specs/quickstart/v1/gpu-test-mps.yaml). Its class and its configuration are
// addressed to NVIDIA's driver.
func forNVIDIA(l *lab) {
	n := l.Nodes[0]
	text := `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: side-by-side, namespace: ` + l.namespace + `}
spec:
  spec:
    devices:
      requests: [{name: one, exactly: {deviceClassName: gpu.nvidia.com, selectors: [{cel: {expression: 'device.attributes["gpu.nvidia.com"].type == "gpu"'}}]}}]
      config:
        - requests: [one]
          opaque:
            driver: gpu.nvidia.com
            parameters:
              apiVersion: resource.nvidia.com/v1beta1
              kind: GpuConfig
              sharing:
                strategy: MPS
                mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 6Gi}
`
	l.must(l.ApplyText(l.ctx, text))
	p := loaded("theirs", "", "")
	p.Annotations = nil
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("side-by-side")}}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu", Request: "one"}}}
	second := p.Spec.Containers[0]
	second.Name = "beside"
	p.Spec.Containers = append(p.Spec.Containers, second)
	l.run(on(n, p))
	l.eventually("both containers have half of the multiprocessors", func() string {
		if why := l.ceilings(n.Name, map[int]uint64{54: 6 * gib}); why != "" {
			return why
		}
		if a, b := l.nvml("theirs", "main"), l.nvml("theirs", "beside"); len(a) != 1 || len(b) != 1 || a[0].UUID != b[0].UUID {
			return fmt.Sprintf("they see %+v and %+v", a, b)
		}
		return ""
	})
	l.remove("theirs")
}

// bothForNVIDIA runs a pod of the shape of NVIDIA's example of two GPUs in two forms: two containers share one by long time
// slices, two the other by MPS (kubernetes-sigs/dra-driver-nvidia-gpu, demo/specs/quickstart/v1/gpu-test5.yaml). The
// node's own form of both is MPS.
func bothForNVIDIA(l *lab) {
	n := l.Nodes[1]
	text := `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two-forms, namespace: ` + l.namespace + `}
spec:
  spec:
    devices:
      requests:
        - {name: in-turn, exactly: {deviceClassName: gpu.nvidia.com}}
        - {name: at-once, exactly: {deviceClassName: gpu.nvidia.com}}
      config:
        - requests: [in-turn]
          opaque:
            driver: gpu.nvidia.com
            parameters:
              apiVersion: resource.nvidia.com/v1beta1
              kind: GpuConfig
              sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Long}}
        - requests: [at-once]
          opaque:
            driver: gpu.nvidia.com
            parameters:
              apiVersion: resource.nvidia.com/v1beta1
              kind: GpuConfig
              sharing:
                strategy: MPS
                mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi}
`
	l.must(l.ApplyText(l.ctx, text))
	p := loaded("both", "", "")
	p.Annotations = nil
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: new("two-forms")}}
	shape := p.Spec.Containers[0]
	p.Spec.Containers = nil
	for _, request := range []string{"in-turn", "at-once"} {
		for _, place := range []string{"first", "second"} {
			c := shape
			c.Name = request + "-" + place
			c.Resources = corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpus", Request: request}}}
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	l.run(on(n, p))
	uuids := map[string]string{}
	for _, request := range []string{"in-turn", "at-once"} {
		a, b := l.nvml("both", request+"-first"), l.nvml("both", request+"-second")
		if len(a) != 1 || len(b) != 1 || a[0].UUID != b[0].UUID {
			l.t.Fatalf("the containers of request %s see %+v and %+v", request, a, b)
		}
		uuids[request] = a[0].UUID
	}
	l.eventually("one GPU has long slices, the other's clients half of the multiprocessors", func() string {
		return cmp.Or(l.sliced(n, uuids["in-turn"], "long", 2), l.ceilings(n.Name, map[int]uint64{54: 10 * gib}))
	})
	l.remove("both")
	l.eventually("the slices are as before", func() string { return l.sliced(n, uuids["in-turn"], "default", 0) })
}

// sliced says how a GPU's time slices, and the processes that use it without MPS, differ from what is wanted.
func (l *lab) sliced(n *cluster.Machine, uuid, slice string, processes int) string {
	report, err := n.Oracle(l.ctx)
	if err != nil {
		return err.Error()
	}
	i := slices.IndexFunc(report.GPUs, func(g simgpu.GPUReport) bool { return g.UUID == uuid })
	if i < 0 {
		return "no GPU " + uuid
	}
	alone := 0
	for _, p := range report.Processes {
		if p.MPSServer == 0 && slices.ContainsFunc(p.GPUs, func(g simgpu.ProcessGPU) bool { return g.Index == report.GPUs[i].Index }) {
			alone++
		}
	}
	if g := report.GPUs[i]; g.TimeSlice != slice || alone != processes {
		return fmt.Sprintf("GPU %d has slices %s and %d processes without MPS, want %s and %d", g.Index, g.TimeSlice, alone, slice, processes)
	}
	return ""
}
