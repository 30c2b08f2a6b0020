package ledger

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// division is how a GPU in MIG mode is divided, or can be.
type division struct {
	profiles []layouts.Profile
	// taken has a bit for each memory slice on which nothing can be placed.
	taken uint32
	// left is what there is of each counter for devices that take some, and takes what each of them takes.
	left  layouts.Amounts
	takes map[*device]layouts.Amounts
	// sick are instances that only those can use who have them already, with their memory slices.
	sick map[*device]uint32
}

// spot is a device with the memory slices that it takes.
type spot struct {
	*device
	mask  uint32
	takes layouts.Amounts
	// stays tells that the device takes no counters: it is an instance that is there.
	stays bool
	// apart tells that the device can never be allocated, though its memory slices may be free.
	apart bool
}

// counters are what a pool has for its devices, by set and name.
type counters map[string]map[string]int64

func (c counters) add(sets []resourcev1.CounterSet) {
	for _, set := range sets {
		if c[set.Name] == nil {
			c[set.Name] = map[string]int64{}
		}
		for name, counter := range set.Counters {
			c[set.Name][name] = bounded(counter.Value.Value())
		}
	}
}

// divide works out how a GPU's instances lie. Its error says what is wrong with what was published.
func (g *gpu) divide(has counters) (*division, error) {
	var spots []spot
	dynamic := false
	for _, d := range g.devices {
		if d.profile == "" {
			return nil, fmt.Errorf("it is published as a whole and as MIG instances")
		}
		s, err := d.spot(has)
		if err != nil {
			return nil, err
		}
		dynamic = dynamic || !s.stays
		spots = append(spots, s)
	}
	made := &division{takes: map[*device]layouts.Amounts{}, sick: map[*device]uint32{}}
	top := 0
	if dynamic {
		top = made.count(spots, has)
	}
	if err := made.group(spots, top); err != nil {
		return nil, err
	}
	for _, s := range spots {
		if !s.stays {
			made.takes[s.device] = s.takes
		}
		if s.fault != "" {
			made.sick[s.device] = s.mask
		}
	}
	return made, nil
}

// spot reads which memory slices and engines a device takes.
func (d *device) spot(has counters) (spot, error) {
	s := spot{device: d, stays: len(d.spec.ConsumesCounters) == 0}
	if d.start >= layouts.MaxSlices {
		return s, fmt.Errorf("MIG instance %s lies outside the memory slices", d.spec.Name)
	}
	s.mask = 1 << d.start
	if s.stays {
		return s, nil
	}
	s.mask = 0
	for _, use := range d.spec.ConsumesCounters {
		for name, counter := range use.Counters {
			left, known := has[use.CounterSet][name]
			n := bounded(counter.Value.Value())
			engine, slice, ok := dra.ParseCounter(name)
			switch {
			case !known || !ok || n > math.MaxUint8 || engine < 0 && n > 1:
				return s, fmt.Errorf("device %s takes %d of a counter %s", d.spec.Name, n, name)
			case n == 0:
			case engine < 0:
				s.mask |= 1 << slice
			default:
				s.takes[engine] = uint8(n)
				s.apart = s.apart || n > left
			}
		}
	}
	size := bits.OnesCount32(s.mask)
	if size == 0 || s.mask != uint32(1<<size-1)<<d.start {
		return s, fmt.Errorf("MIG instance %s does not take memory slices from %d on", d.spec.Name, d.start)
	}
	return s, nil
}

// count reads what the counters of a GPU's devices leave, and marks what can never be allocated. It returns how many memory
// slices there are.
func (v *division) count(spots []spot, has counters) (top int) {
	sizes, sets := map[string]int{}, map[string]bool{}
	for i := range spots {
		if s := &spots[i]; !s.stays {
			sizes[s.profile] = max(sizes[s.profile], bits.OnesCount32(s.mask))
			top = max(top, bits.Len32(s.mask))
			for _, use := range s.spec.ConsumesCounters {
				sets[use.CounterSet] = true
			}
		}
	}
	for set := range sets {
		for name, n := range has[set] {
			switch engine, slice, ok := dra.ParseCounter(name); {
			case !ok:
			case engine < 0:
				top = max(top, slice+1)
				if n == 0 {
					v.taken |= 1 << slice
				}
			default:
				v.left[engine] = uint8(min(n, math.MaxUint8))
			}
		}
	}
	staying := uint32(0)
	for i := range spots {
		if s := &spots[i]; s.stays {
			size := min(max(sizes[s.profile], 1), layouts.MaxSlices-s.start)
			s.mask = uint32(1<<size-1) << s.start
			top = max(top, bits.Len32(s.mask))
			staying |= s.mask
		}
	}
	v.taken &^= staying
	for i := range spots {
		if s := &spots[i]; !s.stays {
			s.apart = s.apart || s.mask&staying != 0
		}
	}
	return top
}

// group makes the profiles of the devices. A profile of which no device can be allocated keeps one place, above the slices
// that there are, so that the allocator knows the profile and what the GPU has of engines.
func (v *division) group(spots []spot, top int) error {
	slices.SortFunc(spots, func(a, b spot) int {
		return cmp.Or(cmp.Compare(bits.OnesCount32(a.mask), bits.OnesCount32(b.mask)), strings.Compare(a.profile, b.profile), cmp.Compare(a.start, b.start))
	})
	at, barred := map[string]int{}, uint32(0)
	for _, s := range spots {
		size := bits.OnesCount32(s.mask)
		k, known := at[s.profile]
		if !known {
			k = len(v.profiles)
			at[s.profile] = k
			v.profiles = append(v.profiles, layouts.Profile{Name: s.profile, Size: size, Takes: s.takes})
		}
		p := &v.profiles[k]
		switch {
		case p.Size != size || !s.stays && p.Takes != s.takes && p.Takes != (layouts.Amounts{}):
			return fmt.Errorf("its MIG instances %s are of different sizes", s.profile)
		case slices.Contains(p.Starts, s.start):
			return fmt.Errorf("two MIG instances %s begin at memory slice %d", s.profile, s.start)
		case !s.stays:
			p.Takes = s.takes
		}
		if !s.apart {
			p.Starts = append(p.Starts, s.start)
		}
	}
	v.profiles = slices.DeleteFunc(v.profiles, func(p layouts.Profile) bool { return len(p.Starts) == 0 && top+p.Size > layouts.MaxSlices })
	for i := range v.profiles {
		if p := &v.profiles[i]; len(p.Starts) == 0 {
			p.Starts = []int{top}
			barred |= uint32(1<<p.Size-1) << top
		}
	}
	v.taken |= barred
	if len(v.profiles) == 0 {
		return fmt.Errorf("none of its MIG instances can be given")
	}
	return nil
}

// enginesLast reports whether the engines that are left suffice for an instance beside those that are there.
func (g *gpu) enginesLast(there *alloc.GPU, s *alloc.Share) bool {
	if g.division == nil {
		return true
	}
	one := g.device(s)
	var sum [len(layouts.Amounts{})]int
	for d, takes := range g.division.takes {
		if d != one && !g.placed(there.Instances, d) {
			continue
		}
		for c, amount := range takes {
			if sum[c] += int(amount); sum[c] > int(g.division.left[c]) {
				return false
			}
		}
	}
	return true
}

// placed reports whether a device's instance is in a layout, in the order of [layouts.Model.Placements].
func (g *gpu) placed(there layouts.Layout, d *device) bool {
	before := 0
	for _, p := range g.division.profiles {
		if at := slices.Index(p.Starts, d.start); p.Name == d.profile && at >= 0 {
			return there>>(before+at)&1 == 1
		}
		before += len(p.Starts)
	}
	return false
}

// model checks profiles as the inventory will. What it said of the same profiles before is remembered, because to enumerate
// layouts takes milliseconds.
func (s *sorts) model(profiles []layouts.Profile) error {
	id := fmt.Sprint(profiles)
	err, known := s.models[id]
	if !known {
		if len(s.models) >= mostModels {
			clear(s.models)
		}
		if _, err = layouts.NewModel(profiles); err != nil {
			err = fmt.Errorf("its MIG instances allow too many layouts: %w", err)
		}
		s.models[id] = err
	}
	return err
}

// mostModels bounds the sets of profiles that are remembered.
const mostModels = 1024
