package reclaim

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// large is a cluster of nodes with eight GPUs, all held by borrowers of queue b: of GPUs so many each. Queue a asks for a
// gang of pods with so many GPUs.
func large(t testing.TB, nodes, each, members, gpus int, borrower func(i int, c *Candidate)) *scene {
	t.Helper()
	var all []alloc.Node
	for i := range nodes {
		n := alloc.Node{Name: fmt.Sprintf("n%04d", i), CPU: 64_000, Memory: 512 * gib}
		for j := range 8 {
			n.GPUs = append(n.GPUs, alloc.GPU{UUID: fmt.Sprintf("%d/%d", i, j), Index: j, Model: "H100", Capacity: 80 * gib})
		}
		all = append(all, n)
	}
	policy, err := alloc.PolicyNamed("bestfit")
	if err != nil {
		t.Fatal(err)
	}
	inv, err := alloc.NewInventory(all, policy)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{inv: inv, book: queue.NewBook(), options: Options{Now: now}}
	half := int64(nodes) * 4000
	share := func(g int64) v1alpha1.QueueSpec {
		return v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.AmountOf(g, v1alpha1.UnitGPUs)}}}
	}
	s.book.SetQueues([]queue.Spec{{Name: "a", QueueSpec: share(half)}, {Name: "b", QueueSpec: share(half)}})
	s.book.SetCapacity([]queue.Charge{{Models: []string{"H100"}, GPUs: 2 * half}})
	tree := s.book.Tree()
	pod := podOf(each, 4)
	b, _ := tree.Find("b")
	choices, err := inv.PodChoices(&pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes * (8 / each) {
		a, ok := choices.Next()
		if !ok {
			t.Fatal("full too early")
		}
		if err := inv.Reserve(a); err != nil {
			t.Fatal(err)
		}
		choices.Again(a.Node)
		held := chargeOf(each, 4)
		c := Candidate{ID: fmt.Sprintf("w%05d", i), Queue: b, Quota: v1alpha1.QuotaBorrowing, Start: now.Add(-time.Hour), Minimum: 1, Members: []Member{{Key: fmt.Sprint("w", i), Assignments: []alloc.Assignment{a}, Charge: tree.Vector(held)}}}
		if borrower != nil {
			borrower(i, &c)
		}
		s.book.Arrive(queue.Workload{ID: c.ID, Queue: "b", Quota: c.Quota, Asks: held})
		s.book.Hold(c.ID, held)
		s.candidates = append(s.candidates, c)
	}
	d := Demander{ID: "d", Quota: v1alpha1.QuotaBorrowing, Gang: gang.Gang{Namespace: "n", Name: "g", Size: members, Minimum: members}}
	var asks []queue.Charge
	for i := range members {
		d.Members = append(d.Members, gang.Member{Key: fmt.Sprintf("d%03d", i), Pod: podOf(gpus, 4)})
		asks = append(asks, chargeOf(gpus, 4)...)
	}
	d.Queue, _ = tree.Find("a")
	d.Charge = tree.Vector(asks)
	s.book.Arrive(queue.Workload{ID: "d", Queue: "a", Asks: asks})
	s.demander = d
	return s
}

// A large gang takes back from one-GPU borrowers exactly what it needs.
func TestLargeGang(t *testing.T) {
	s := large(t, 100, 1, 50, 8, nil)
	begin := time.Now()
	p, refusal := Find(s.inv, s.book, &s.demander, s.candidates, s.options)
	t.Log(time.Since(begin))
	if refusal != nil {
		t.Fatal(refusal)
	}
	if _, all := p.Pods(s.candidates); all != 400 || len(p.Placements) != 50 {
		t.Errorf("%d end for %d placements in %d steps", all, len(p.Placements), p.Steps)
	}
}

// A search that finds nobody stays within its bound.
func TestVerdictIsBounded(t *testing.T) {
	// One GPU of each node is held by what never ends, so that no node comes free for eight.
	s := large(t, 100, 1, 1, 8, func(i int, c *Candidate) {
		if i%8 == 0 {
			c.Quota = v1alpha1.QuotaGuaranteed
		}
	})
	_, refusal := Find(s.inv, s.book, &s.demander, s.candidates, s.options)
	if refusal == nil || refusal.Steps > 3*len(s.candidates)+4000 {
		t.Fatalf("%+v", refusal)
	}
}

// TestVerdictTime tells how long a search takes that finds nobody among 8,000 pods on 1,000 nodes.
func TestVerdictTime(t *testing.T) {
	nodes, searches := 100, 3
	if os.Getenv("DIVVY_LONG") == "queues" {
		nodes, searches = 1000, 100
	}
	s := large(t, nodes, 1, 1, 8, func(i int, c *Candidate) {
		if i%8 == 0 {
			c.Quota = v1alpha1.QuotaGuaranteed
		}
	})
	var took []time.Duration
	for range searches {
		begin := time.Now()
		_, refusal := Find(s.inv, s.book, &s.demander, s.candidates, s.options)
		took = append(took, time.Since(begin))
		if refusal == nil {
			t.Fatal("somebody ends for a pod that fits nowhere")
		}
	}
	slices.Sort(took)
	t.Logf("figure queue.verdict_ms %.1f", took[(searches*99-1)/100].Seconds()*1000)
}

func BenchmarkVerdict(b *testing.B) {
	s := large(b, 1000, 1, 1, 8, func(i int, c *Candidate) {
		if i%8 == 0 {
			c.Quota = v1alpha1.QuotaGuaranteed
		}
	})
	for b.Loop() {
		if _, refusal := Find(s.inv, s.book, &s.demander, s.candidates, s.options); refusal == nil {
			b.Fatal("found")
		}
	}
}

func BenchmarkLargeGang(b *testing.B) {
	s := large(b, 1000, 1, 500, 8, nil)
	for b.Loop() {
		p, refusal := Find(s.inv, s.book, &s.demander, s.candidates, s.options)
		if refusal != nil {
			b.Fatal(refusal)
		}
		b.Log(p.Pods(s.candidates))
	}
}
