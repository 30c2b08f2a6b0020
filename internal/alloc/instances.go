package alloc

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

// Mixes has what was learnt of the MIG requests for each model of GPU. Inventories that are made one after the other of
// the same GPUs can share it, see [Inventory.Learn]. The zero value has learnt nothing. Only one goroutine at a time may
// use it.
type Mixes struct {
	by map[string]*layouts.Mix
	// kept is what was learnt of models that no GPU was seen of yet.
	kept map[string][]layouts.Arrival
}

// Learnt is what a [Mixes] learnt of one model of GPU.
type Learnt struct {
	// Model stands for the profiles of the GPUs: equal ones have equal names.
	Model string `json:"model"`
	// Arrivals are the latest requests, the oldest first.
	Arrivals []layouts.Arrival `json:"arrivals"`
}

// mostModels bounds of how many models something is kept.
const mostModels = 16

// Learnt is all that was learnt, for [MixesOf] of the next process.
func (m *Mixes) Learnt() (all []Learnt) {
	for id, mix := range m.by {
		if seen := mix.Seen(); len(seen) > 0 {
			all = append(all, Learnt{id, seen})
		}
	}
	for id, seen := range m.kept {
		all = append(all, Learnt{id, seen})
	}
	slices.SortFunc(all, func(x, y Learnt) int { return cmp.Compare(x.Model, y.Model) })
	return all
}

// MixesOf has what an earlier process learnt.
func MixesOf(all []Learnt) Mixes {
	m := Mixes{kept: map[string][]layouts.Arrival{}}
	for _, one := range all[:min(len(all), mostModels)] {
		m.kept[one.Model] = one.Arrivals
	}
	return m
}

// of is the mix for GPUs with these profiles.
func (m *Mixes) of(profiles []Profile) (*layouts.Mix, error) {
	sum := sha256.Sum256(fmt.Append(nil, profiles))
	id := hex.EncodeToString(sum[:8])
	if mix := m.by[id]; mix != nil {
		return mix, nil
	}
	model, err := layouts.NewModel(profiles)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInventory, err)
	}
	if m.by == nil {
		m.by = map[string]*layouts.Mix{}
	}
	m.by[id] = layouts.MixOf(model, m.kept[id])
	delete(m.kept, id)
	return m.by[id], nil
}

// Order lists all placements on GPUs with these profiles, whose instances make these layouts, in the order in which whoever
// takes the first that fits should find them.
func (m *Mixes) Order(profiles []Profile, held ...layouts.Layout) ([]layouts.Choice, error) {
	mix, err := m.of(profiles)
	if err != nil {
		return nil, err
	}
	return mix.Policy().Order(held...), nil
}

// Learn makes the inventory place MIG instances by what was learnt before, and learn on.
func (inv *Inventory) Learn(m *Mixes) error {
	for k := range inv.kinds.all {
		if err := inv.kinds.all[k].learn(m); err != nil {
			return err
		}
	}
	inv.mixes = m
	inv.remodel()
	return nil
}

// profile is the position of a profile, or -1.
func (g *GPU) profile(name string) int {
	return slices.IndexFunc(g.Profiles, func(p Profile) bool { return p.Name == name })
}

// blocked has a bit for each memory slice that something takes of which the model does not know.
func (g *GPU) blocked(m *layouts.Model) uint32 { return g.Slices &^ m.Slices(g.Instances) }

// room says which MIG instances a GPU could have besides those that are there, for one that has no room for a profile.
func (g *GPU) room(m *layouts.Model, profile string) string {
	var free []string
	for i, p := range m.Profiles() {
		if m.Fits(g.Instances, g.blocked(m), i) {
			free = append(free, p.Name)
		}
	}
	text := "it has room for no instance"
	if len(free) > 0 {
		text = "it has room for " + strings.Join(free, ", ")
	}
	more := make([]int, len(m.Profiles()))
	if at := m.Profile(profile); at >= 0 {
		for i, n := range m.Count(g.Instances) {
			more[i] = n
		}
		more[at]++
		if _, ok := m.Batch(0, more); ok && g.blocked(m) == 0 {
			text += ", and for " + profile + " only if a running instance moved, which none can"
		}
	}
	return text
}

// instance is the layout of a share's instance on a GPU of the node. It is 0 where the driver has no such placement, or
// where the instance does not fit beside those that are there.
func (inv *Inventory) instance(node, gpu int, share *Share) layouts.Layout {
	if gpu < 0 {
		return 0
	}
	mix := inv.kinds.all[inv.entries[node].state.kind].mixes[gpu]
	if mix == nil || share.Profile == "" {
		return 0
	}
	g, m := &inv.nodes[node].GPUs[gpu], mix.Model()
	one := m.Placed(m.Profile(share.Profile), share.Start)
	if g.Slices&m.Slices(one) != 0 || !m.Valid(g.Instances|one) {
		return 0
	}
	return one
}

// learn tells the mixes of a request for MIG instances and of what it finds.
func (inv *Inventory) learn(r *Request) {
	type found struct {
		held, gpus int
		fits       bool
	}
	at := map[*layouts.Mix]*found{}
	var order []*layouts.Mix
	for node := range inv.nodes {
		if inv.entries[node].absent {
			continue
		}
		kind := &inv.kinds.all[inv.entries[node].state.kind]
		for i := range kind.mixes {
			mix, g := kind.mixes[i], &inv.nodes[node].GPUs[i]
			if mix == nil || g.profile(r.Profile) < 0 || g.Fault != "" {
				continue
			}
			if at[mix] == nil {
				at[mix], order = &found{}, append(order, mix)
			}
			f, m := at[mix], mix.Model()
			f.gpus++
			f.held += g.Instances.Len()
			f.fits = f.fits || m.Fits(g.Instances, g.blocked(m), m.Profile(r.Profile))
		}
	}
	for _, mix := range order {
		f := at[mix]
		for range max(1, r.Count) {
			mix.Observe(layouts.Arrival{
				Profile: mix.Model().Profile(r.Profile), Held: int64(f.held) * 1000 / int64(f.gpus), Fitted: f.fits,
			})
		}
	}
}

// choose is the best place for an instance on a GPU of a node.
func (inv *Inventory) choose(c *shape, node, gpu int) (layouts.Choice, bool) {
	need, g := &c.needs[inv.entries[node].state.kind][gpu], &inv.nodes[node].GPUs[gpu]
	if need.mix == nil {
		return layouts.Choice{}, false
	}
	return need.mix.Policy().Choose(g.Instances, g.blocked(need.mix.Model()), need.profile)
}

// Cheapest is the position of the profile whose instance costs least on one host, at the place where a request would get
// it, or -1 where none fits. Of equal ones it is the first.
func (inv *Inventory) Cheapest(r Request, profiles []string) int {
	best, least := -1, int64(0)
	for i, name := range profiles {
		r.Profile = name
		c := inv.newShape(r)
		a, cause := inv.arrange(c, 0)
		if cause != CauseNone {
			continue
		}
		if choice, ok := inv.choose(c, 0, int(a.gpus[0])); ok && (best < 0 || choice.Cost < least) {
			best, least = i, choice.Cost
		}
	}
	return best
}

// cheapest puts GPUs of a node on which an instance fits in the order of what it costs there.
func (inv *Inventory) cheapest(c *shape, node int, gpus []uint8) {
	var cost [MaxGPUs]int64
	for _, gpu := range gpus {
		choice, _ := inv.choose(c, node, int(gpu))
		cost[gpu] = choice.Cost
	}
	slices.SortStableFunc(gpus, func(x, y uint8) int { return cmp.Compare(cost[x], cost[y]) })
}

const (
	// costBits is how many bits the cost of a MIG request has in a key, and costZero what no cost is.
	costBits = 36
	costZero = 1 << (costBits - 1)
)

// instanceKey is the key of an arrangement of MIG instances. What they cost decides, under every policy: what stays free
// on the host tells nothing of what instances fit later.
func (inv *Inventory) instanceKey(c *shape, node int, a *arrangement) uint64 {
	cost := int64(costZero)
	for _, gpu := range a.gpus[:c.request.Count] {
		choice, _ := inv.choose(c, node, int(gpu))
		cost += choice.Cost
	}
	return uint64(min(max(cost, 0), 1<<costBits-1))<<nodeBits | uint64(node)
}

// slices has a bit for each memory slice that the share's instance takes.
func (s *Share) slices(g *GPU) uint32 {
	p := g.profile(s.Profile)
	if p < 0 {
		return 0
	}
	return (uint32(1)<<g.Profiles[p].Size - 1) << s.Start
}

// placed is the layout of the share's instance, in the order of [layouts.Model.Placements].
func (s *Share) placed(g *GPU) layouts.Layout {
	before := 0
	for _, p := range g.Profiles {
		if at := slices.Index(p.Starts, s.Start); p.Name == s.Profile && at >= 0 {
			return 1 << (before + at)
		}
		before += len(p.Starts)
	}
	return 0
}
