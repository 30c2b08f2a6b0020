package ledger

import (
	"cmp"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// Instances is [Ledger.Serving] for MIG instances, and for places where one can be made, by their profiles: those with less
// memory come first, of equal ones those with fewer cores. A GPU serves with a profile if all its instances of that profile
// satisfy the expressions, because the allocator chooses among them.
func (l *Ledger) Instances(expressions []string) (all []demand.Instances) {
	type amounts struct{ memory, cores int64 }
	least := map[string]amounts{}
	for _, v := range l.sorts.varieties {
		if v.profile == "" {
			continue
		}
		has := amounts{v.amount(v1alpha1.CapacityMemory), v.amount(v1alpha1.CapacityCores)}
		before, known := least[v.profile]
		if !known || has.memory < before.memory || has.memory == before.memory && has.cores < before.cores {
			least[v.profile] = has
		}
	}
	for profile := range least {
		classes, among, any := l.serving(profile, expressions)
		if any {
			all = append(all, demand.Instances{Profile: profile, Classes: classes, Among: among})
		}
	}
	slices.SortFunc(all, func(a, b demand.Instances) int {
		x, y := least[a.Profile], least[b.Profile]
		return cmp.Or(cmp.Compare(x.memory, y.memory), cmp.Compare(x.cores, y.cores), strings.Compare(a.Profile, b.Profile))
	})
	return all
}

// amount is what a device of the variety has of a capacity.
func (v *variety) amount(name resourcev1.QualifiedName) int64 {
	c := v.sample.Capacity[name]
	return bounded(c.Value.Value())
}
