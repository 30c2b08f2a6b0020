package main

import (
	"fmt"
	"math/bits"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

var machines = []struct{ file, name string }{
	{"a100-80gb", "A100"}, {"a30", "A30"}, {"h100-80gb", "H100"}, {"h200", "H200"}, {"b200", "B200"},
}

// layouts is mig.layouts: the part of all layouts that requests reach, each placed by the policy, where instances end in
// any order; and the part of all sets of instances that requests reach without an end.
func (b *bench) layouts() ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, machine := range machines {
		m, err := b.model(machine.file)
		if err != nil {
			return nil, err
		}
		policy := layouts.NewMix(m).Policy()
		all, sets := reach(m, policy, true), countsOf(m, m.Layouts())
		grown := countsOf(m, reach(m, policy, false))
		one := measurement.Of("mig.layouts", "%", 100, measurement.Higher, command, 100*float64(len(all))/float64(len(m.Layouts())))
		one.Case, one.Note = machine.name, fmt.Sprintf("%d layouts, with media extensions", len(m.Layouts()))
		two := measurement.Of("mig.layouts", "%", 100, measurement.Higher, command, 100*float64(len(grown))/float64(len(sets)))
		two.Case, two.Note = machine.name+", sets of instances without an end", fmt.Sprintf("%d sets", len(sets))
		rows = append(rows, one, two)
	}
	return rows, nil
}

// reach are the layouts that follow from the empty one by requests and, where they may, ends of instances.
func reach(m *layouts.Model, p *layouts.Policy, ends bool) []layouts.Layout {
	seen, found := map[layouts.Layout]bool{0: true}, []layouts.Layout{0}
	add := func(l layouts.Layout) {
		if !seen[l] {
			seen[l], found = true, append(found, l)
		}
	}
	for i := 0; i < len(found); i++ {
		l := found[i]
		for profile := range m.Profiles() {
			if c, ok := p.Choose(l, 0, profile); ok {
				add(l | m.Placed(profile, c.Start))
			}
		}
		for rest := l; ends && rest != 0; rest &= rest - 1 {
			add(l &^ (1 << bits.TrailingZeros64(uint64(rest))))
		}
	}
	return found
}

// countsOf are the sets of instances that layouts have.
func countsOf(m *layouts.Model, layouts []layouts.Layout) map[string]bool {
	sets := map[string]bool{}
	for _, l := range layouts {
		sets[fmt.Sprint(m.Count(l))] = true
	}
	return sets
}
