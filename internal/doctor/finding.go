package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// ID names what a check looks at. It stays when names and words change.
type ID string

// Finding is what the manual says of a check.
type Finding struct {
	ID ID
	// Means says what is so when the check is not ok, or what is told when it always is.
	Means string
	// Do says what helps.
	Do string
}

// Findings are what checks can find, in the order of the manual.
var Findings = slices.Concat(ofDivvy, ofDriver, ofVariables, ofAgents, ofGPUs, ofShares, ofContainers, ofMachine, ofHosts, ofNICs, inShares, ofClusters)

var ofDivvy = []Finding{
	{"installation", "files of Divvy are missing", "install it again, or set `DIVVY_PREFIX` to where it is"},
	{"version.agent", "the agent is of another version than this program", "start the agent again: shares go on meanwhile"},
	{"rundir.own", "the run directory of your own agent is not safe or not writable", "what the line says: remove it, or `chmod go-w`"},
	{"rundir.system", "the run directory of the system agent is closed, not root's or not a directory", "as root: what the line says"},
	{"namespaces", "mount namespaces are not allowed, so the limit holds only for programs that keep `LD_LIBRARY_PATH`", "as root: the `sysctl` that the line names; in a container, its seccomp profile"},
	{"shared-memory", "`/dev/shm` is missing, full or nearly full", "mount it, or remove what the line names"},
}

var ofDriver = []Finding{
	{"driver.libraries", "the driver is missing, damaged, mixed, or of another release than the kernel module", "install it anew, or restart the machine after an update; without a GPU use one of [another host](remote-hosts.md), or `--simgpu`"},
	{"driver.others", "other libraries with the driver's names are there, which shares do not use", "remove those that are damaged"},
	{"driver.functions", "the driver is newer than this Divvy", "nothing; a newer Divvy counts the memory that those functions take"},
	{"driver.module", "the kernel module is not loaded", "`modprobe nvidia`"},
	{"driver.devices", "device nodes are missing or closed to this user", "`nvidia-modprobe -u -c 0`; the group of the nodes; for a container its GPUs"},
	{"driver.beside", "programs can take GPU memory without CUDA, which is counted and not refused", "nothing; the agent watches"},
	{"driver.answers", "the driver does not answer, or knows no GPU", "`nvidia-smi`, then the kernel's log: `dmesg`"},
	{"driver.compat", "forward-compatibility libraries stand in programs' way", "take their folder out of `LD_LIBRARY_PATH` or of `/etc/ld.so.conf.d`, then `ldconfig`"},
}

var ofVariables = []Finding{
	{"variables.visible", "`CUDA_VISIBLE_DEVICES` names no GPU, or one that is not there, so that `divvy run` refuses", "correct it, or `unset CUDA_VISIBLE_DEVICES`"},
	{"variables.order", "`CUDA_DEVICE_ORDER` is misspelt, or CUDA counts GPUs otherwise than `nvidia-smi`", "`export CUDA_DEVICE_ORDER=PCI_BUS_ID`, or name GPUs by UUID"},
	{"variables.preload", "`LD_PRELOAD` or `LD_LIBRARY_PATH` bring a copy of the driver's libraries, with which programs get past the limit or do not start", "take it out of the variable"},
}

var ofAgents = []Finding{
	{"agent", "the agent that is to serve is away, does not answer or is not the one that should", "as the line says, mostly to start it: `systemctl start divvy-agent`"},
	{"agent.history", "the agent cannot write what `divvy history` shows", "as the line says, mostly to make room; then it goes on by itself"},
	{"agent.metrics", "another program has the address of the agent's metrics and web page", "end that program, or give the agent another address: `metrics` in agent.yaml"},
	{"agent.configuration", "`agent.yaml` is faulty, or the agent has not read it", "correct it; start the agent again"},
	{"agent.rights", "tells what you may have", "ask an administrator for more"},
	{"agent.room", "no share, however small, could start now", "`divvy run --wait`, or what the line says"},
	{"simulated", "simulated machines cannot be listed", "as the line says"},
	{"left.directories", "directories of shares that have ended are left", "start the agent, which takes them away: `divvy run` starts your own"},
	{"left.processes", "processes run in shares that have ended: nobody counts what they do", "end them, if they do not end by themselves: `kill` with the numbers that the line has"},
	{"left.socket", "the socket of an agent is left that has ended", "nothing; the next agent replaces it"},
	{"left.mounts", "a library of a share lies over the driver's outside the share", "as root: `umount` as the line says"},
}

var ofGPUs = []Finding{
	{"gpu.left-out", "the driver does not answer about a GPU since the agent started", "`dmesg`; `nvidia-smi --gpu-reset`"},
	{"gpu.silent", "a GPU takes no new shares", "another GPU; `dmesg`"},
	{"gpu.overgranted", "a GPU's shares add up to more than it has", "`divvy set` or `divvy stop` one"},
	{"gpu.excess", "memory of a GPU is in use that no share was granted", "`divvy ls` shows by whom"},
	{"gpu.unwatched", "the driver does not tell how busy processes keep a GPU", "nothing: shares are trusted with their time"},
	{"gpu.held", "another agent holds a GPU", "as the line says: wait, or have one agent for all"},
	{"form.changed", "somebody changed a mode of a GPU that Divvy had set", "`divvy gpu set`"},
	{"form.compute-mode", "a compute mode keeps processes off a GPU", "`nvidia-smi -c DEFAULT`"},
	{"form.timeslice", "the length of time slices cannot be set", "install `nvidia-smi`"},
	{"modes.left", "an agent that is gone left modes of GPUs changed", "start the agent"},
	{"vm.left", "no agent answers that puts back devices which one gave to virtual machines", "start the agent, then `divvy vm release`; without Divvy the commands below the line"},
	{"vm.book", "the file of the devices that virtual machines have is gone or cannot be read, so Divvy touches none of them", "the version that wrote it, or the commands below the line and what it says"},
	{"vm.ledger", "the file of claims was removed, or an agent set it aside that could not read it", "release and claim again what has no user, as the line says"},
	{"mps.daemon", "no control daemon of MPS serves a GPU of form mps", "wait ten seconds, then look at the agent's log"},
	{"mps.foreign", "a control daemon of MPS runs that is not Divvy's", "`echo quit | nvidia-cuda-mps-control` as its user, with the pipe directory that the line names"},
	{"mps.left", "a control daemon of MPS is left of an agent that is gone", "start the agent"},
	{"mig.capabilities", "the files by which programs get MIG instances are missing", "`nvidia-modprobe -f`"},
	{"mig.impossible", "agent.yaml gives form mig to a GPU without MIG", "correct agent.yaml"},
	{"mig.unknown", "the driver does not tell how MIG divides a GPU", "`nvidia-smi mig -lgi`"},
	{"mig.pending", "a GPU's MIG mode changes with its next reset", "`divvy gpu set --mig`, or reset it"},
	{"mig.off", "a GPU of form mig is not in MIG mode", "`divvy gpu set --mig on`"},
	{"mig.timeslice", "time slices are set that have no effect in MIG mode", "`nvidia-smi compute-policy --set-timeslice=0`"},
	{"mig.empty", "a GPU is in MIG mode, without instances, and nobody can make any", "`divvy gpu apply`, or the mode off"},
	{"mig.half", "a MIG instance is half made", "as the line says"},
	{"mig.foreign", "tells of MIG instances that another tool made", "nothing: Divvy leaves them"},
}

var ofShares = []Finding{
	{"share.cooperative", "a share was taken over from its user's own agent", "start its command again"},
	{"share.unreadable", "a share's page cannot be read", "`divvy stop`"},
	{"share.excess", "a share holds more than it was granted", "look at its program; `outside: stop` in agent.yaml"},
	{"share.past", "a share is past its limit by overhead", "`divvy set --memory`"},
	{"share.libraries", "a process of a share does not use Divvy's library, or one of another Divvy", "start its command again"},
}

var ofContainers = []Finding{
	{"containers.runtimes", "a container runtime is too old for the devices of shares, or they are switched off there", "upgrade it; Docker: `\"features\": {\"cdi\": true}`, or `divvy share show NAME -o docker`"},
	{"containers.devices", "CDI files lead to shares that are gone", "`rm` the files that the line names, or start the agent"},
	{"containers.driver", "a CDI file of the driver's names files that are gone, as after an update", "`nvidia-ctk cdi generate`"},
}

var ofMachine = []Finding{
	{"cgroups", "no cgroups are mounted, so processes of containers are known by their mounts alone", "mount them"},
	{"swap", "whether programs can have more memory than their GPU, by swap", "as the line says; [oversubscription.md](oversubscription.md)"},
	{"swap.eviction", "heterogeneous memory management is on, with which a driver was seen to evict for ever", "the commands below the line"},
	{"swap.memory", "tells how much host memory there is for what leaves GPUs; or an agent may use more of it than there is", "lower `swapMemory`"},
	{"suspend", "tells whether shares can be suspended", "nothing; a newer driver"},
	{"clock", "the clock is not set or was set back, so limits of time end shares at the wrong moment", "set it: `timedatectl set-ntp true`"},
}

var ofHosts = []Finding{
	{"remote.bundle", "a bundle for another host cannot be read, is out of its time or will be within 14 days, or its host does not serve", "as the line says, mostly `divvy serve admit NAME` there again"},
	{"remote.doubles", "bundles of several hosts have one name", "remove those whose host is not meant"},
	{"serve.file", "serve.yaml is faulty or not safe from others, so that `divvy serve` does not start with it", "correct it"},
	{"serve.root", "serve.yaml gives a client the user root", "`divvy serve admit NAME --user USER`"},
	{"serve.address", "`divvy serve` cannot listen where serve.yaml says, or does not", "`listen` in serve.yaml, or as the line says"},
	{"serve.certificates", "the server's certificates are missing, mixed, or out of their time", "`divvy serve init --renew`, or as the line says"},
	{"serve.unit", "service divvy-serve is to start and has no serve.yaml", "`divvy serve init`"},
}

var ofNICs = []Finding{
	{"nic.unfit", "an RDMA adapter has no port, no device node, or a name that cannot be written in the kernel's limits", "as the line says"},
	{"nic.namespaces", "an RDMA adapter is seen in one network namespace alone, so no container sees a shared one", "`rdma system set netns shared`"},
	{"nic.memory-lock", "programs may lock less memory than they register with a card", "`ulimit -l unlimited`; LimitMEMLOCK of the container runtime"},
	{"nic.limits", "the kernel cannot limit what a container takes of a shared card", "a kernel with CONFIG_CGROUP_RDMA"},
	{"nic.limits-left", "containers had limits on an RDMA adapter, and the kernel may stop when that is taken away", "restart the host instead of loading the card's driver anew or unbinding it"},
	{"nic.addresses", "a port of a card has no address by which others reach it", "`ip address add ADDRESS dev NAME`"},
	{"nic.driver", "a card's driver lives only in a container: when that ends, the cards go, and perhaps the host's network", "install the driver on the host"},
	{"nic.infiniband", "tells that a card is on InfiniBand, where macvlan does not work", "ipoib-cni for shared cards, ib-sriov-cni for virtual functions"},
	{"nic.guid", "virtual functions on InfiniBand have no GUID", "`ip link set CARD vf NUMBER node_guid GUID`, or ib-sriov-cni"},
	{"nic.direct", "whether a card reaches GPU memory by itself", "`modprobe nvidia_peermem`, or NVIDIA's open kernel modules"},
}

var inShares = []Finding{
	{"inside.share", "the share's pages are missing or of another version", "start the command again with `divvy run`"},
	{"inside.library", "a program that starts here gets another library than Divvy's", "unset what leads to it; start the command again"},
	{"inside.gpus", "CUDA shows a program no GPU, or fewer than the share has", "correct `CUDA_VISIBLE_DEVICES`: here it counts the share's GPUs from 0"},
	{"inside.memory", "the container may not have as much host memory as can leave the GPU", "give it more, or the share less"},
	{"inside.agent", "the agent does not know the share, or cannot be asked from here", "outside: `divvy ls`"},
}

var ofClusters = []Finding{
	{"cluster.server", "the API server does not answer, or is newer than what Divvy was run with", "`--kubeconfig`; a newer Divvy"},
	{"cluster.webhook", "the webhook does not answer, so pods that ask for GPUs are refused", "`kubectl describe deployment divvy-webhook`"},
	{"cluster.certificate", "the API server does not trust the webhook", "`kubectl logs deployment/divvy-webhook`"},
	{"cluster.callers", "anybody may ask the webhook", "`webhook.clients`, `networkPolicy.callers`"},
	{"cluster.controller", "the controller does not answer", "`kubectl describe deployment divvy-controller`"},
	{"cluster.scheduler", "the scheduler does not answer or is missing, or in mode slots the extender does not", "`kubectl describe deployment divvy-scheduler`"},
	{"cluster.kube-scheduler", "in mode slots, the scheduler beside the extender is not of the API server's minor version or the one before, as after an upgrade of the cluster", "`helm upgrade`, without `slots.kubeScheduler.version`"},
	{"cluster.leader", "no scheduler leads, or in mode slots the one that does hangs", "`kubectl logs deployment/divvy-scheduler`"},
	{"cluster.extender", "in mode slots, no extender chooses GPUs, or the one that does hangs, so pods with shares wait", "`kubectl logs deployment/divvy-scheduler -c extender`"},
	{"cluster.fenced", "in mode slots, a GPU took no more shares within the last hour, because pods and the node's agent say different things of it", "the pod that the line names, or the node's agent: [runbooks.md](runbooks.md#divvyschedulerdiffers)"},
	{"cluster.allocators", "several writers give GPUs to claims", "`allocators: []`"},
	{"cluster.versions", "Divvy's pods are of several versions, or of another than this program", "`kubectl rollout status`; `helm upgrade`"},
	{"cluster.runtimes", "in mode slots, the container runtime of nodes does not ask the agent, so they offer no shares", "switch NRI on"},
	{"cluster.agents", "nodes are without an agent", "`kubectl get pods -o wide`"},
}

// Table is the manual's table of findings.
func Table() string {
	var w strings.Builder
	w.WriteString("| id | what it means | what to do |\n|---|---|---|\n")
	for _, f := range Findings {
		fmt.Fprintf(&w, "| `%s` | %s | %s |\n", f.ID, f.Means, f.Do)
	}
	return w.String()
}
