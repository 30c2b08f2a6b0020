package turns

import "testing"

// A share that lies of two or more does not set the rate by which the others' turns are as long as they are.
func TestOneLiarSetsNoRate(t *testing.T) {
	const honest = 10_000_000_000
	for lie, most := range map[uint64]uint64{leastRate: honest, MostRate: firstRate} {
		for count := 2; count <= 5; count++ {
			m := &machine{}
			n := m.number("GPU")
			tenants := map[string]*share{}
			for i := range count {
				tenants[string(rune('a'+i))] = &share{numbers: []int{n}, rates: []rate{{value: honest}}}
			}
			tenants["a"].rates[0].value = lie
			if m.measure(tenants); m.gpus[n].Rate < honest || m.gpus[n].Rate > most {
				t.Errorf("one of %d says %d: the rate is %d", count, lie, m.gpus[n].Rate)
			}
		}
	}
}
