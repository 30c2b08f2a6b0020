package topology_test

import (
	"errors"
	"os"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/topology"
)

// node is a recorded host as the allocator sees it, all of it free.
func node(t *testing.T, name string) alloc.Node {
	t.Helper()
	file, err := os.Open("../../testdata/hosts/" + name + ".host")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	recorded, err := hostfile.Parse(file, name)
	if err != nil {
		t.Fatal(err)
	}
	host, err := recorded.Topology()
	if err != nil {
		t.Fatal(err)
	}
	n := alloc.Node{Name: name}
	for _, gpu := range host.GPUs {
		n.GPUs = append(n.GPUs, alloc.GPU{UUID: gpu.UUID, Index: gpu.Index, Model: gpu.Name, Capacity: 80 << 30})
	}
	if err := host.Place(&n); err != nil {
		t.Fatal(err)
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
	assignment, err := alloc.Search(inventory, alloc.Request{Count: 4, Memory: v1alpha1.Bytes(8 << 30), NIC: true})
	if err != nil {
		t.Fatal(err)
	}
	given := map[int]bool{}
	for _, grant := range assignment.Grants {
		if grant.NIC < 0 || given[grant.NIC] || nics[grant.NIC].Near[grant.GPU] < alloc.RelationSwitches {
			t.Errorf("GPU %d got adapter %d (%v)", grant.GPU, grant.NIC, grant)
		}
		given[grant.NIC] = true
	}
}

func TestPlaceKnowsGPUsByUUID(t *testing.T) {
	host := &topology.Host{}
	if err := host.Place(&alloc.Node{GPUs: []alloc.GPU{{UUID: "GPU-elsewhere"}}}); !errors.Is(err, topology.ErrUnplaced) {
		t.Errorf("a GPU that the host does not have: %v", err)
	}
}
