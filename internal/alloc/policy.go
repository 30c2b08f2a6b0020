package alloc

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Term is one part of a policy's key. Terms are compared in turn, and the smallest
// key wins.
type Term interface {
	// bits is how many bits a score has. A greater score counts as the greatest.
	bits() int
	score(o *option) uint64
}

// option is one way to place a request: a node, its states before and after, and
// for one share the position of its GPU.
type option struct {
	inv           *Inventory
	shape         *shape
	node, gpu     int
	before, after *state
	// spread is how far apart the chosen GPUs are in all, see [Topology].
	spread int
	// rank is how little the GPUs are wanted, 0 to mostRank-1, see rank.
	rank uint8
}

// Policy orders the options for a request strictly: by its terms in turn, and last
// by the order of the nodes.
type Policy struct {
	Name  string
	Terms []Term
	// tightest chooses, among a node's GPUs, the fullest on which the share fits.
	tightest bool
	// random tells that keys differ from one decision to the next.
	random bool
	// widths are those of the terms, and unused what they leave of termBits.
	widths []uint8
	unused uint8
	// beyond tells that keys depend on more than the states of nodes.
	beyond bool
}

// A key has the rank of the preference, the terms, and the node.
const (
	nodeBits = 20
	rankBits = 6
	termBits = 64 - nodeBits - rankBits
	mostRank = 1<<rankBits - 1
)

func (p *Policy) validate(nodes int) error {
	sum := 0
	for _, t := range p.Terms {
		sum += t.bits()
	}
	if sum > termBits {
		return fmt.Errorf("%w: the terms of policy %s need %d bits and a key has %d", ErrInventory, p.Name, sum, termBits)
	}
	if bits.Len(uint(nodes)) > nodeBits {
		return fmt.Errorf("%w: %d nodes are more than %d", ErrInventory, nodes, 1<<nodeBits-1)
	}
	return nil
}

// key returns the option's rank under the policy; smaller is better.
func (p *Policy) key(o *option) uint64 {
	key := uint64(o.rank)
	for i, t := range p.Terms {
		width := p.widths[i]
		key = key<<width | min(t.score(o), 1<<width-1)
	}
	return key<<p.unused<<nodeBits | uint64(o.node)
}

// nodeOf returns the node of a key.
func nodeOf(key uint64) int { return int(key & (1<<nodeBits - 1)) }

// DefaultPolicy is the name of the policy that packed best.
const DefaultPolicy = "adaptive"

var policies = []Policy{
	{Name: DefaultPolicy, Terms: []Term{Adaptive{}, BestFit{}}},
	{Name: "capacity", Terms: []Term{Capacity{}, BestFit{}}},
	{Name: "fragmentation", Terms: []Term{Fragmentation{Bucket: 20}, BestFit{}}},
	{Name: "bestfit", Terms: []Term{BestFit{}}, tightest: true},
	{Name: "spread", Terms: []Term{Spread{}}},
	{Name: "topology", Terms: []Term{Topology{}, Adaptive{}, BestFit{}}},
	{Name: "random", Terms: []Term{Random{}, Random{GPUs: true}}, random: true},
	{Name: "dotproduct", Terms: []Term{DotProduct{}}, tightest: true},
	{Name: "clustering", Terms: []Term{Clustering{}}, tightest: true, beyond: true},
	{Name: "packing", Terms: []Term{Packing{}}, tightest: true},
	{Name: "fgd", Terms: []Term{Fragmentation{}}},
}

// PolicyNames lists the policies that [PolicyNamed] knows, the default first.
func PolicyNames() []string {
	var names []string
	for _, p := range policies {
		names = append(names, p.Name)
	}
	return names
}

// PolicyNamed returns a policy. The error for an unknown name lists all names.
func PolicyNamed(name string) (Policy, error) {
	for _, p := range policies {
		if p.Name == name {
			p.Terms = slices.Clone(p.Terms)
			p.unused = termBits
			for _, t := range p.Terms {
				p.widths = append(p.widths, uint8(t.bits()))
				p.unused -= uint8(t.bits())
			}
			return p, nil
		}
	}
	return Policy{}, fmt.Errorf("unknown policy %q: choose %s", name, strings.Join(PolicyNames(), ", "))
}

// Seeded returns the policy with another seed for its random terms.
func (p Policy) Seeded(seed uint64) Policy {
	for i, t := range p.Terms {
		if random, ok := t.(Random); ok {
			random.Seed = seed
			p.Terms[i] = random
		}
	}
	return p
}
