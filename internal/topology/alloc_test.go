package topology_test

import (
	"os"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/topology"
)

// relations are the allocator's words for the host model's.
var relations = map[topology.Kind]alloc.Relation{
	topology.NVLink: alloc.RelationNVLink,
	topology.PIX:    alloc.RelationSwitch,
	topology.PXB:    alloc.RelationSwitches,
	topology.PHB:    alloc.RelationHost,
	topology.NODE:   alloc.RelationNUMA,
	topology.SYS:    alloc.RelationSystem,
	topology.Self:   alloc.RelationNVLink,
}

// recorded is a machine of testdata/hosts.
func recorded(t *testing.T, name string) *topology.Host {
	t.Helper()
	file, err := os.Open("../../testdata/hosts/" + name + ".host")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	kept, err := hostfile.Parse(file, name)
	if err != nil {
		t.Fatal(err)
	}
	host, err := kept.Topology()
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// node is a recorded host as the allocator sees it, all of it free.
func node(t *testing.T, name string) alloc.Node {
	t.Helper()
	host := recorded(t, name)
	n := alloc.Node{Name: name, Near: make([][]alloc.Relation, len(host.GPUs)), NICs: make([]alloc.NIC, len(host.NICs))}
	for i, gpu := range host.GPUs {
		n.GPUs = append(n.GPUs, alloc.GPU{UUID: gpu.UUID, Index: gpu.Index, Model: gpu.Name, Capacity: 80 << 30})
		for _, other := range host.GPUs {
			n.Near[i] = append(n.Near[i], relations[host.BetweenGPUs(gpu, other).Kind])
		}
	}
	for i, nic := range host.NICs {
		n.NICs[i].Name = nic.Name
		for _, gpu := range host.GPUs {
			n.NICs[i].Near = append(n.NICs[i].Near, relations[host.Between(gpu.Device, nic.Device).Kind])
		}
	}
	return n
}

// Each of four pairs of GPU and adapter must share a PCIe switch, on a host whose switches have two levels.
func TestPairsOfGPUAndAdapterOnARecordedHost(t *testing.T) {
	placed := node(t, "a800x8")
	nics := placed.NICs
	policy, err := alloc.PolicyNamed("bestfit")
	if err != nil {
		t.Fatal(err)
	}
	inventory, err := alloc.NewInventory([]alloc.Node{placed}, policy)
	if err != nil {
		t.Fatal(err)
	}
	assignment, err := alloc.Search(inventory, alloc.Request{Count: 4, Memory: v1alpha1.Bytes(8 << 30), Pair: alloc.RelationSwitches})
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	for _, share := range assignment.Shares {
		at := slices.IndexFunc(nics, func(n alloc.NIC) bool { return n.Name == share.NIC })
		if at < 0 || given[share.NIC] || nics[at].Near[share.GPU] < alloc.RelationSwitches {
			t.Errorf("GPU %d got adapter %q (%v)", share.GPU, share.NIC, share)
		}
		given[share.NIC] = true
	}
}
