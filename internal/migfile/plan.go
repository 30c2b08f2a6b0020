package migfile

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// ErrLayout marks a layout that a GPU cannot have.
var ErrLayout = errors.New("the GPU cannot have this MIG layout")

// Instance is an instance that a GPU has.
type Instance struct {
	// UUID is that of its MIG device, or another name for messages.
	UUID string
	// Profile is its name, and Start its first memory slice.
	Profile string
	Start   int
	// Fixed is why it has to stay where it is, such as "in use by pid 7", empty for one that may be taken away.
	Fixed string
	// Half is true for one that no program can use and that has to stay. It has its place, and counts as none of those that
	// are wanted.
	Half bool
}

// Plan is what has to be done for a GPU to have a layout: first everything of Remove ends, then Add is made.
type Plan struct {
	Remove []Instance
	Add    []layouts.Placement
}

// Empty reports whether the GPU has the layout already.
func (p Plan) Empty() bool { return len(p.Remove) == 0 && len(p.Add) == 0 }

// PlanFor works out the fewest changes after which a GPU has just the wanted instances, by profile. Instances that are
// fixed stay; the others may be taken away, also to be made anew elsewhere.
func PlanFor(m *layouts.Model, have []Instance, want map[string]int) (Plan, error) {
	count := make([]int, len(m.Profiles()))
	for _, name := range slices.Sorted(maps.Keys(want)) {
		at := m.Profile(name)
		if at < 0 {
			return Plan{}, fmt.Errorf("%w: it has no profile %s: it has %s", ErrLayout, name, names(m))
		}
		count[at] = want[name]
	}
	total := slices.Clone(count) // with those that no program can use
	var fixed, all layouts.Layout
	for _, i := range have {
		at := m.Profile(i.Profile)
		if at < 0 || m.Placed(at, i.Start) == 0 {
			return Plan{}, fmt.Errorf("%w: instance %s, %s at memory slice %d, is none that the driver offers", ErrLayout, i.UUID, i.Profile, i.Start)
		}
		all |= m.Placed(at, i.Start)
		if i.Fixed != "" || i.Half {
			fixed |= m.Placed(at, i.Start)
		}
		if i.Half {
			total[at]++
		}
	}
	best, found := nearest(m, fixed, all, total)
	if !found {
		return Plan{}, refusal(m, have, fixed, count, total)
	}
	return changes(m, have, all, best), nil
}

// nearest is the layout with so many instances that keeps what is fixed, and most of the rest.
func nearest(m *layouts.Model, fixed, all layouts.Layout, count []int) (best layouts.Layout, found bool) {
	for _, l := range m.Layouts() {
		if l&fixed != fixed || !slices.Equal(m.Count(l), count) {
			continue
		}
		if !found || bits.OnesCount64(uint64(l&all)) > bits.OnesCount64(uint64(best&all)) {
			best, found = l, true
		}
	}
	return best, found
}

// changes lead from what a GPU has to a layout.
func changes(m *layouts.Model, have []Instance, all, to layouts.Layout) (p Plan) {
	for _, i := range have {
		if to&m.Placed(m.Profile(i.Profile), i.Start) == 0 {
			p.Remove = append(p.Remove, i)
		}
	}
	for _, placement := range m.Placements() {
		if bit := m.Placed(placement.Profile, placement.Start); to&bit != 0 && all&bit == 0 {
			p.Add = append(p.Add, placement)
		}
	}
	return p
}

// text names an instance that has to stay. One that is half made has no UUID.
func (i Instance) text() string {
	if i.UUID == "" {
		return fmt.Sprintf("%s at memory slice %d (%s)", i.Profile, i.Start, i.Fixed)
	}
	return fmt.Sprintf("%s (%s at memory slice %d, %s)", i.UUID, i.Profile, i.Start, i.Fixed)
}

// refusal says what is in the way.
func refusal(m *layouts.Model, have []Instance, fixed layouts.Layout, count, total []int) error {
	if _, found := nearest(m, 0, 0, count); !found {
		return fmt.Errorf("%w: so many instances do not fit together", ErrLayout)
	}
	var stay []string
	for _, i := range have {
		if i.Fixed != "" {
			stay = append(stay, i.text())
		}
	}
	for profile, n := range m.Count(fixed) {
		if more := n - total[profile]; more > 0 {
			return fmt.Errorf("%w: it has %d of %s that have to stay, and the layout has %d: %s", ErrLayout, count[profile]+more, m.Profiles()[profile].Name, count[profile], strings.Join(stay, ", "))
		}
	}
	return fmt.Errorf("%w: it fits only if instances move that have to stay: %s", ErrLayout, strings.Join(stay, ", "))
}

func names(m *layouts.Model) string {
	var all []string
	for _, p := range m.Profiles() {
		all = append(all, p.Name)
	}
	return strings.Join(all, ", ")
}
