package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// What one node says, of GPUs and pods that are another's too, changes nothing of what fits on others, and of what is counted there.
func TestNeighbour(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 22))
		amount := func() uint64 { return []uint64{1, gib, 40 * gib, 1 << 62, 1<<64 - 1}[random.IntN(5)] }
		one, two := newLedger(t, alloc.DefaultPolicy), newLedger(t, alloc.DefaultPolicy)
		for _, l := range []*Ledger{one, two} {
			for _, name := range []string{"n0", "n1"} {
				l.SetNode(name, nodeOf(t, name, gpus(name, 2, 40*gib), nil))
			}
		}
		for i := range 12 {
			forged := gpus([]string{"n0", "n2"}[random.IntN(2)], random.IntN(5), amount())
			held := &v1alpha1.NodeHeld{}
			for k := range forged {
				forged[k].ContextBytes, forged[k].Model, forged[k].NUMANode = amount(), fmt.Sprint("model ", random.IntN(9)), random.IntN(4)-1
				uid := fmt.Sprint("uid", random.IntN(12))
				if s := (v1alpha1.ShareHeld{Pod: uid, Name: "main", GPUs: []v1alpha1.GPUAssigned{{UUID: gpuOf("n0", random.IntN(2)), Memory: 1 + amount()/2, Cores: 100}}}); !slices.ContainsFunc(held.Shares, func(h v1alpha1.ShareHeld) bool { return h.Pod == uid }) {
					held.Shares = append(held.Shares, s)
				}
			}
			two.SetNode("n2", nodeOf(t, "n2", forged, held))
			p := podOf(t, fmt.Sprint("uid", i), ask("main", 1+random.IntN(2), uint64(1+random.IntN(20))*gib, random.IntN(30)))
			if random.IntN(3) == 0 {
				p = podOf(t, fmt.Sprint("uid", i), whole("main", 1))
			}
			names := []string{"n0", "n1"}
			a, err := one.Filter(p, names)
			b, wrong := two.Filter(p, names)
			if err != nil || wrong != nil || !slices.Equal(a, b) {
				t.Fatalf("seed %d: %+v, %v, and beside the neighbour %+v, %v", seed, a, err, b, wrong)
			}
			name := names[random.IntN(2)]
			given, err := one.Reserve(p, name)
			if err != nil {
				continue
			}
			bound := p.DeepCopy()
			bound.Spec.NodeName = name
			bound.Annotations[v1alpha1.AssignmentAnnotation] = text(t, given.Text)
			for _, l := range []*Ledger{one, two} {
				l.SetPod(p.UID, bound)
				l.Advance(l.now.Add(2 * grace))
			}
			for _, name := range names {
				at, _ := one.Inventory().Position(name)
				in, _ := two.Inventory().Position(name)
				for k, g := range one.Inventory().Node(at).GPUs {
					if h := two.Inventory().Node(in).GPUs[k]; standing(&g) != standing(&h) {
						t.Fatalf("seed %d: node %s: %s, and beside the neighbour %s", seed, name, standing(&g), standing(&h))
					}
				}
			}
			check(t, two)
		}
	}
}
