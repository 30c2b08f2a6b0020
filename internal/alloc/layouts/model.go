// Package layouts places MIG instances on a GPU. Instances cannot move, so what fits later depends on where each one
// begins. A GPU has few layouts, 723 with seven compute slices, and so the best place for each request can be computed
// exactly for a mix of requests: [Model] enumerates the layouts, [Mix] learns what is asked for, and [Policy] places by it.
//
// The package is pure and knows no GPU by name: profiles and placements are what the driver told. All arithmetic is on
// integers, so equal inputs give equal answers on every machine.
package layouts

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Counter is something of a GPU that instances share out among them, beside memory slices.
type Counter int

// The counters, each with the driver's own count of them.
const (
	ComputeSlices Counter = iota
	CopyEngines
	Decoders
	Encoders
	JPEGEngines
	FlowEngines // optical flow, OFA
	counters
)

// Amounts has a number for each counter.
type Amounts [counters]uint8

// Profile is a kind of instance that a GPU can have.
type Profile struct {
	// Name is the driver's, such as "1g.10gb".
	Name string
	// Size is how many memory slices an instance takes.
	Size int
	// Starts are the memory slices, 0 to 31, at which an instance may begin.
	Starts []int
	// Takes is what an instance takes of each counter. The GPU has as many of each as the profile that takes most.
	Takes Amounts
}

// Bounds of a model.
const (
	// MaxSlices is how many memory slices a GPU may have.
	MaxSlices = 32
	// MaxPlacements is how many placements its profiles may have in all.
	MaxPlacements = 64
	// MaxLayouts is how many layouts they may allow. Those that are known allow 2,419 at most.
	MaxLayouts = 1 << 14
)

// ErrModel marks profiles that contradict themselves or allow too many layouts.
var ErrModel = errors.New("invalid MIG profiles")

// Placement is a profile, by its position, at a memory slice.
type Placement struct{ Profile, Start int }

// Layout is a set of placements of a model: a bit for each, in the order of [Model.Placements].
type Layout uint64

// Model is what instances a GPU can have together. It does not change once it is made.
type Model struct {
	profiles   []Profile
	placements []Placement
	masks      []uint32 // of the placements: their memory slices
	first      []int    // by profile, the position of its first placement; one more at the end
	slices     int
	most       int // instances at the same time
	has        Amounts
	layouts    []Layout
	position   map[Layout]int32
	next       []int32   // by layout and placement: the layout after it is added, or -1
	ends       [][]int32 // by layout: those after the end of each of its instances
	roomiest   *Policy
}

// NewModel makes the model of a GPU with these profiles, in the driver's order. It enumerates the layouts, which takes
// some milliseconds.
func NewModel(profiles []Profile) (*Model, error) {
	m := &Model{profiles: slices.Clone(profiles), position: map[Layout]int32{}}
	names := map[string]bool{}
	for i, p := range profiles {
		switch {
		case p.Name == "" || names[p.Name]:
			return nil, fmt.Errorf("%w: two profiles are named %q, or one has no name", ErrModel, p.Name)
		case p.Size < 1 || len(p.Starts) == 0 || slices.Min(p.Starts) < 0 || slices.Max(p.Starts)+p.Size > MaxSlices:
			return nil, fmt.Errorf("%w: profile %q lies outside memory slices 0 to %d", ErrModel, p.Name, MaxSlices-1)
		}
		names[p.Name] = true
		m.first = append(m.first, len(m.placements))
		for _, start := range p.Starts {
			m.placements = append(m.placements, Placement{Profile: i, Start: start})
			m.masks = append(m.masks, (uint32(1)<<p.Size-1)<<start)
			m.slices = max(m.slices, start+p.Size)
		}
		for c, n := range p.Takes {
			m.has[c] = max(m.has[c], n)
		}
	}
	m.first = append(m.first, len(m.placements))
	if len(m.placements) == 0 || len(m.placements) > MaxPlacements {
		return nil, fmt.Errorf("%w: they have %d placements, and 1 to %d are possible", ErrModel, len(m.placements), MaxPlacements)
	}
	if !m.enumerate(0, 0, 0, Amounts{}) {
		return nil, fmt.Errorf("%w: they allow more than %d layouts", ErrModel, MaxLayouts)
	}
	m.link()
	m.roomiest = m.makeRoomiest()
	return m, nil
}

// enumerate adds the layouts that extend one by placements from a position on. It reports false for too many.
func (m *Model) enumerate(from int, l Layout, used uint32, taken Amounts) bool {
	if len(m.layouts) == MaxLayouts {
		return false
	}
	m.layouts = append(m.layouts, l)
	m.most = max(m.most, bits.OnesCount64(uint64(l)))
	for i := from; i < len(m.placements); i++ {
		sum, ok := m.sum(taken, m.placements[i].Profile)
		if used&m.masks[i] == 0 && ok && !m.enumerate(i+1, l|1<<i, used|m.masks[i], sum) {
			return false
		}
	}
	return true
}

// sum adds what a profile takes, and reports whether the GPU has as much.
func (m *Model) sum(taken Amounts, profile int) (Amounts, bool) {
	for c, n := range m.profiles[profile].Takes {
		if int(taken[c])+int(n) > int(m.has[c]) {
			return taken, false
		}
		taken[c] += n
	}
	return taken, true
}

// link finds the layout that follows when a placement is added to another.
func (m *Model) link() {
	for i, l := range m.layouts {
		m.position[l] = int32(i)
	}
	m.next = make([]int32, len(m.layouts)*len(m.placements))
	for i, l := range m.layouts {
		for p := range m.placements {
			after, ok := m.position[l|1<<p]
			if !ok || l&(1<<p) != 0 {
				after = -1
			}
			m.next[i*len(m.placements)+p] = after
		}
	}
	m.ends = make([][]int32, len(m.layouts))
	for i, l := range m.layouts {
		for rest := l; rest != 0; rest &= rest - 1 {
			m.ends[i] = append(m.ends[i], m.position[l&^(rest&-rest)])
		}
	}
}

// Profiles are the profiles of the model, in the driver's order; do not change them.
func (m *Model) Profiles() []Profile { return m.profiles }

// Placements are all placements, those of a profile together; do not change them.
func (m *Model) Placements() []Placement { return m.placements }

// Layouts are all sets of placements that can be there together, the empty one first; do not change them.
func (m *Model) Layouts() []Layout { return m.layouts }

// Profile is the position of a profile by name, or -1.
func (m *Model) Profile(name string) int {
	return slices.IndexFunc(m.profiles, func(p Profile) bool { return p.Name == name })
}

// Placed is the layout of one instance: a profile that begins at a memory slice. It is 0 for a placement that the
// driver does not have.
func (m *Model) Placed(profile, start int) Layout {
	if profile < 0 || profile >= len(m.profiles) {
		return 0
	}
	for i := m.first[profile]; i < m.first[profile+1]; i++ {
		if m.placements[i].Start == start {
			return 1 << i
		}
	}
	return 0
}

// Slices has a bit for each memory slice that a layout takes.
func (m *Model) Slices(l Layout) (used uint32) {
	for ; l != 0; l &= l - 1 {
		if i := bits.TrailingZeros64(uint64(l)); i < len(m.masks) {
			used |= m.masks[i]
		}
	}
	return used
}

// Valid reports whether the instances of a layout can be there together.
func (m *Model) Valid(l Layout) bool {
	_, ok := m.position[l]
	return ok
}

// Fits reports whether an instance of a profile can be added to a layout where blocked has a bit for each memory slice
// that something else takes.
func (m *Model) Fits(l Layout, blocked uint32, profile int) bool {
	at, known := m.position[l]
	if !known || profile < 0 || profile >= len(m.profiles) {
		return false
	}
	for i := m.first[profile]; i < m.first[profile+1]; i++ {
		if m.next[int(at)*len(m.placements)+i] >= 0 && blocked&m.masks[i] == 0 {
			return true
		}
	}
	return false
}

// Len is how many instances a layout has.
func (l Layout) Len() int { return bits.OnesCount64(uint64(l)) }

// Count is how many instances of each profile a layout has.
func (m *Model) Count(l Layout) []int {
	count := make([]int, len(m.profiles))
	for ; l != 0; l &= l - 1 {
		count[m.placements[bits.TrailingZeros64(uint64(l))].Profile]++
	}
	return count
}

// Batch finds a layout that has all instances of another and count more of each profile, in the order of the profiles.
// Of several it takes the first that was enumerated. It reports false where they do not fit together.
func (m *Model) Batch(from Layout, count []int) (Layout, bool) {
	want := m.Count(from)
	for i, n := range count {
		want[i] += n
	}
	for _, l := range m.layouts {
		if l&from == from && slices.Equal(m.Count(l), want) {
			return l, true
		}
	}
	return 0, false
}
