package reclaim

import (
	"cmp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// trial is a search. What it takes from the inventory it gives back at its end.
type trial struct {
	inv        *alloc.Inventory
	book       *queue.Book
	tree       *queue.Tree
	demander   *Demander
	candidates []Candidate
	options    Options
	// rules has what each candidate may end by, empty for one that may not; rank is its place among those that end.
	rules []Rule
	rank  []int
	any   bool
	// nodes has the members on each node, by its position.
	nodes map[int][]member
	// gone tells which members are taken, and items what was taken, in order.
	gone    [][]bool
	left    []int
	items   []item
	freed   map[queue.Node]queue.Vector
	budgets []int
	// reach is the widest queue on the demander's path within whose entitlement it stays, negative if there is none.
	reach queue.Node
	found gang.Plan
	// moving tells that those who end come back, and homes where, by candidate.
	moving bool
	homes  map[int]home
	steps  int
	most   int
}

// member is a member of a candidate.
type member struct{ candidate, member int }

// item is what ends at once: some members above a minimum, or a whole gang.
type item struct {
	candidate int
	members   []int
	whole     bool
}

func newTrial(inv *alloc.Inventory, book *queue.Book, d *Demander, candidates []Candidate, o Options, moving bool) *trial {
	t := &trial{
		inv: inv, book: book, tree: book.Tree(), demander: d, candidates: candidates, options: o, moving: moving,
		rules: make([]Rule, len(candidates)), rank: make([]int, len(candidates)), nodes: map[int][]member{},
		gone: make([][]bool, len(candidates)), left: make([]int, len(candidates)), freed: map[queue.Node]queue.Vector{},
		budgets: slices.Clone(o.Budgets), most: o.Steps,
	}
	if t.most == 0 {
		t.most = DefaultSteps
	}
	t.reach = t.within()
	for i := range candidates {
		c := &candidates[i]
		t.gone[i], t.left[i] = make([]bool, len(c.Members)), len(c.Members)
		if c.Ending {
			for j := range c.Members {
				t.free(&c.Members[j])
			}
			continue
		}
		t.rules[i] = t.rule(c)
		t.any = t.any || t.rules[i] != ""
	}
	t.sort()
	return t
}

// end gives everything back.
func (t *trial) end() {
	for len(t.items) > 0 {
		t.giveBack(len(t.items) - 1)
	}
	for i := range t.candidates {
		if c := &t.candidates[i]; c.Ending {
			for j := range c.Members {
				t.put(&c.Members[j])
			}
		}
	}
}

// free takes from the inventory what a member has.
func (t *trial) free(m *Member) {
	for i := range m.Assignments {
		t.inv.Unreserve(m.Assignments[i])
	}
	if m.CPU != 0 || m.HostMemory != 0 {
		t.inv.AddHostUse(m.node(), -m.CPU, -int64(m.HostMemory))
	}
}

// put gives back what a member had.
func (t *trial) put(m *Member) {
	if m.CPU != 0 || m.HostMemory != 0 {
		t.inv.AddHostUse(m.node(), m.CPU, int64(m.HostMemory))
	}
	for i := range m.Assignments {
		if t.inv.Reserve(m.Assignments[i]) != nil {
			t.inv.Adopt(m.Assignments[i]) // it contradicted others before
		}
	}
}

// within is the widest queue on the demander's path up to which all stay within their entitlements with it.
func (t *trial) within() queue.Node {
	reach := queue.Node(-1)
	for n := t.demander.Queue; n > queue.Top; n = t.tree.Parent(n) {
		if !t.tree.Covers(n, t.demander.Charge) {
			return reach // nobody has said that it is entitled to anything
		}
		for d, more := range t.demander.Charge {
			if more > 0 && t.tree.Names(n, d) && t.book.Used(n, d)+more > t.book.Entitled(n, d) {
				return reach
			}
		}
		reach = n
	}
	return reach
}

// rule is that by which a candidate may end; empty is none.
func (t *trial) rule(c *Candidate) Rule {
	d := t.demander
	switch {
	case t.spares(c):
		return ""
	case t.moving:
		return RuleMove
	case d.Quota == v1alpha1.QuotaOpportunistic && c.Quota != v1alpha1.QuotaOpportunistic:
		return ""
	case d.Quota != c.Quota && c.Quota == v1alpha1.QuotaOpportunistic:
		return RuleOpportunistic
	case c.Queue == d.Queue && c.Priority < d.Priority:
		return RulePriority
	case c.Queue == d.Queue || d.Quota == v1alpha1.QuotaOpportunistic:
		return ""
	}
	if t.over(c.Queue, func(int) bool { return true }) {
		return RuleEntitlement
	}
	return ""
}

// over reports whether a queue is above its entitlement where its path and the demander's part, in a dimension of which the
// demander asks something and that is let.
func (t *trial) over(n queue.Node, let func(d int) bool) bool {
	ofDemander, ofVictim := t.tree.Parting(t.demander.Queue, n)
	if t.reach < 0 || t.tree.Depth(ofDemander) < t.tree.Depth(t.reach) {
		return false
	}
	for d, asked := range t.demander.Charge {
		if asked > 0 && let(d) && t.book.Used(ofVictim, d)-t.freedOf(ofVictim, d) > t.book.Entitled(ofVictim, d) {
			return true
		}
	}
	return false
}

func (t *trial) freedOf(n queue.Node, d int) int64 {
	if v := t.freed[n]; v != nil {
		return v[d]
	}
	return 0
}

// sort puts those who may end in their order, and members on their nodes.
func (t *trial) sort() {
	order := make([]int, 0, len(t.candidates))
	for i := range t.candidates {
		if t.rules[i] != "" {
			order = append(order, i)
		}
	}
	places := map[Rule]int{RuleOpportunistic: 0, RuleEntitlement: 1, RulePriority: 2}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &t.candidates[a], &t.candidates[b]
		return cmp.Or(cmp.Compare(places[t.rules[a]], places[t.rules[b]]), cmp.Compare(x.Priority, y.Priority),
			y.Start.Compare(x.Start), cmp.Compare(len(x.Members), len(y.Members)), strings.Compare(x.ID, y.ID))
	})
	for at, i := range order {
		t.rank[i] = at
		for j := range t.candidates[i].Members {
			if node, ok := t.inv.Position(t.candidates[i].Members[j].node()); ok {
				t.nodes[node] = append(t.nodes[node], member{i, j})
			}
		}
	}
}

// next is what must end so that a member does.
func (t *trial) next(m member) item {
	c := &t.candidates[m.candidate]
	if t.left[m.candidate] > c.Minimum {
		return item{candidate: m.candidate, members: []int{m.member}}
	}
	return t.whole(m.candidate)
}

// whole is all that is left of a candidate.
func (t *trial) whole(candidate int) item {
	it := item{candidate: candidate, whole: true}
	for j, gone := range t.gone[candidate] {
		if !gone {
			it.members = append(it.members, j)
		}
	}
	return it
}

// allowed reports whether something may end, besides what is taken already.
func (t *trial) allowed(it item) bool {
	c := &t.candidates[it.candidate]
	if t.rules[it.candidate] == "" || len(it.members) == 0 || !it.whole && !t.ran(c, it.members) {
		return false
	}
	for _, j := range it.members {
		for _, b := range t.protecting(c, j) {
			need := 0
			for _, k := range it.members {
				if slices.Contains(t.protecting(c, k), b) {
					need++
				}
			}
			if t.budgets[b] < need {
				return false
			}
		}
	}
	return t.rules[it.candidate] != RuleEntitlement || t.over(c.Queue, func(d int) bool {
		return slices.ContainsFunc(it.members, func(j int) bool { return c.Members[j].Charge[d] > 0 })
	})
}

// ran reports whether members of a candidate have run for the minimum run time.
func (t *trial) ran(c *Candidate, members []int) bool {
	return !slices.ContainsFunc(members, func(j int) bool { return t.options.Now.Sub(c.Members[j].Start) < t.tree.MinimumRunTime(c.Queue) })
}

// take lets something end on trial.
func (t *trial) take(it item) {
	c := &t.candidates[it.candidate]
	for _, j := range it.members {
		t.steps++
		t.free(&c.Members[j])
		t.gone[it.candidate][j] = true
		t.account(c, j, 1)
	}
	t.left[it.candidate] -= len(it.members)
	t.items = append(t.items, it)
}

// giveBack undoes take of the item at a position.
func (t *trial) giveBack(at int) item {
	it := t.items[at]
	c := &t.candidates[it.candidate]
	for _, j := range it.members {
		t.steps++
		t.put(&c.Members[j])
		t.gone[it.candidate][j] = false
		t.account(c, j, -1)
	}
	t.left[it.candidate] += len(it.members)
	t.items = slices.Delete(t.items, at, at+1)
	return it
}

// takeAt takes again what was given back from a position.
func (t *trial) takeAt(at int, it item) {
	t.take(it)
	copy(t.items[at+1:], t.items[at:len(t.items)-1])
	t.items[at] = it
}

// account counts a member in budgets and in what queues would have free.
func (t *trial) account(c *Candidate, j int, sign int) {
	for _, b := range t.protecting(c, j) {
		t.budgets[b] -= sign
	}
	if c.Quota == v1alpha1.QuotaOpportunistic {
		return
	}
	for n := c.Queue; n >= queue.Top; n = t.tree.Parent(n) {
		v := t.freed[n]
		if v == nil {
			v = make(queue.Vector, len(c.Members[j].Charge))
			t.freed[n] = v
		}
		for d, amount := range c.Members[j].Charge {
			v[d] += int64(sign) * amount
		}
	}
}

// lawful reports whether the limits on the demander's path hold with it.
func (t *trial) lawful() bool {
	if t.demander.Quota == v1alpha1.QuotaOpportunistic {
		return true
	}
	for n := t.demander.Queue; n > queue.Top; n = t.tree.Parent(n) {
		for d, more := range t.demander.Charge {
			if more > 0 && t.book.Used(n, d)-t.freedOf(n, d)+more > t.tree.Limit(n, d) {
				return false
			}
		}
	}
	return true
}

// fits places the whole demander on trial, and those who move: as before if that still serves.
func (t *trial) fits() bool {
	if t.serves() {
		return true
	}
	if t.moving {
		return t.rearrange()
	}
	return t.alone()
}

// alone places the whole demander on trial.
func (t *trial) alone() bool {
	t.steps += 8 + t.inv.Len() + 4*len(t.demander.Members)
	plan, refusal := gang.Place(t.inv, t.demander.Gang, t.demander.Members, t.options.Nodes)
	if refusal != nil {
		return false
	}
	t.found = plan
	return true
}

// plan is what was found.
func (t *trial) plan() *Plan {
	p := &Plan{Placements: t.found.Placements, Moves: t.moves(), Steps: t.steps}
	slices.SortFunc(t.items, func(a, b item) int { return cmp.Compare(t.rank[a.candidate], t.rank[b.candidate]) })
	for _, it := range t.items {
		if last := len(p.Victims) - 1; last >= 0 && p.Victims[last].Candidate == it.candidate {
			v := &p.Victims[last]
			v.Members, v.Whole = append(v.Members, it.members...), v.Whole || it.whole
			continue
		}
		p.Victims = append(p.Victims, Victim{Candidate: it.candidate, Members: slices.Clone(it.members), Whole: it.whole, Rule: t.rules[it.candidate]})
	}
	for i := range p.Victims {
		slices.Sort(p.Victims[i].Members)
	}
	used := map[string]bool{}
	for i := range p.Placements {
		for _, s := range p.Placements[i].Assignment.Shares {
			used[s.UUID] = true
		}
	}
	for i := range p.Moves {
		for _, s := range p.Moves[i].Assignment.Shares {
			used[s.UUID] = true
		}
	}
	for i := range t.candidates {
		if c := &t.candidates[i]; c.Ending && slices.ContainsFunc(c.Members, func(m Member) bool {
			return slices.ContainsFunc(m.Assignments, func(a alloc.Assignment) bool {
				return slices.ContainsFunc(a.Shares, func(s alloc.Share) bool { return used[s.UUID] })
			})
		}) {
			p.Awaits = append(p.Awaits, i)
		}
	}
	return p
}

// nobody says why no candidate may end.
func (t *trial) nobody() string {
	if t.reach < 0 {
		return "its queue would be above its entitlement, and no pod there has a lower priority"
	}
	return "no queue is above its entitlement with pods that may end"
}
