package pool

import (
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// swapping are GPUs of a node that swaps, with a budget in GiB.
func swapping(n int, memory uint64, budget uint64, turn v1alpha1.Memory) []GPU {
	gpus := gpusOf(n, memory)
	for i := range gpus {
		gpus[i].Capability = "6.0"
	}
	Divide(gpus, budget<<30, turn)
	return gpus
}

// Where no share swaps, all of a GPU is for ordinary shares, no claim can have memory of the host, and suspended shares can.
func TestNoTurns(t *testing.T) {
	gpus := swapping(1, 16<<30, 0, v1alpha1.Memory{})
	gpus[0].Suspends = true
	Divide(gpus, 64<<30, v1alpha1.Memory{})
	resources, err := Resources(node, gpus)
	if err != nil {
		t.Fatal(err)
	}
	for _, slice := range stored(t, resources) {
		checkSlice(t, slice)
		capacity := slice.Spec.Devices[0].Capacity
		memory, swap := capacity[v1alpha1.CapacityMemory], capacity[v1alpha1.CapacitySwapMemory]
		if memory.Value.Value() != 16<<30 || swap.Value.Value() != 64<<30 || !swap.RequestPolicy.ValidRange.Max.IsZero() {
			t.Errorf("memory %+v, memory of the host %+v", memory, swap)
		}
	}
}

// The golden is what the scheduler reads of a node with 64 GiB for the swap shares of two of its three GPUs.
func TestSwapMemory(t *testing.T) {
	gpus := swapping(3, 16<<30, 0, v1alpha1.Memory{})
	gpus[1].Capability, gpus[2].Suspends = "5.2", true
	Divide(gpus, 64<<30, v1alpha1.Percent(50))
	resources, err := Resources(node, gpus)
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(resources.Pools)
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "swap.yaml", got)
	for _, slice := range stored(t, resources) {
		checkSlice(t, slice)
	}
}

// The budget of a node is for every GPU that swaps, in whatever form it is now, and never promised twice.
func TestDivide(t *testing.T) {
	all := swapping(4, 16<<30, 0, v1alpha1.Memory{})
	all[0].Form, all[1].Form, all[2].Memory, all[3].Unswappable, all[3].Suspends = MPS, MIG, 4<<30, true, true
	for name, c := range map[string]struct {
		budget uint64
		turn   v1alpha1.Memory
		want   [4]uint64 // of each GPU, in MiB
	}{
		"nothing":                     {0, v1alpha1.Percent(50), [4]uint64{}},
		"less than a share each":      {5 << 20, v1alpha1.Percent(50), [4]uint64{}},
		"a part of each":              {32 << 30, v1alpha1.Percent(50), [4]uint64{8 << 10, 8 << 10, 8 << 10, 8 << 10}},
		"a turn larger than some GPU": {30 << 30, v1alpha1.Bytes(8 << 30), [4]uint64{10 << 10, 10 << 10, 0, 10 << 10}},
		"a turn of all":               {30 << 30, v1alpha1.Percent(100), [4]uint64{3: 30 << 10}},
		"no turns":                    {30 << 30, v1alpha1.Memory{}, [4]uint64{3: 30 << 10}},
	} {
		gpus := slices.Clone(all)
		Divide(gpus, c.budget, c.turn)
		sum := uint64(0)
		for i := range gpus {
			if sum += gpus[i].SwapMemory; gpus[i].SwapMemory>>20 != c.want[i] || (gpus[i].turn() > 0) != (c.want[i] > 0 && gpus[i].form() == Shared && i != 3) {
				t.Errorf("%s: GPU %d has %d MiB in turns of %d, want %d MiB", name, i, gpus[i].SwapMemory>>20, gpus[i].turn(), c.want[i])
			}
		}
		if gpus[3].Suspends != (c.budget > 0) {
			t.Errorf("%s: shares are suspended: %v", name, gpus[3].Suspends)
		}
		if sum > c.budget {
			t.Errorf("%s: %d bytes are promised of %d", name, sum, c.budget)
		}
	}
}

func TestSwapsThatCannotBePublished(t *testing.T) {
	for _, spoil := range []func(*GPU){
		func(g *GPU) { g.SwapMemory = 0 },
		func(g *GPU) { g.Turn = 0 },
		func(g *GPU) { g.Turn = g.Memory },
	} {
		gpus := swapping(1, 16<<30, 16, v1alpha1.Percent(50))
		spoil(&gpus[0])
		if _, err := Resources(node, gpus); !errors.Is(err, ErrGPU) {
			t.Errorf("%+v: %v", gpus[0], err)
		}
	}
}

// Kubernetes' own scheduler gives swap shares what they keep of the GPU and their limits of the host, and ordinary shares what the
// largest turn leaves.
func TestSwapShares(t *testing.T) {
	s := newScheduler(t, swapping(1, 16<<30, 24, v1alpha1.Bytes(10<<30)))
	s.fits("ordinary", true, share("memory", "3Gi"))
	s.fits("more than a turn", false, share("memory", "1Gi", "swapMemory", "10241Mi"))
	s.fits("a", true, share("memory", "1Gi", "swapMemory", "10Gi"))
	s.fits("b", true, share("memory", "1Gi", "swapMemory", "10Gi"))
	s.fits("nothing on the host", false, share("memory", "512Mi", "swapMemory", "5Gi"))
	s.fits("c", true, share("memory", "512Mi", "swapMemory", "4Gi"))
	s.fits("nothing on the GPU", false, share("memory", "1Gi"))
	s.fits("whole", false, asks(v1alpha1.ClassWhole, 1))
	for _, name := range []string{"ordinary", "a", "b", "c"} {
		s.release(name)
	}
	s.fits("whole", true, asks(v1alpha1.ClassWhole, 1))
	s.fits("beside it", false, share("memory", "1Mi", "swapMemory", "1Gi"))
	if swap := s.held["whole"].Devices.Results[0].ConsumedCapacity[v1alpha1.CapacitySwapMemory]; !swap.IsZero() {
		t.Errorf("a whole GPU takes %s of the host", swap.String())
	}
}

// Whatever comes and goes, what is kept, granted and turned fits the GPUs, and limits of swap shares fit the node's budget.
func TestSwapIsGivenOnce(t *testing.T) {
	const turn, budget, memory = 6 << 30, 40, 16 << 30
	random := rand.New(rand.NewSource(21))
	s := newScheduler(t, swapping(2, memory, budget, v1alpha1.Bytes(turn)))
	full := 0
	for i := range 400 {
		name := fmt.Sprint(i)
		amounts := []string{"memory", fmt.Sprint(1+random.Intn(3000), "Mi")}
		if random.Intn(2) == 0 {
			amounts = append(amounts, "swapMemory", fmt.Sprint(3001+random.Intn(3500), "Mi"))
		}
		if random.Intn(3) == 0 && len(s.held) > 0 {
			for held := range s.held {
				s.release(held)
				break
			}
		} else if s.take(name, share(amounts...)) == nil {
			full++
		}
		granted, largest, all := map[string]int64{}, map[string]int64{}, int64(0)
		for _, held := range s.held {
			for _, r := range held.Devices.Results {
				m, sw := r.ConsumedCapacity[v1alpha1.CapacityMemory], r.ConsumedCapacity[v1alpha1.CapacitySwapMemory]
				granted[r.Device] += m.Value()
				all += sw.Value()
				if sw.Value() > 0 {
					largest[r.Device] = max(largest[r.Device], sw.Value()-m.Value())
				}
			}
		}
		for device := range granted {
			if granted[device]+largest[device] > memory {
				t.Fatalf("step %d: %d bytes are granted of %s, and the largest turn is %d", i, granted[device], device, largest[device])
			}
		}
		if all > budget<<30 {
			t.Fatalf("step %d: swap shares have %d bytes", i, all)
		}
	}
	if full == 0 || full > 300 {
		t.Errorf("%d of 400 did not fit: the test says nothing", full)
	}
}
