package queue_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
	"github.com/divvy-gpu/divvy/internal/queue/simulation"
)

const model = "NVIDIA H100 80GB HBM3"

// sequence is a cluster under random events, and what is checked after each.
type sequence struct {
	t       *testing.T
	random  *rand.Rand
	c       *simulation.Cluster
	names   []string
	specs   []queue.Spec
	nodes   []string
	work    map[string]simulation.Workload
	now     time.Time
	used    map[string]int64 // by queue and dimension, what was used above the limit
	plans   int
	arrived int
}

func node(name string, gpus int) alloc.Node {
	n := alloc.Node{Name: name, CPU: 64_000, Memory: 1 << 40}
	for j := range gpus {
		n.GPUs = append(n.GPUs, alloc.GPU{UUID: fmt.Sprint(name, "/", j), Index: j, Model: model, Capacity: 80 << 30})
	}
	return n
}

func newSequence(t *testing.T, seed uint64) *sequence {
	t.Helper()
	s := &sequence{t: t, random: rand.New(rand.NewPCG(seed, 17)), work: map[string]simulation.Workload{}, now: time.Unix(1_000_000, 0), used: map[string]int64{}}
	var nodes []alloc.Node
	for i := range 1 + s.random.IntN(5) {
		s.nodes = append(s.nodes, fmt.Sprint("n", i))
		nodes = append(nodes, node(s.nodes[i], 1+s.random.IntN(8)))
	}
	policy, err := alloc.PolicyNamed("bestfit")
	if err != nil {
		t.Fatal(err)
	}
	if s.c, err = simulation.New(nodes, policy, s.now); err != nil {
		t.Fatal(err)
	}
	s.c.Planned = s.planned
	s.edit()
	return s
}

func (s *sequence) edit() {
	specs := queue.RandomSpecs(s.random, 2+s.random.IntN(7), s.random.IntN(6) == 0)
	for i := range specs {
		grace, run := v1alpha1.Duration(time.Duration(s.random.IntN(40))*time.Second), v1alpha1.Duration(time.Duration(s.random.IntN(60))*time.Second)
		specs[i].Grace, specs[i].MinimumRunTime = &grace, &run
	}
	s.specs = specs
	s.names = s.names[:0]
	for i := range specs {
		s.names = append(s.names, specs[i].Name)
	}
	s.c.SetQueues(specs)
	clear(s.used)
}

func (s *sequence) arrive() {
	s.arrived++
	id := fmt.Sprintf("w%04d", s.arrived)
	count, quarters, size := 1, 1+s.random.IntN(4), 1
	if s.random.IntN(4) == 0 {
		count = 1 + s.random.IntN(4)
	}
	if s.random.IntN(3) == 0 {
		size = 2 + s.random.IntN(3)
	}
	request := alloc.Request{Count: count, Memory: v1alpha1.Percent(uint8(25 * quarters))}
	w := simulation.Workload{
		ID: id, Queue: s.names[s.random.IntN(len(s.names))], Priority: int32(s.random.IntN(3)), Size: size, Minimum: 1 + s.random.IntN(size),
		Quota:  []v1alpha1.Quota{"borrowing", "borrowing", "borrowing", "guaranteed", "opportunistic"}[s.random.IntN(5)],
		Pod:    alloc.Pod{Claims: [][]alloc.Request{{request}}},
		Charge: queue.Charge{Models: []string{model}, GPUs: int64(count * quarters * 250)},
	}
	s.work[id] = w
	s.c.Arrive(w)
}

func (s *sequence) event() string {
	ids := s.c.IDs()
	switch n := s.random.IntN(40); {
	case n < 16 && len(ids) < 30 || len(ids) == 0:
		s.arrive()
		return "arrival"
	case n < 26:
		s.c.End(ids[s.random.IntN(len(ids))])
		return "end"
	case n < 28:
		s.edit()
		return "edit"
	case n < 30:
		s.c.Lose(s.nodes[s.random.IntN(len(s.nodes))])
		return "loss"
	case n < 32:
		s.c.Return(s.nodes[s.random.IntN(len(s.nodes))])
		return "return"
	case n < 33:
		s.c.Restart()
		return "restart"
	}
	s.now = s.now.Add(time.Duration(s.random.IntN(60)) * time.Second)
	return "time"
}

// named reports whether a queue or one above it names anything: nothing is guaranteed elsewhere. All GPUs here are of one model.
func named(tree *queue.Tree, n queue.Node) bool {
	for d := range tree.Dimensions() {
		if tree.Names(n, d) {
			return true
		}
	}
	return false
}

// planned judges victims (Q4): none guaranteed, gangs whole or above their minimum, queues above their entitlement until
// the last of their victims, after the minimum run time.
func (s *sequence) planned(d *reclaim.Demander, candidates []reclaim.Candidate, p *reclaim.Plan) {
	s.plans++
	tree := s.c.Book.Tree()
	freed, greatest := map[[2]int]int64{}, map[[2]int]int64{}
	for _, v := range p.Victims {
		c := &candidates[v.Candidate]
		left := len(c.Members) - len(v.Members)
		switch {
		case c.Quota == v1alpha1.QuotaGuaranteed && named(tree, c.Queue), c.Ending, left > 0 && left < c.Minimum, s.now.Sub(c.Start) < tree.MinimumRunTime(c.Queue):
			s.t.Errorf("%v of %+v end for %s", v.Members, c, d.ID)
		case v.Rule == reclaim.RulePriority && (c.Queue != d.Queue || c.Priority >= d.Priority):
			s.t.Errorf("%+v gives way to %s by priority", c, d.ID)
		}
		if v.Rule != reclaim.RuleEntitlement {
			continue
		}
		own, at := tree.Parting(d.Queue, c.Queue)
		for n := d.Queue; ; n = tree.Parent(n) {
			for dim, more := range d.Charge {
				if more > 0 && tree.Names(n, dim) && s.c.Book.Used(n, dim)+more > s.c.Book.Entitled(n, dim) {
					s.t.Errorf("%s takes back for queue %s, which is above its entitlement", d.ID, tree.Name(n))
				}
			}
			if n == own {
				break
			}
		}
		for dim := range d.Charge {
			key := [2]int{int(at), dim}
			size := c.Members[0].Charge[dim]
			freed[key] += size * int64(len(v.Members))
			if v.Whole {
				size *= int64(min(c.Minimum, len(v.Members)))
			}
			greatest[key] = max(greatest[key], size)
		}
	}
	for key, sum := range freed {
		over := false
		for dim, more := range d.Charge {
			k := [2]int{key[0], dim}
			over = over || more > 0 && s.c.Book.Used(queue.Node(key[0]), dim)-freed[k]+greatest[k] > s.c.Book.Entitled(queue.Node(key[0]), dim)
		}
		if !over && sum > 0 {
			s.t.Errorf("queue %s ends below its entitlement for %s: %+v", tree.Name(queue.Node(key[0])), d.ID, p.Victims)
		}
	}
}

// check holds the state against the rules.
func (s *sequence) check(what string) bool {
	b := s.c.Book
	if err := queue.CheckShares(b); err != nil {
		s.t.Errorf("after %s: %v", what, err)
	}
	for _, id := range s.c.IDs() { // G1
		if n, w := s.c.Running(id), s.work[id]; n > 0 && n < w.Minimum || n > w.Size {
			s.t.Errorf("after %s: %d pods of %+v run", what, n, w)
		}
	}
	tree := b.Tree()
	for i := range s.specs { // Q1: a limit is exceeded only by what ran when it was lowered
		for d := range tree.Dimensions() {
			n, _ := tree.Find(s.specs[i].Name)
			for ; n > queue.Top; n = tree.Parent(n) {
				key := fmt.Sprint(n, d)
				used, limit := b.Used(n, d), tree.Limit(n, d)
				if most, was := s.used[key]; used > limit && was && used > max(most, limit) {
					s.t.Errorf("after %s: queue %s uses %d, limit %d, before %d", what, tree.Name(n), used, limit, most)
				}
				s.used[key] = used
			}
		}
	}
	s.loans(what)
	if !queue.Recounted(b) {
		s.t.Errorf("after %s: the sums are not those of the workloads", what)
	}
	if over := s.overGiven(); over != "" {
		s.t.Errorf("after %s: %s", what, over)
	}
	return !s.t.Failed()
}

// loans: what is borrowed beyond what is guaranteed to nobody is lent, to one unit, where the roots' limits let them lend.
func (s *sequence) loans(what string) {
	b := s.c.Book
	for d, capacity := range b.Capacity() {
		borrowed, lent, idle, guaranteed := int64(0), int64(0), int64(0), int64(0)
		outside := b.Used(queue.Outside, d)
		borrowed += outside
		for i := range s.specs {
			n, _ := b.Tree().Find(s.specs[i].Name)
			for b.Tree().Parent(n) != queue.Top {
				n = b.Tree().Parent(n)
			}
			if b.Tree().Name(n) != s.specs[i].Name {
				continue
			}
			g, used := b.Guaranteed(n, d), b.Used(n, d)
			use := b.StandingOf(n, d)
			borrowed, lent, guaranteed = borrowed+use.Borrowed, lent+use.Lent, guaranteed+g
			idle += min(max(0, g-used), b.Tree().Lends(n, d))
			if use.Borrowed > 0 && use.Lent > 0 {
				s.t.Errorf("after %s: queue %s lends and borrows: %+v", what, s.specs[i].Name, use)
			}
		}
		if want := min(idle, max(0, borrowed-max(0, capacity-guaranteed))); lent != want {
			s.t.Errorf("after %s: %d borrowed of %d, %d guaranteed, %d lent instead of %d", what, borrowed, capacity, guaranteed, lent, want)
		}
	}
}

// overGiven tells of a GPU of which more is given than there is.
func (s *sequence) overGiven() string {
	for i := range s.c.Inventory.Len() {
		n := s.c.Inventory.Node(i)
		for j := range n.GPUs {
			if g := &n.GPUs[j]; g.Granted > g.Capacity || g.Fence != "" {
				return fmt.Sprintf("GPU %s has %d of %d given, %s", g.UUID, g.Granted, g.Capacity, g.Fence)
			}
		}
	}
	return ""
}

// Every rule holds after every event of random sequences. DIVVY_LONG=queues runs 1,000 sequences of 200 events.
func TestRandomSequences(t *testing.T) {
	sequences := 4
	if os.Getenv("DIVVY_LONG") == "queues" {
		sequences = 1000
	}
	plans, evicted, held := 0, 0, 0
	defer func() { t.Logf("figure queue.random_sequences %d", held) }()
	for seed := range uint64(sequences) {
		s := newSequence(t, seed)
		for i := range 200 {
			what := s.event()
			s.c.Step(s.now)
			if !s.check(fmt.Sprintf("event %d of sequence %d, %s", i, seed, what)) {
				return
			}
		}
		plans += s.plans
		evicted += s.c.Evicted
		held++
	}
	t.Logf("%d plans, %d pods ended", plans, evicted)
	if plans < 5*sequences {
		t.Errorf("only %d plans", plans)
	}
}
