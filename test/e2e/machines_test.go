package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

const (
	// lentGPU is the second GPU of testdata/two.yaml, and lentGroup its modelled IOMMU group.
	lentGPU, lentGroup = "0000:3c:00.0", "7"
	lentDevice         = "passthrough-0000-3c-00-0"
)

// vfioNodes are those of a node from which virtual machines get lentGPU and parts of devices. Nobody has the last one.
var vfioNodes = []string{"vfio/vfio", "vfio/" + lentGroup, "vfio/21", "vfio/22", "vfio/31", "vfio/32", "vfio/41", "vfio/8"}

// modelVFIO gives a simulated GPU what the kernel shows of one that could be given to a virtual machine: its IOMMU group, the
// driver that has it, and vfio-pci. The agents of test/e2e/crashing change these files as the kernel does.
func (l *lab) modelVFIO(n *cluster.Machine) {
	l.t.Helper()
	const script = `set -eu
cd "$1/sys"
mkdir -p bus/pci/drivers/nvidia bus/pci/drivers/vfio-pci module/vfio_pci
cd "bus/pci/devices/$2"
ln -s "/sys/kernel/iommu_groups/$3" iommu_group
ln -s /sys/bus/pci/drivers/nvidia driver
echo nvidia > home
echo flr > reset_method
echo '(null)' > driver_override
`
	_, err := n.Exec(l.ctx, "sh", "-c", script, "sh", n.SimgpuDir(), lentGPU, lentGroup)
	l.must(err)
}

// driver is which driver has lentGPU on a node, and which one alone may have it.
func (l *lab) driver(n *cluster.Machine) string {
	l.t.Helper()
	text, err := n.Exec(l.ctx, "sh", "-c", `cd "$1/sys/bus/pci/devices/$2" && basename "$(readlink driver)" && cat driver_override`, "sh", n.SimgpuDir(), lentGPU)
	l.must(err)
	return strings.Join(strings.Fields(text), " ")
}

const (
	boundDriver = "vfio-pci vfio-pci"
	firstDriver = "nvidia (null)"
)

// startLending has agents give devices of the hosts that are modelled on their nodes.
func (l *lab) startLending() {
	l.t.Helper()
	l.replaceAgents(map[string]string{"DIVVY_MODEL": l.Nodes[0].SimgpuDir()})
}

// replaceAgents has nodes run the program test/e2e/crashing with variables for an agent. It lies in the directory that every
// agent has from its node.
func (l *lab) replaceAgents(variables map[string]string) {
	l.t.Helper()
	program := filepath.Join(l.Nodes[0].SimgpuDir(), "crashing")
	path, err := cluster.Built("test/e2e/crashing")
	l.must(err)
	for _, node := range l.Nodes {
		built, err := os.Open(path)
		l.must(err)
		cmd := node.Command(l.ctx, "sh", "-c", "cat > "+program+" && chmod 755 "+program)
		cmd.Stdin = built
		_, err = node.Output(cmd)
		built.Close()
		l.must(err)
	}
	environment := []corev1.EnvVar{{Name: "DIVVY_PREFIX", Value: "/usr/local"}}
	for name, value := range variables {
		environment = append(environment, corev1.EnvVar{Name: name, Value: value})
	}
	text, err := json.Marshal(environment)
	l.must(err)
	l.kubectl("patch", "-n", system, "daemonset/divvy-agent", "-p",
		fmt.Sprintf(`{"spec": {"template": {"spec": {"containers": [{"name": "agent", "command": [%q], "env": %s}]}}}}`, program, text))
}

// launcher makes a pod that prints, as its first command, what it finds of devices for virtual machines.
func launcher(name string) *corev1.Pod {
	p := plain(name, "", "")
	p.Spec.Containers[0].Command = []string{"sh", "-c", `exec 2>/dev/null
ls /dev/vfio
ls -d /run/divvy/share /dev/nvidia*
echo ---
env | grep PCI_RESOURCE
cat /var/run/kubernetes.io/dra-device-attributes/*/*/*/*-metadata.json
echo ---
exec sleep infinity`}
	return p
}

// finds is what a launcher printed: the nodes of VFIO and anything of CUDA, and variables or the file of its one request.
func (l *lab) finds(name string) (nodes, told string) {
	l.t.Helper()
	l.eventually(name+" prints what it finds", func() string {
		text, err := l.Kubectl(l.ctx, "logs", "-n", l.namespace, name)
		if err != nil {
			return err.Error()
		}
		parts := strings.Split(text, "---\n")
		if len(parts) != 3 {
			return "it has printed " + text
		}
		nodes, told = strings.Join(strings.Fields(parts[0]), " "), strings.TrimSpace(parts[1])
		return ""
	})
	return nodes, told
}

// lentByClaim has a claim for a whole GPU of a modelled host go through the scheduler, the kubelet and the agent. The pod finds the
// nodes of its group alone, and a file that names the device before its command starts. The device stays its own when the agent
// is killed, and goes back to its driver afterwards.
func lentByClaim(l *lab) {
	n := l.Nodes[1]
	l.modelVFIO(n)
	l.must(l.tryInstall("agent.backends.passthrough={" + lentGPU + "}"))
	l.startLending()
	l.serving()
	l.lends(n, lentDevice)
	l.must(l.ApplyText(l.ctx, fmt.Sprintf("{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {namespace: %s, name: whole-gpu}, "+
		"spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: passthrough.divvy.dev}}]}}}}", l.namespace)))
	usesTemplate := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("whole-gpu")}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		return p
	}
	l.run(usesTemplate(launcher("machine")))
	l.has("machine", lentDevice)
	l.bothAreGiven(n, "machine")
	l.create(usesTemplate(launcher("another")))
	l.agree()

	l.killAgent(n)
	l.pending("another")
	l.bothAreGiven(n, "machine")
	l.agree()
	l.remove("machine") // and the next one has it
	l.running("another")
	l.bothAreGiven(n, "another")
	l.remove("another")
	l.eventually("the GPU is back with its driver", func() string {
		if now := l.driver(n); now != firstDriver {
			return "it has " + now
		}
		return ""
	})
	resets, err := n.Exec(l.ctx, "cat", filepath.Join(n.SimgpuDir(), "sys/bus/pci/devices", lentGPU, "resets"))
	l.must(err)
	if got := strings.Count(resets, "reset"); got != 2 {
		l.t.Errorf("the GPU was reset %d times after two users", got)
	}
	l.agree()
	l.kubectl("rollout", "undo", "-n", system, "daemonset/divvy-agent") // Helm changes nothing that somebody else wrote
	l.install()
	l.run(on(n, whole("both", 2)))
	if got := l.nvml("both", "main"); len(got) != 2 {
		l.t.Errorf("the node gives %+v afterwards", got)
	}
}

// lends waits until a node publishes devices for virtual machines.
func (l *lab) lends(n *cluster.Machine, want ...string) {
	l.t.Helper()
	l.eventually(n.Name+" lends its devices", func() string {
		names, err := l.Kubectl(l.ctx, "get", "resourceslices", "--field-selector=spec.nodeName="+n.Name, "-o", "jsonpath={.items[*].spec.devices[*].name}")
		for _, name := range want {
			if err == nil && !slices.Contains(strings.Fields(names), name) {
				return "it publishes " + names
			}
		}
		return reason(err)
	})
}

// bothAreGiven checks what a launcher has, and that its device is with vfio-pci.
func (l *lab) bothAreGiven(n *cluster.Machine, name string) {
	l.t.Helper()
	nodes, told := l.finds(name)
	if nodes != lentGroup+" vfio" {
		l.t.Errorf("pod %s finds %s, want the nodes of group %s", name, nodes, lentGroup)
	}
	var known metadata.DeviceMetadata
	l.must(devicemetadata.DecodeMetadataFromStream(json.NewDecoder(strings.NewReader(told)), &known))
	if len(known.Requests) != 1 || known.Requests[0].Name != "gpu" || len(known.Requests[0].Devices) != 1 {
		l.t.Fatalf("the file of pod %s has %+v", name, known.Requests)
	}
	if at := known.Requests[0].Devices[0].Attributes["resource.kubernetes.io/pciBusID"].StringValue; ptr.Deref(at, "") != lentGPU {
		l.t.Errorf("the file of pod %s names %v, want %s", name, at, lentGPU)
	}
	if now := l.driver(n); now != boundDriver {
		l.t.Errorf("the GPU of pod %s has %s", name, now)
	}
}

// lentBySlots has the kubelet give the same device to a pod by a resource, with the variable by which KubeVirt finds it. It stays
// ready for the next pod.
func lentBySlots(l *lab) {
	const counted = "divvy.dev/passthrough_10de_20b5"
	n := l.Nodes[0]
	l.modelVFIO(n)
	l.startLending()
	l.eventually("the kubelet counts the GPU", func() string {
		q, err := l.Kubectl(l.ctx, "get", "node", n.Name, "-o", `jsonpath={.status.allocatable.divvy\.dev/passthrough_10de_20b5}`)
		if err == nil && q != "1" {
			return "it counts " + q
		}
		return reason(err)
	})
	for _, name := range []string{"machine", "next"} {
		p := launcher(name)
		p.Spec.Containers[0].Resources.Limits[counted] = quantity("1")
		l.run(p)
		nodes, told := l.finds(name)
		if nodes != lentGroup+" vfio" || told != "PCI_RESOURCE_DIVVY_DEV_PASSTHROUGH_10DE_20B5="+lentGPU {
			l.t.Errorf("pod %s finds %s and %s", name, nodes, told)
		}
		if now := l.driver(n); now != boundDriver {
			l.t.Errorf("the GPU of pod %s has %s", name, now)
		}
		l.remove(name)
	}
	l.kubectl("rollout", "undo", "-n", system, "daemonset/divvy-agent")
	l.kubectl("rollout", "status", "-n", system, "daemonset/divvy-agent", "--timeout=3m")
	l.slots(n.Name, 64) // as the node's status says, which may be of the agents before
	l.admitted(plain("after", "1Gi", ""))
}
