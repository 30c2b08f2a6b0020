package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// The devices whose parts virtual machines get: a card of Intel's with virtual functions, whose driver the host has too, a GPU on
// whose virtual functions NVIDIA's driver makes mediated devices, and the second GPU of testdata/two.yaml, whose functions take types.
const (
	cardOfFunctions = "0000:c1:00.0"
	mediatedGPU     = "0000:c2:00.0"
	typedGPU        = lentGPU
	// mediatedGroup is the group of the only mediated device that there can be.
	mediatedGroup = "41"
)

// modelParts gives a node a card with virtual functions, and its GPUs what NVIDIA's host driver for vGPU shows of them.
func (l *lab) modelParts(n *cluster.Machine) {
	l.t.Helper()
	const script = `set -eu
cd "$1/sys"
mkdir -p bus/mdev/devices bus/pci/drivers/nvidia bus/pci/drivers/xe bus/pci/drivers/vfio-pci module/vfio_pci
function() { # ADDRESS DRIVER VENDOR DEVICE CLASS FIRST-GROUP TOTAL: what the device shows that has functions, and what each of these does
	if [ ! -L "bus/pci/devices/$1" ]; then
		mkdir -p "devices/pci0000:c0/$1"
		ln -s "../../../devices/pci0000:c0/$1" "bus/pci/devices/$1"
		echo "$3" > "bus/pci/devices/$1/vendor"
		echo "$4" > "bus/pci/devices/$1/device"
		echo "$5" > "bus/pci/devices/$1/class"
	fi
	cd "bus/pci/devices/$1"
	[ -L driver ] || ln -s "/sys/bus/pci/drivers/$2" driver
	echo "$7" > sriov_totalvfs
	echo 0 > sriov_numvfs
	echo 1 > sriov_drivers_autoprobe
	echo "$6" > model-first-group
	mkdir -p model-function
	cd model-function
	echo "$2" > home
	echo "$3" > vendor
	echo "$4" > device
	echo "$5" > class
	echo flr > reset_method
	echo '(null)' > driver_override
	cd "$top"
}
top=$PWD
function "$2" xe 0x8086 0x56c0 0x038000 21 2
function "$3" nvidia 0x10de 0x20b5 0x030200 51 1
function "$4" nvidia 0x10de 0x20b5 0x030200 31 2
mkdir -p "bus/pci/devices/$3/model-function/mdev_supported_types/nvidia-471"
cd "bus/pci/devices/$3/model-function/mdev_supported_types/nvidia-471"
echo 'NVIDIA A100-10C' > name
echo 'num_heads=1, framebuffer=10240M, max_instance=1' > description
echo 1 > available_instances
echo 41 > model-first-group
cd "$top"
mkdir "bus/pci/devices/$4/model-function/nvidia"
cd "bus/pci/devices/$4/model-function/nvidia"
echo 0 > current_vgpu_type
printf 'ID    : vGPU Name\n471   : NVIDIA A100-10C\n' > creatable_vgpu_types
`
	_, err := n.Exec(l.ctx, "sh", "-c", script, "sh", n.SimgpuDir(), cardOfFunctions, mediatedGPU, typedGPU)
	l.must(err)
}

// divided is how the kernel of a node shows the parts: driver and override of the card's functions, types of the GPU's functions, and mediated
// devices, each in a line with a name.
func (l *lab) divided(n *cluster.Machine) map[string]string {
	l.t.Helper()
	const script = `cd "$1/sys/bus/pci/devices"
for f in "$2"/virtfn*; do
	at=$(basename "$(readlink "$f")")
	echo "$at $(basename "$(readlink "$at/driver")") $(cat "$at/driver_override")"
done
for f in "$3"/virtfn*; do
	at=$(basename "$(readlink "$f")")
	echo "$at $(basename "$(readlink "$at/driver")") $(cat "$at/nvidia/current_vgpu_type")"
done
for m in ../../mdev/devices/*; do
	[ ! -e "$m/mdev_type/name" ] || echo "$(basename "$m") $(basename "$(readlink "$m/mdev_type")") $(cat "$m/mdev_type/available_instances")"
done
`
	text, err := n.Exec(l.ctx, "sh", "-c", script, "sh", n.SimgpuDir(), cardOfFunctions, typedGPU)
	l.must(err)
	all := map[string]string{}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = rest
	}
	return all
}

// untouched is how the parts are while nobody has any.
var untouched = map[string]string{
	"0000:c1:00.1": " (null)", "0000:c1:00.2": " (null)", "0000:3c:00.1": "nvidia 0", "0000:3c:00.2": "nvidia 0",
}

// given are the attributes that name the device of each request, of the files of a pod's one claim: one file and one device for each
// request.
func (l *lab) given(name, told string) map[string]metadata.Device {
	l.t.Helper()
	all := map[string]metadata.Device{}
	files := json.NewDecoder(strings.NewReader(told))
	for files.More() {
		var known metadata.DeviceMetadata
		l.must(devicemetadata.DecodeMetadataFromStream(files, &known))
		if len(known.Requests) != 1 || len(known.Requests[0].Devices) != 1 {
			l.t.Fatalf("a file of pod %s has %+v", name, known.Requests)
		}
		request := known.Requests[0]
		if _, twice := all[request.Name]; twice {
			l.t.Errorf("pod %s has two files for request %s", name, request.Name)
		}
		all[request.Name] = request.Devices[0]
	}
	return all
}

// partsByClaim has a claim for a virtual function, a mediated device, and a virtual function with a type go through the scheduler, the
// kubelet and the agent, which enables the functions first. Before its command starts the pod has the nodes of these three, and a file for
// each. They stay its own when the agent is killed, and all is as before afterwards.
func partsByClaim(l *lab) {
	n := l.Nodes[1]
	l.modelParts(n)
	l.must(l.tryInstall("agent.backends.vf.gpus={"+cardOfFunctions+"}", "agent.backends.vf.functions=2",
		"agent.backends.vgpu.gpus={"+mediatedGPU+","+typedGPU+"}", "agent.backends.vgpu.type=nvidia-471", "agent.backends.vgpu.functions=all"))
	l.startLending()
	l.ready()
	l.lends(n, "vf-0000-c1-00-1", "vf-0000-c1-00-2", "vgpu-0000-c2-00-1-471-0", "vgpu-0000-3c-00-1-471", "vgpu-0000-3c-00-2-471")
	if now := l.divided(n); !maps.Equal(now, untouched) {
		l.t.Errorf("the node has %v, want %v", now, untouched)
	}
	l.must(l.ApplyText(l.ctx, fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {namespace: %[1]s, name: parts}
spec:
  spec:
    devices:
      requests:
        - {name: function, exactly: {deviceClassName: vf.divvy.dev}}
        - {name: mediated, exactly: {deviceClassName: vgpu.divvy.dev, selectors: [{cel: {expression: 'device.attributes["divvy.dev"].pciParent != "%[2]s"'}}]}}
        - {name: typed, exactly: {deviceClassName: vgpu.divvy.dev, selectors: [{cel: {expression: 'device.attributes["divvy.dev"].pciParent == "%[2]s"'}}]}}
`, l.namespace, typedGPU)))
	use := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "parts", ResourceClaimTemplateName: ptr.To("parts")}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "parts"}}
		return p
	}
	l.run(use(launcher("machine")))
	first := l.partsAreGiven(n, "machine")
	l.create(use(launcher("another"))) // there is one mediated device
	l.killAgent(n)
	l.pending("another")
	if again := l.partsAreGiven(n, "machine"); again != first {
		l.t.Errorf("the mediated device %s has become %s", first, again)
	}
	l.agree()
	l.remove("machine")
	l.running("another")
	if next := l.partsAreGiven(n, "another"); next == first {
		l.t.Errorf("the next pod has the mediated device %s too", next)
	}
	l.remove("another")
	l.eventually("the parts are as before", func() string {
		if now := l.divided(n); !maps.Equal(now, untouched) {
			return fmt.Sprint("the node has ", now)
		}
		return ""
	})
	l.agree()
	l.kubectl("rollout", "undo", "-n", system, "daemonset/divvy-agent") // Helm changes nothing that somebody else wrote
	l.install()
	l.run(on(n, whole("both", 2)))
	if got := l.nvml("both", "main"); len(got) != 2 {
		l.t.Errorf("the node gives %+v afterwards", got)
	}
}

// partsAreGiven checks what a pod of partsByClaim has, and how the kernel shows it. It returns the mediated device.
func (l *lab) partsAreGiven(n *cluster.Machine, pod string) (uuid string) {
	l.t.Helper()
	nodes, told := l.finds(pod)
	given := l.given(pod, told)
	address := func(request string) string {
		return ptr.Deref(given[request].Attributes["resource.kubernetes.io/pciBusID"].StringValue, "")
	}
	function, typed := address("function"), address("typed")
	uuid = ptr.Deref(given["mediated"].Attributes["mdevUUID"].StringValue, "")
	want := maps.Clone(untouched)
	want[function], want[typed], want[uuid] = boundDriver, "nvidia 471", "nvidia-471 0"
	if now := l.divided(n); len(given) != 3 || len(want) != len(untouched)+1 || !maps.Equal(now, want) {
		l.t.Errorf("the files of pod %s name %s, %s and %s, and the node has %v", pod, function, typed, uuid, now)
	}
	groups := []string{mediatedGroup, "2" + function[len(function)-1:], "3" + typed[len(typed)-1:], "vfio"}
	slices.Sort(groups)
	if nodes != strings.Join(groups, " ") {
		l.t.Errorf("pod %s finds %s, want %v", pod, nodes, groups)
	}
	return uuid
}
