package ledger

import (
	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// isCard reports whether the device is an RDMA card that several claims share: one that pairs can have.
func (d *device) isCard() bool {
	form, _ := d.text(v1alpha1.AttributeForm)
	return form == v1alpha1.FormNIC && d.shared
}

// distances are the relations of a card to a GPU by the nearest kind of place in which both are.
var distances = []alloc.Relation{alloc.RelationSwitches, alloc.RelationHost, alloc.RelationNUMA, alloc.RelationSystem}

// cards are the node's RDMA cards with their relations to these GPUs, by pool and name. Each is told from the others by the name of its device;
// of two pools' cards of one name, the first counts.
func (n *node) cards(gpus []*gpu) (all []alloc.NIC) {
	seen := map[string]bool{}
	for _, p := range n.pools {
		for _, d := range p.cards {
			if seen[d.spec.Name] {
				continue
			}
			seen[d.spec.Name] = true
			one := alloc.NIC{Name: d.spec.Name, Slots: d.slots, Fault: d.fault}
			for _, g := range gpus {
				one.Near = append(one.Near, distances[dialect.Level(g.devices[0].spec, d.spec)])
			}
			all = append(all, one)
		}
	}
	return all
}

// nodeOf is the node of a pool: a pool bears its name.
func (l *Ledger) nodeOf(pool string) string {
	if p := l.pools[pool]; p != nil {
		return p.node
	}
	return pool
}
