package reclaim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// drawHoles is a small cluster with holes, in which queue b has a guarantee that is as large as what is idle.
func drawHoles(t testing.TB, random *rand.Rand) *scene {
	t.Helper()
	s := draw(t, random)
	for i := len(s.candidates) - 1; i >= 0; i-- {
		c := &s.candidates[i]
		if random.IntN(2) == 0 {
			for j := range c.Members {
				s.inv.Unreserve(c.Members[j].Assignments[0])
			}
			s.book.End(c.ID)
			s.candidates = slices.Delete(s.candidates, i, i+1)
			continue
		}
		c.Movable = random.IntN(4) > 0
		c.Gang = gang.Gang{Namespace: "n", Name: c.ID, ShareGPUs: len(c.Members) == 1 || random.IntN(2) == 0}
		if !c.Gang.ShareGPUs && !apart(c) {
			c.Gang.ShareGPUs = true
		}
		for j := range c.Members {
			m := &c.Members[j]
			shares := m.Assignments[0].Shares
			m.Again = &gang.Member{Key: m.Key, Pod: podOf(len(shares), quartersOf(&shares[0]))}
		}
	}
	guarantee := func(name, parent string, guaranteed int64) queue.Spec {
		return queue.Spec{Name: name, QueueSpec: v1alpha1.QueueSpec{Parent: parent, Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.AmountOf(guaranteed, v1alpha1.UnitGPUs)}}}}
	}
	tree := s.book.Tree()
	used := func(name string) int64 {
		n, _ := tree.Find(name)
		return s.book.Used(n, 0)
	}
	rest := s.book.Capacity()[0] - used("a") - used("c") - used("d")
	if random.IntN(8) == 0 {
		rest /= 2
	}
	s.book.SetQueues([]queue.Spec{guarantee("a", "", used("a")), guarantee("b", "", rest), guarantee("up", "", used("c")+used("d")), guarantee("c", "up", used("c")), guarantee("d", "up", used("d"))})
	s.options.Moves = true
	return s
}

func quartersOf(s *alloc.Share) int {
	if s.Whole {
		return 4
	}
	return int(s.Limit / (20 * gib))
}

func apart(c *Candidate) bool {
	seen := map[string]bool{}
	for i := range c.Members {
		for _, share := range c.Members[i].Assignments[0].Shares {
			if seen[share.UUID] {
				return false
			}
			seen[share.UUID] = true
		}
	}
	return true
}

// block is what is to be placed: so many GPUs, a number of quarters of each. Pieces of one party are apart, if it is not empty.
type block struct {
	count, quarters int
	party           string
}

func blockOf(p *alloc.Pod, g *gang.Gang, name string) block {
	r := &p.Claims[0][0]
	one := block{count: r.Count, quarters: 4}
	if !r.Whole {
		one.quarters = int(r.Memory.Of(80*gib) / (20 * gib))
	}
	if !g.ShareGPUs {
		one.party = name
	}
	return one
}

// board is what of each GPU is free, in quarters, and which parties are on it. It shares no code with the inventory.
type board struct {
	nodes [][]slot
	steps int
}

type slot struct {
	free    int
	parties map[string]bool
}

// puts reports whether all blocks have places together, by going through all of them.
func (b *board) puts(blocks []block) bool {
	if len(blocks) == 0 {
		return true
	}
	p := blocks[0]
	for n := range b.nodes {
		if b.putsOn(n, 0, p.count, p, blocks[1:]) {
			return true
		}
	}
	return false
}

// putsOn chooses the rest of the GPUs of a block on a node, from a position.
func (b *board) putsOn(n, from, left int, p block, rest []block) bool {
	if b.steps++; left == 0 {
		return b.puts(rest)
	}
	tried := map[string]bool{}
	for at := from; at < len(b.nodes[n]); at++ {
		g := &b.nodes[n][at]
		if g.free < p.quarters || p.party != "" && g.parties[p.party] {
			continue
		}
		key := fmt.Sprint(g.free, g.parties)
		if tried[key] { // one like it was tried
			continue
		}
		tried[key] = true
		g.free -= p.quarters
		if p.party != "" {
			g.parties[p.party] = true
		}
		done := b.putsOn(n, at+1, left-1, p, rest)
		g.free += p.quarters
		delete(g.parties, p.party)
		if done {
			return true
		}
	}
	return false
}

// board is that of a scene without those who are chosen, and blocks are they and the demander.
func (s *scene) board(chosen []option) (b *board, blocks []block) {
	b = &board{}
	for i := range s.inv.Len() {
		node := make([]slot, len(s.inv.Node(i).GPUs))
		for j := range node {
			node[j] = slot{4, map[string]bool{}}
		}
		b.nodes = append(b.nodes, node)
	}
	for i := range s.demander.Members {
		blocks = append(blocks, blockOf(&s.demander.Members[i].Pod, &s.demander.Gang, "demander"))
	}
	for i := range s.candidates {
		c := &s.candidates[i]
		for j := range c.Members {
			if chosen != nil && slices.Contains(chosen[i].members, j) {
				blocks = append(blocks, blockOf(&c.Members[j].Again.Pod, &c.Gang, c.ID))
				continue
			}
			a := &c.Members[j].Assignments[0]
			at, _ := s.inv.Position(a.Name)
			for k := range a.Shares {
				g := &b.nodes[at][a.Shares[k].GPU]
				g.free -= quartersOf(&a.Shares[k])
				if !c.Gang.ShareGPUs {
					g.parties[c.ID] = true
				}
			}
		}
	}
	slices.SortStableFunc(blocks, func(x, y block) int { return 8*(y.count-x.count) + y.quarters - x.quarters })
	return b, blocks
}

// fewest is how few pods move at least, by going through all who may and all places; 0 is none that helps.
func (s *scene) fewest() (best int) {
	best = 1 << 20
	chosen := make([]option, len(s.candidates))
	var walk func(i, n, budget int)
	walk = func(i, n, budget int) {
		if n >= best || budget < 0 {
			return
		}
		if i == len(s.candidates) {
			b, blocks := s.board(chosen)
			if n > 0 && b.puts(blocks) {
				best = n
			}
			return
		}
		for _, o := range s.movers(i) {
			left := budget
			for _, j := range o.members {
				left -= len(s.candidates[i].Members[j].Budgets)
			}
			chosen[i] = o
			walk(i+1, n+len(o.members), left)
		}
		chosen[i] = option{}
	}
	walk(0, 0, s.options.Budgets[0])
	if best == 1<<20 {
		return 0
	}
	return best
}

// movers are the ways in which a candidate may move.
func (s *scene) movers(i int) []option {
	c := s.candidates[i]
	if !c.Movable {
		return []option{{}}
	}
	c.Quota = v1alpha1.QuotaBorrowing // a guaranteed one may move
	return s.ways(&c)
}

// checkMoves judges a plan: all have places beside all others, nobody has two, and nobody moves to where it is.
func (s *scene) checkMoves(p *Plan) error {
	chosen := make([]option, len(s.candidates))
	budget, at := s.options.Budgets[0], map[[2]int]*alloc.Assignment{}
	for i := range p.Moves {
		m := &p.Moves[i]
		at[[2]int{m.Candidate, m.Member}] = &m.Assignment
	}
	n := 0
	for _, v := range p.Victims {
		chosen[v.Candidate] = option{members: v.Members}
		if v.Rule != RuleMove || !slices.ContainsFunc(s.movers(v.Candidate), func(o option) bool { return slices.Equal(o.members, v.Members) }) {
			return fmt.Errorf("%+v ends", v)
		}
		same := 0
		for _, j := range v.Members {
			n++
			m := &s.candidates[v.Candidate].Members[j]
			budget -= len(m.Budgets)
			to := at[[2]int{v.Candidate, j}]
			if to == nil {
				return fmt.Errorf("member %d of candidate %d has no place", j, v.Candidate)
			}
			if fmt.Sprint(to.Name, to.Shares) == fmt.Sprint(m.Assignments[0].Name, m.Assignments[0].Shares) {
				same++
			}
		}
		if same == len(v.Members) {
			return fmt.Errorf("candidate %d moves to where it is", v.Candidate)
		}
	}
	if budget < 0 || n != len(p.Moves) || len(p.Placements) != len(s.demander.Members) {
		return fmt.Errorf("%d of the budget are left, %d move, %d have places, %d of the demander", budget, n, len(p.Moves), len(p.Placements))
	}
	b, _ := s.board(chosen)
	put := func(a *alloc.Assignment, p block) error {
		node, _ := s.inv.Position(a.Name)
		for _, share := range a.Shares {
			g := &b.nodes[node][share.GPU]
			if g.free -= p.quarters; g.free < 0 || p.party != "" && g.parties[p.party] {
				return fmt.Errorf("%s does not fit on %s", p.party, share.UUID)
			}
			g.parties[p.party] = true
		}
		return nil
	}
	for i := range p.Placements {
		if err := put(&p.Placements[i].Assignment, blockOf(&p.Placements[i].Member.Pod, &s.demander.Gang, "demander")); err != nil {
			return err
		}
	}
	for i := range p.Moves {
		m := &p.Moves[i]
		c := &s.candidates[m.Candidate]
		if err := put(&m.Assignment, blockOf(&c.Members[m.Member].Again.Pod, &c.Gang, c.ID)); err != nil {
			return err
		}
	}
	return nil
}

// Every plan by moves is valid, hardly any moves more pods than must, and nobody moves where it can be done without.
func TestMovesAgainstAllSets(t *testing.T) {
	clusters, seed := 250, uint64(5)
	if s := os.Getenv("DIVVY_QUEUE_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	random := rand.New(rand.NewPCG(seed, 2))
	equal, more, missed, none, drawn := 0, 0, 0, 0, 0
	for equal+more+missed < clusters {
		s := drawHoles(t, random)
		if drawn++; !assured(s) && random.IntN(4) > 0 {
			continue
		}
		before := fmt.Sprint(s.state())
		p, refusal := Find(s.inv, s.book, &s.demander, s.candidates, s.options)
		if after := fmt.Sprint(s.state()); before != after {
			t.Fatalf("the inventory was\n%s\nand is\n%s", before, after)
		}
		if p != nil && len(p.Moves) == 0 {
			continue // it is done by other rules, or fits
		}
		if p != nil {
			if want, ok := s.brute(t); ok || !assured(s) {
				t.Errorf("%+v move, and %+v of others are enough, or the demander is above its guarantee", p.Moves, want)
			}
		}
		if !assured(s) {
			continue
		}
		least := s.fewest()
		switch {
		case p == nil && least > 0:
			missed++
			t.Logf("refused (%v), and %d moves are enough", refusal, least)
		case p == nil:
			none++
		default:
			if err := s.checkMoves(p); err != nil {
				t.Fatal(err)
			}
			if len(p.Moves) > least {
				more++
				t.Logf("%d move, and %d are enough", len(p.Moves), least)
			} else {
				equal++
			}
		}
	}
	t.Logf("%d of %d equal, %d with more, %d missed; %d where no moves help, of %d drawn", equal, clusters, more, missed, none, drawn)
	if equal*100 < clusters*98 || none < clusters/10 {
		t.Errorf("%d of %d equal, %d with more, %d missed; %d where no moves help", equal, clusters, more, missed, none)
	}
}

// assured reports whether the demander of a scene is within its guarantee.
func assured(s *scene) bool {
	n := s.demander.Queue
	return s.book.Used(n, 0)+s.demander.Charge[0] <= s.book.Guaranteed(n, 0)
}
