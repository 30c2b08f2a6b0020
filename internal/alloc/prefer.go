package alloc

import (
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// rank is how little a preference wants a GPU, from 0 to mostRank-1: its place among the models that are named, or among
// the capabilities of all GPUs that there are.
func (ks *kinds) rank(p v1alpha1.GPUPreference, g *GPU) uint8 {
	if p == "" {
		return 0
	}
	at, all := 0, 0
	switch p {
	case v1alpha1.PreferMostCapable, v1alpha1.PreferLeastCapable:
		at, _ = slices.BinarySearchFunc(ks.capabilities, capabilityOf(g), capability.compare)
		if all = len(ks.capabilities); p == v1alpha1.PreferMostCapable {
			at = all - 1 - at
		}
	default:
		names := p.Names()
		if at = slices.IndexFunc(names, func(name string) bool { return v1alpha1.ModelMatches(name, g.Model) }); at < 0 {
			at = len(names)
		}
	}
	// One is left for nodes without GPUs, see hostRank.
	return uint8(max(0, min(at, mostRank-2)))
}

// hostRank is how little a preference wants a node for a request without GPUs: nodes without GPUs first, then by the GPU
// of theirs that is wanted most.
func (ks *kinds) hostRank(p v1alpha1.GPUPreference, k *kind) uint8 {
	if p == "" || len(k.gpus) == 0 {
		return 0
	}
	least := uint8(mostRank)
	for i := range k.gpus {
		least = min(least, ks.rank(p, &k.gpus[i]))
	}
	return least + 1
}

// worst is the rank of the GPU of an arrangement that is wanted least.
func (c *shape) worst(kind int32, a *arrangement) (rank uint8) {
	if c.request.Count == 0 {
		return c.rank[kind]
	}
	for _, gpu := range a.gpus[:c.request.Count] {
		rank = max(rank, c.needs[kind][gpu].rank)
	}
	return rank
}

// best is the rank of the GPU of a kind that is wanted most.
func (c *shape) best(kind int32) uint8 {
	if c.request.Prefer == "" {
		return 0
	}
	rank := uint8(mostRank)
	for i := range c.needs[kind] {
		rank = min(rank, c.needs[kind][i].rank)
	}
	return rank
}

// ComputeOf is the compute capability of the GPUs of an architecture, as [Capability] has it, for those of which nothing
// else is known; 0 for an unknown one.
func ComputeOf(architecture string) int { return computes[architecture] }

var computes = map[string]int{
	"kepler": 300, "maxwell": 500, "pascal": 600, "volta": 700, "turing": 705, "ampere": 800, "ada": 809, "hopper": 900,
	"blackwell": 1000, "rubin": 1300,
}
