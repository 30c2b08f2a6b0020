package v1alpha1

import (
	"fmt"
	"slices"
	"strings"
)

// PairReach says how far from its GPU the RDMA card of a pair may be. Whatever it is, a nearer card is taken where there is
// one.
type PairReach string

// The reaches, from near to far.
const (
	// ReachStrict is one PCIe switch, or several that need no host bridge between them.
	ReachStrict PairReach = "strict"
	// ReachBridge is one host bridge as well.
	ReachBridge PairReach = "bridge"
	// ReachSocket is one NUMA node as well.
	ReachSocket PairReach = "socket"
)

// PairReaches lists the reaches, from near to far.
func PairReaches() []PairReach { return []PairReach{ReachStrict, ReachBridge, ReachSocket} }

// Levels is how many kinds of places a reach allows, from 1; 0 for no reach.
func (r PairReach) Levels() int { return slices.Index(PairReaches(), r) + 1 }

// ParsePairReach reads a reach; left out it is [ReachStrict]. The error wraps [ErrRequest].
func ParsePairReach(text string) (PairReach, error) {
	reach := PairReach(text)
	switch {
	case text == "":
		return ReachStrict, nil
	case reach.Levels() == 0:
		return "", fmt.Errorf("%w: pairs fall back to %q: use %s", ErrRequest, text, reachWords())
	}
	return reach, nil
}

func reachWords() string {
	var words []string
	for _, r := range PairReaches() {
		words = append(words, string(r))
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// MostPairs is how many pairs one container can ask for: a claim of Kubernetes has 32 constraints, of which each pair takes
// one for each kind of place, and shares take one to be on different GPUs.
func MostPairs(reach PairReach) int { return min(16, 31/max(1, reach.Levels())) }
