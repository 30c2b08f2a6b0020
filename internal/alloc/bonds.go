package alloc

import (
	"fmt"
	"math/bits"
)

// Location says where in its node a GPU is: GPUs with the same number are in one place of that kind. 0 is unknown.
type Location struct {
	NUMA, Root, Switch, Clique uint16
}

// Places is a set of kinds of places.
type Places uint8

// The kinds of places.
const (
	PlaceNUMA   Places = 1 << iota // a NUMA node
	PlaceRoot                      // a PCIe host bridge
	PlaceSwitch                    // a PCIe switch, or several that need no host bridge between them
	PlaceClique                    // GPUs that all reach each other by NVLink
	PlaceGPU                       // the GPU itself
	allPlaces   = PlaceGPU<<1 - 1
)

// known reports whether all of these places of a GPU are known.
func (n *Node) known(gpu int, kinds Places) bool {
	p := &n.GPUs[gpu].Location
	return (kinds&PlaceNUMA == 0 || p.NUMA != 0) && (kinds&PlaceRoot == 0 || p.Root != 0) &&
		(kinds&PlaceSwitch == 0 || p.Switch != 0) && (kinds&PlaceClique == 0 || p.Clique != 0)
}

// together reports whether two GPUs, whose places are known, are in one place of each of these kinds.
func (n *Node) together(a, b int, kinds Places) bool {
	p, q := &n.GPUs[a].Location, &n.GPUs[b].Location
	return (kinds&PlaceNUMA == 0 || p.NUMA == q.NUMA) && (kinds&PlaceRoot == 0 || p.Root == q.Root) &&
		(kinds&PlaceSwitch == 0 || p.Switch == q.Switch) && (kinds&PlaceClique == 0 || p.Clique == q.Clique) && (kinds&PlaceGPU == 0 || a == b)
}

// Bond is what several claims of a pod have in common.
type Bond struct {
	// Claims has a bit for the position of each of these claims in [Pod.Claims].
	Claims uint32
	// Together puts all their GPUs into one place of each of these kinds. What keeps the GPUs of a single claim together
	// is [Request.Together].
	Together Places
	// Apart gives no GPU to two of the claims.
	Apart bool
}

// validate returns what is wrong with a bond of a pod with so many claims.
func (b *Bond) validate(claims int) error {
	if bits.Len32(b.Claims) > claims || b.Together > allPlaces {
		return fmt.Errorf("%w: a bond of claims %b and places %b in a pod of %d claims", ErrRequest, b.Claims, b.Together, claims)
	}
	return nil
}

// barred has a bit for each GPU that the pod's bonds keep from a claim, because of what claims before it got.
func (z *puzzle) barred(claim int) (set uint32) {
	n := &z.inv.nodes[z.node]
	for i := range z.pod.bonds {
		b := &z.pod.bonds[i]
		if b.Claims&(1<<claim) == 0 {
			continue
		}
		for k := range z.shares {
			s := &z.shares[k]
			if b.Claims&(1<<s.Claim) == 0 {
				continue
			}
			for gpu := range n.GPUs {
				if b.Apart && gpu == s.GPU || !n.together(gpu, s.GPU, b.Together) {
					set |= 1 << gpu
				}
			}
		}
	}
	return set
}
