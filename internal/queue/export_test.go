package queue

import (
	"fmt"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// What tests of other packages in this folder need.
var (
	CheckShares = checkShares
	RandomSpecs = randomSpecs
)

// Recounted reports whether all sums are those that follow from the workloads alone.
func Recounted(b *Book) bool {
	sums := func() string {
		for d := range b.shares {
			b.current(d)
		}
		text := ""
		for d := range b.shares {
			text += fmt.Sprint(b.used[d], b.assured[d], b.occupied[d], b.demand[d], b.shares[d].entitled)
		}
		return text + fmt.Sprint(b.running, b.many)
	}
	before := sums()
	b.recount()
	return before == sums()
}

// StandingOf is where a queue stands.
func (b *Book) StandingOf(n Node, d int) v1alpha1.QueueUse { return b.standing(n, d) }

// Lends is how much of its idle guarantee a queue lends.
func (t *Tree) Lends(n Node, d int) int64 { return t.nodes[n].quotas[d].lends }
