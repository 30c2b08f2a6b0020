package workload

import (
	"slices"

	"github.com/divvy-gpu/divvy/internal/queue"
)

// held is what a workload counts with: what its members have that do not end for others, and what is kept for it.
func (s *Set) held(w *work) []queue.Charge {
	all := slices.Clone(w.kept)
	if w.claim != "" && !s.claims[w.claim].Away {
		all = append(all, s.claims[w.claim].Charges...)
	}
	for _, p := range w.members {
		if p.released {
			continue
		}
		for key := range p.claims {
			if c := s.claims[key]; !c.Away {
				all = append(all, c.Charges...)
			}
		}
	}
	return merged(all)
}

// asleep is what members of a workload have that are suspended, or are about to be.
func (s *Set) asleep(w *work) (all []queue.Charge) {
	for _, p := range w.members {
		if p.ends() {
			continue
		}
		for key := range p.claims {
			if c := s.claims[key]; c.Away || p.sleeps {
				all = append(all, c.Charges...)
			}
		}
	}
	return all
}

// asks is what a workload wants: of a gang, for as many members as must run together.
func (s *Set) asks(w *work, held []queue.Charge) []queue.Charge {
	held = append(s.asleep(w), held...)
	if w.gang == "" {
		if p := w.first(); p != nil && len(held) == 0 && !p.ends() {
			return p.asks
		}
		return merged(held)
	}
	members := w.sorted()
	_, need, _ := s.gangs.Gang(members[0].Pod)
	all := slices.Clone(held)
	for _, p := range members {
		if len(p.claims) > 0 || p.Spec.NodeName != "" {
			need--
		}
	}
	if len(w.kept) > 0 {
		need = 0
	}
	for _, p := range members {
		if need > 0 && len(p.claims) == 0 && p.Spec.NodeName == "" && !p.ends() {
			all = append(all, p.asks...)
			need--
		}
	}
	if need > 0 { // it is not complete
		return merged(held)
	}
	return merged(all)
}
