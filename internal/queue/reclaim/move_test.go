package reclaim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// halves is nodes of so many GPUs, each half used by a movable pod of queue b. Queue a has the other half, and asks for pods with
// so many whole GPUs.
func halves(t testing.TB, nodes, gpus, members, asks int, change func(i int, c *Candidate)) *scene {
	t.Helper()
	var all []alloc.Node
	for i := range nodes {
		n := alloc.Node{Name: fmt.Sprintf("n%04d", i), CPU: 64_000, Memory: 512 * gib}
		for j := range gpus {
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
	s := &scene{inv: inv, book: queue.NewBook(), options: Options{Now: now, Moves: true, Budgets: []int{0}}}
	s.guarantee(int64(nodes*gpus)*500, nil)
	s.book.SetCapacity([]queue.Charge{{Models: []string{"H100"}, GPUs: int64(nodes*gpus) * 1000}})
	b, _ := s.book.Tree().Find("b")
	for i := range nodes * gpus {
		a := alloc.Assignment{Node: i / gpus, Name: all[i/gpus].Name, Shares: []alloc.Share{{UUID: all[i/gpus].GPUs[i%gpus].UUID, GPU: i % gpus, Limit: 40 * gib}}}
		if err := inv.Reserve(a); err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprint("w", i)
		c := Candidate{ID: fmt.Sprintf("w%05d", i), Queue: b, Start: now.Add(-time.Hour), Minimum: 1, Movable: true, Gang: gang.Gang{ShareGPUs: true, Size: 1, Minimum: 1}}
		c.Quota = v1alpha1.QuotaBorrowing
		c.Members = []Member{{Key: key, Assignments: []alloc.Assignment{a}, Charge: s.book.Tree().Vector(chargeOf(1, 2)), Again: &gang.Member{Key: key, Pod: podOf(1, 2)}}}
		if change != nil {
			change(i, &c)
		}
		s.book.Arrive(queue.Workload{ID: c.ID, Queue: "b", Quota: c.Quota, Asks: chargeOf(1, 2)})
		s.book.Hold(c.ID, chargeOf(1, 2))
		s.candidates = append(s.candidates, c)
	}
	d := Demander{ID: "d", Quota: v1alpha1.QuotaGuaranteed, Gang: gang.Gang{Namespace: "n", Name: "g", Size: members, Minimum: members, ShareGPUs: true}}
	var wanted []queue.Charge
	for i := range members {
		d.Members = append(d.Members, gang.Member{Key: fmt.Sprintf("d%03d", i), Pod: podOf(asks, 4)})
		wanted = append(wanted, chargeOf(asks, 4)...)
	}
	d.Queue, _ = s.book.Tree().Find("a")
	d.Charge = s.book.Tree().Vector(wanted)
	s.book.Arrive(queue.Workload{ID: "d", Queue: "a", Quota: d.Quota, Asks: wanted})
	s.demander = d
	return s
}

// guarantee gives both queues so much, and b a minimum run time.
func (s *scene) guarantee(each int64, run *v1alpha1.Duration) {
	share := v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.AmountOf(each, v1alpha1.UnitGPUs)}}}
	other := share
	other.MinimumRunTime = run
	s.book.SetQueues([]queue.Spec{{Name: "a", QueueSpec: share}, {Name: "b", QueueSpec: other}})
}

// moved names who moves where.
func moved(t testing.TB, s *scene) string {
	t.Helper()
	p, refusal := Find(s.inv, s.book, &s.demander, s.candidates, s.options)
	if refusal != nil {
		return "refused"
	}
	if err := s.checkMoves(p); len(p.Moves) > 0 && err != nil {
		t.Error(err)
	}
	var all []string
	for _, v := range p.Victims {
		all = append(all, fmt.Sprintf("%s%v %s", s.candidates[v.Candidate].ID[5:], v.Members, v.Rule))
	}
	return strings.Join(all, ", ")
}

func TestWhoMoves(t *testing.T) {
	for _, c := range []struct {
		name   string
		asks   int
		change func(i int, c *Candidate)
		after  func(s *scene)
		want   string
	}{
		{"one beside another", 1, nil, nil, "0[0] move"},
		{"the lowest priority first", 1, func(i int, c *Candidate) { c.Priority = int32(9 - i) }, nil, "3[0] move"},
		{"the newest first", 1, func(i int, c *Candidate) { c.Start = c.Start.Add(time.Duration(i%3) * time.Second) }, nil, "2[0] move"},
		{"a guaranteed one too", 1, func(_ int, c *Candidate) { c.Quota = v1alpha1.QuotaGuaranteed }, nil, "0[0] move"},
		{"none that may not", 1, func(i int, c *Candidate) { c.Movable = i == 2 }, nil, "2[0] move"},
		{"none of which nobody knows what it asks", 1, func(i int, c *Candidate) {
			if i != 3 {
				c.Members[0].Again = nil
			}
		}, nil, "3[0] move"},
		{"none before its minimum run time", 1, nil, func(s *scene) {
			run := v1alpha1.Duration(2 * time.Hour)
			s.guarantee(2000, &run)
		}, "refused"},
		{"none beyond a disruption budget", 1, func(i int, c *Candidate) {
			if i != 1 {
				c.Members[0].Budgets = []int{0}
			}
		}, nil, "1[0] move"},
		{"none for whom places were taken back", 1, func(_ int, c *Candidate) { c.TookFrom = []queue.Node{0, 1, 2, 3} }, nil, "refused"},
		{"none unless it is turned on", 1, nil, func(s *scene) { s.options.Moves = false }, "refused"},
		{"none for a pod above its guarantee", 1, nil, func(s *scene) { s.guarantee(999, nil) }, "refused"},
		{"none for an opportunistic pod", 1, nil, func(s *scene) { s.demander.Quota = v1alpha1.QuotaOpportunistic }, "refused"},
		{"none where the sums are not enough", 1, nil, func(s *scene) {
			for i := 1; i < 4; i++ {
				a := s.candidates[i].Members[0].Assignments[0]
				if s.inv.Reserve(a) != nil {
					panic("full")
				}
			}
		}, "refused"},
		{"none where another may end", 1, func(i int, c *Candidate) {
			if i == 3 {
				c.Quota = v1alpha1.QuotaOpportunistic
			}
		}, nil, "3[0] opportunistic"},
		{"none that nodes do not let elsewhere", 1, func(i int, c *Candidate) {
			if i != 2 {
				c.Members[0].Again.Lets = func(int) bool { return false }
			}
		}, nil, "2[0] move"},
		{"two for two", 2, nil, nil, "0[0] move, 1[0] move"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := halves(t, 2, 2, 1, c.asks, c.change)
			if c.after != nil {
				c.after(s)
			}
			if got := moved(t, s); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// A gang moves whole unless it has more members than it needs.
func TestGangsMove(t *testing.T) {
	for minimum, want := range map[int]string{3: "0[0 1 2] move", 2: "0[0] move", 1: "0[0] move"} {
		s := halves(t, 3, 1, 1, 1, nil)
		first := &s.candidates[0]
		first.Minimum = minimum
		for i := 1; i < 3; i++ {
			first.Members = append(first.Members, s.candidates[i].Members...)
			s.book.End(s.candidates[i].ID)
		}
		s.candidates = s.candidates[:1]
		s.book.Hold(first.ID, []queue.Charge{{Models: []string{"H100"}, GPUs: 1500}})
		first.Gang = gang.Gang{Namespace: "n", Name: "w", ShareGPUs: true}
		if got := moved(t, s); got != want {
			t.Errorf("with a minimum of %d: %s, want %s", minimum, got, want)
		}
		first.Gang.ShareGPUs = false // two of them share no GPU, so that none is free
		if got := moved(t, s); got != "refused" {
			t.Errorf("with a minimum of %d and GPUs apart: %s", minimum, got)
		}
	}
}

// On a large cluster a search finds few moves, and one that finds none ends.
func TestMovesOnManyNodes(t *testing.T) {
	s := halves(t, 300, 8, 2, 8, nil)
	if got := strings.Count(moved(t, s), "move"); got != 16 {
		t.Errorf("%d move, and 16 are enough", got)
	}
	for i := range s.candidates {
		s.candidates[i].Members[0].Again.Lets = func(int) bool { return false }
	}
	if got := moved(t, s); got != "refused" {
		t.Error(got)
	}
	s = halves(t, 300, 8, 1, 8, nil)
	for i := range 299 * 8 { // the cheapest nodes first are of no use
		s.candidates[i].Members[0].Again.Lets = func(int) bool { return false }
	}
	if got := strings.Count(moved(t, s), "move"); got != 8 {
		t.Errorf("%d move, and 8 are enough", got)
	}
}

func BenchmarkMoves(b *testing.B) {
	for name, lets := range map[string]bool{"found": true, "none": false} {
		b.Run(name, func(b *testing.B) {
			s := halves(b, 1000, 8, 1, 8, nil)
			for i := range s.candidates {
				s.candidates[i].Members[0].Again.Lets = func(int) bool { return lets }
			}
			for b.Loop() {
				_, _ = Find(s.inv, s.book, &s.demander, s.candidates, s.options)
			}
		})
	}
}
