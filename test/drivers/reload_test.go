package drivers

import (
	"fmt"
	"testing"
)

// Loading and unloading leaves no more behind in a share than it does with the driver alone.
func TestReloadingLeavesNothing(t *testing.T) {
	for _, p := range pairs(t) {
		for _, r := range Reloads {
			t.Run(fmt.Sprintf("%s/%s, %d threads", p.Version, r.Function, r.Threads), func(t *testing.T) {
				native, err := p.Grow(t.Context(), r, p.Alone)
				must(t, err)
				for _, place := range []Place{p.Env, p.Covered} {
					share, err := p.Grow(t.Context(), r, place)
					must(t, err)
					if share.Beyond(native) {
						t.Errorf("%s: in %d rounds %+v, natively %+v", place.Name, r.Rounds, share, native)
					}
				}
			})
		}
	}
}

func TestGrowthBeyondAnother(t *testing.T) {
	rounds := 900
	for name, g := range map[string]Growth{
		"a mapping": {Mappings: rounds}, "a descriptor": {Descriptors: 1}, "a thread": {Threads: 1},
		"20 bytes": {Heap: 20 * rounds}, "a page of a mapping that stays": {Resident: 4096 * rounds},
	} {
		if !g.Beyond(Growth{}) {
			t.Errorf("%s in each round is not seen", name)
		}
		if g.Beyond(g) {
			t.Errorf("%s in each round, natively as well, is told", name)
		}
	}
}
