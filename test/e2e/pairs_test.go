package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// pairs has a node with a GPU, a card and nothing else below each of eight switches give all of them to one pod, and then one pair to
// each of eight. The machine's own description says what is where.
func pairs(l *lab, n *cluster.Machine, agree func()) {
	machine, err := simgpu.Load(n.Machine)
	l.must(err)
	count := len(machine.GPUs)
	l.run(on(n, ofPairs("all", count)))
	l.inPairs(n, machine, "all", count)
	l.inCUDAsOrder(n, "all", count)
	if told := l.event("all", "CardsAttached"); !strings.Contains(told, "mlx5_0: uverbs0, shared, no limit of handles and objects") {
		l.t.Errorf("the event does not say what the pod has, and that this kernel limits nothing: %s", told)
	}
	agree()
	l.create(on(n, ofPairs("one-more", 1)))
	l.waitsFor("one-more", "")
	l.pending("one-more")
	l.remove("one-more", "all")

	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprint("one-", i)
		l.create(on(n, ofPairs(names[i], 1)))
	}
	had := map[string]string{}
	for _, name := range names {
		l.running(name)
		place := l.inPairs(n, machine, name, 1)[0]
		if other, taken := had[place]; taken {
			l.t.Errorf("pods %s and %s have pairs of the switch %s", name, other, place)
		}
		had[place] = name
	}
	if len(had) != count {
		l.t.Errorf("%d pods have pairs of %d switches", count, len(had))
	}
	agree()
	l.remove(names...)

	l.example("pairs")
	l.running("pairs")
	l.inPairs(n, machine, "pairs", 2)
	agree()
}

// ofPairs makes a pod of pairs that holds another amount of memory of each GPU: so many times the number of CUDA's device, from 1.
func ofPairs(name string, count int) *corev1.Pod {
	p := plain(name, "", "")
	c := &p.Spec.Containers[0]
	c.Resources.Limits[v1alpha1.ResourcePairs] = *resource.NewQuantity(int64(count), resource.DecimalSI)
	var script strings.Builder
	for i := range count {
		fmt.Fprintf(&script, "sleep infinity | gpubench hold --device=%d --bytes=%dMi & ", i, holds*(i+1))
	}
	c.Command = []string{"sh", "-c", script.String() + "wait"}
	return p
}

// holds is how many MiB pods of pairs hold of their first GPU.
const holds = 64

// inPairs checks that a container's GPUs and cards are pairs in their order: by the machine's description of what the container
// sees, and by what was published of the devices that its claim has. It returns the pairs' switches.
func (l *lab) inPairs(n *cluster.Machine, machine *simgpu.Machine, name string, count int) (switches []string) {
	l.t.Helper()
	report, err := n.Oracle(l.ctx)
	l.must(err)
	shown, cards, nodes := l.nvml(name, "main"), l.cards(name), []string{"rdma_cm"}
	if len(shown) != count || len(cards) != count {
		l.t.Fatalf("pod %s sees the GPUs %+v and the cards %v, want %d pairs", name, shown, cards, count)
	}
	published := l.switches(n, name, count)
	for i := range count {
		gpu := slices.IndexFunc(report.GPUs, func(g simgpu.GPUReport) bool { return g.UUID == shown[i].UUID })
		card := slices.IndexFunc(machine.NICs, func(c simgpu.NIC) bool { return c.Name == cards[i] })
		if gpu < 0 || card < 0 || machine.GPUs[gpu].Switch != machine.NICs[card].Switch {
			l.t.Fatalf("pair %d of pod %s is GPU %d (%s) and card %d (%s)", i, name, gpu, shown[i].UUID, card, cards[i])
		}
		nodes = append(nodes, fmt.Sprint("uverbs", card))
		switches = append(switches, machine.GPUs[gpu].Switch)
	}
	if !slices.Equal(published, switches) {
		l.t.Errorf("pod %s was allocated pairs of the switches %v, and has some of %v", name, published, switches)
	}
	slices.Sort(nodes)
	// Simulated adapters have the number of /dev/null.
	for i, node := range nodes {
		nodes[i] = node + " 1:3"
	}
	got := strings.Split(strings.TrimSpace(l.exec(name, "main", "sh", "-c", "cd /dev/infiniband && stat -c '%n %t:%T' * | sort")), "\n")
	if !slices.Equal(got, nodes) {
		l.t.Errorf("pod %s has the nodes %v, want %v", name, got, nodes)
	}
	return switches
}

// cards are the adapters that NCCL is told of in a container, in their order.
func (l *lab) cards(name string) []string {
	l.t.Helper()
	text := strings.TrimSpace(l.exec(name, "main", "sh", "-c", "echo $NCCL_IB_HCA"))
	names, whole := strings.CutPrefix(text, "=")
	if !whole {
		l.t.Fatalf("pod %s has NCCL_IB_HCA %q, whose names are not taken whole", name, text)
	}
	return strings.Split(names, ",")
}

// switches are those that the slices tell of the pairs that a pod's claim was allocated.
func (l *lab) switches(n *cluster.Machine, name string, count int) []string {
	l.t.Helper()
	list, err := l.Client().ResourceV1().ResourceSlices().List(l.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
	l.must(err)
	of := map[string]string{}
	for i := range list.Items {
		for _, d := range list.Items[i].Spec.Devices {
			of[d.Name] = ptr.Deref(d.Attributes[resourcev1.QualifiedName(v1alpha1.AttributeSwitch)].StringValue, "")
		}
	}
	claim := l.claimOf(name)
	both := map[string]string{} // by request
	for _, r := range claim.Status.Allocation.Devices.Results {
		request, _, _ := strings.Cut(r.Request, "/")
		both[request] = of[r.Device]
	}
	var switches []string
	for i := range count {
		gpu, card := both["gpu-"+strconv.Itoa(i)], both["nic-"+strconv.Itoa(i)]
		if gpu == "" || gpu != card {
			l.t.Fatalf("pod %s was allocated %v, of switches %v", name, claim.Status.Allocation.Devices.Results, both)
		}
		switches = append(switches, gpu)
	}
	if len(both) != 2*count {
		l.t.Errorf("pod %s was allocated %v, want %d pairs", name, slices.Sorted(maps.Keys(both)), count)
	}
	return switches
}

// inCUDAsOrder checks by the simulated driver's own tables that CUDA numbers a pod's GPUs as NVML does there.
func (l *lab) inCUDAsOrder(n *cluster.Machine, name string, count int) {
	l.t.Helper()
	shown := l.nvml(name, "main")
	l.eventually("CUDA's devices are NVML's", func() string {
		report, err := n.Oracle(l.ctx)
		if err != nil {
			return err.Error()
		}
		used := map[string]uint64{} // what one process holds, by GPU
		for _, p := range report.Processes {
			for _, g := range p.GPUs {
				if g.Used > 0 {
					used[report.GPUs[g.Index].UUID] = g.Used
				}
			}
		}
		for i := range count {
			// A context takes the same of each GPU.
			if got, want := used[shown[i].UUID]-used[shown[0].UUID], uint64(holds*i*mib); used[shown[0].UUID] == 0 || got != want {
				return fmt.Sprintf("GPU %d of pod %s has %v in use: %d more than GPU 0, want %d", i, name, used, got, want)
			}
		}
		return ""
	})
}
