package alloc

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// hostRefusal explains a refusal on one host, GPU by GPU.
func (inv *Inventory) hostRefusal(c *shape) *Refusal {
	n, r := &inv.nodes[0], &c.request
	var candidates []int
	for i := range n.GPUs {
		if r.names(&n.GPUs[i]) {
			candidates = append(candidates, i)
		}
	}
	if refusal := tooFew(r, len(candidates), len(n.GPUs)); refusal != nil {
		return refusal
	}
	_, cause := inv.arrange(c, 0)
	switch cause {
	case CauseHost, CauseHostCPU, CauseHostMemory, CauseNear:
		reason := ReasonFull
		if cause.never() {
			reason = ReasonNever
		}
		return refuse(reason, "this machine has %s", cause)
	}
	var misses []Miss
	shares := 1
	if r.Same {
		shares = max(1, r.Count)
	}
	for _, i := range candidates {
		if why := c.fits(n, i, &c.needs[0][i], shares); why != CauseNone {
			misses = append(misses, r.miss(&n.GPUs[i], why, &c.needs[0][i]))
		}
	}
	if len(misses) == 0 && cause == CauseNIC {
		return refuse(ReasonFull, "the request needs %d GPUs with a card each, and this machine has %s for one of them", r.Count, cause)
	}
	return summarise(misses, len(candidates)-len(misses), r)
}

// tooFew refuses a request that needs more GPUs than it may choose among, also if all are
// free; it returns nil for others.
func tooFew(r *Request, candidates, all int) *Refusal {
	enough := candidates > 0 && (r.Same || r.Count <= candidates)
	switch {
	case enough:
		return nil
	case candidates == 0 && r.Among != "":
		return refuse(ReasonUnknown, "GPU %s does not exist and this machine has GPUs 0 to %d: `divvy ls -o wide` shows their UUIDs",
			r.Among, all-1)
	case r.Among != "":
		return refuse(ReasonNever, "the request needs %d GPUs and may choose among %d", r.Count, candidates)
	}
	return refuse(ReasonNever, "the request needs %d GPUs and this machine has %d", r.Count, candidates)
}

// miss says why a share does not fit on a GPU.
func (r *Request) miss(g *GPU, cause Cause, need *need) Miss {
	m := Miss{Index: g.Index, UUID: g.UUID, Name: g.Name, Cause: cause, Tenants: g.Tenants, Form: g.Form, User: g.User, Fault: g.Fault}
	switch cause {
	case CauseProfile:
		m.MIG = r.missProfile(g)
	case CausePlacement:
		m.MIG = "has no room for a MIG instance " + r.Profile + ": " + g.room(need.mix.Model(), r.Profile)
	case CauseCores:
		m.Need, m.Free, m.All = uint64(r.Cores), uint64(g.FreeCores()), 100
	case CauseNoSwap, CauseSwapFull:
		m.Need, m.Free, m.All = r.swapMemory(g, cause)
	case CauseClients:
		m.Need, m.Free, m.All = 1, uint64(max(0, g.MostClients-g.Clients)), uint64(g.MostClients)
	case CauseContext:
		m.Need, m.Free, m.All = r.Memory.Of(g.Capacity), g.ContextBytes, g.Capacity
	default:
		m.Need, m.Free, m.All = r.Memory.Of(g.Capacity), g.FreeMemory(), g.Capacity
	}
	if r.Swap {
		m.Kept, _ = r.parts(r.Memory.Of(g.Capacity))
		limit := r.Memory.Of(g.Capacity)
		switch cause {
		case CauseMemory:
			m.Need, m.Most, m.KeptFits = r.Needs(g, limit), r.mostOn(g), r.keptFits(g, limit)
		case CauseCapacity:
			m.KeptFits = r.keptFits(&GPU{Capacity: g.Capacity, ContextBytes: g.ContextBytes}, limit)
		}
	}
	return m
}

// missProfile says what a GPU has of MIG that cannot have what the request asks for.
func (r *Request) missProfile(g *GPU) string {
	var names []string
	for _, p := range g.Profiles {
		names = append(names, p.Name)
	}
	switch {
	case len(names) == 0:
		return "is not in MIG mode"
	case r.Profile == "":
		return "is in MIG mode, where every share is in a MIG instance: ask for one by its profile, such as " + names[0] + ", or by backend mig"
	}
	return "has no MIG profile " + r.Profile + ": it has " + strings.Join(names, ", ")
}

// summarise explains a refusal by the GPUs that are the nearest miss: those that
// others keep full, unless too few GPUs could ever serve.
func summarise(misses []Miss, fitting int, r *Request) *Refusal {
	full := slices.DeleteFunc(slices.Clone(misses), func(m Miss) bool { return m.Cause.never() })
	never := slices.DeleteFunc(slices.Clone(misses), func(m Miss) bool { return !m.Cause.never() })
	if lacking := r.Count - fitting - len(full); len(never) > 0 && lacking > 0 {
		one := []Miss{nearest(never, lacking)}
		return &Refusal{Reason: ReasonNever, Text: describe(one), Misses: one}
	}
	text := describe(full)
	if r.Count > 1 {
		text = fmt.Sprintf("the request needs %d GPUs and %d %s room; %s", r.Count, fitting, plural(fitting, "has", "have"), text)
	}
	return &Refusal{Reason: ReasonFull, Text: text, Misses: full, Short: r.Count - fitting}
}

// nearest is the miss that says how much less would do, of GPUs that can never serve: of
// those that are too small the one of that place, from the largest on.
func nearest(never []Miss, place int) Miss {
	small := slices.DeleteFunc(slices.Clone(never), func(m Miss) bool { return m.Cause != CauseCapacity })
	if never[0].Cause != CauseCapacity {
		return never[0]
	}
	slices.SortStableFunc(small, func(x, y Miss) int { return cmp.Compare(y.All, x.All) })
	return small[min(place, len(small))-1]
}

// describe writes one sentence for each cause among the misses and, of GPUs without enough
// memory, for each size.
func describe(misses []Miss) string {
	var texts []string
	for len(misses) > 0 {
		same := func(m Miss) bool {
			return m.Cause == misses[0].Cause && m.Name == misses[0].Name && m.Fault == misses[0].Fault && m.Form == misses[0].Form && m.MIG == misses[0].MIG && m.User == misses[0].User && m.Need == misses[0].Need && m.Kept == misses[0].Kept &&
				(m.Cause != CauseMemory || m.All == misses[0].All)
		}
		var group []Miss
		for _, m := range misses {
			if same(m) {
				group = append(group, m)
			}
		}
		texts = append(texts, sentence(group))
		misses = slices.DeleteFunc(slices.Clone(misses), same)
	}
	return strings.Join(texts, "; ")
}

// sentence describes GPUs that miss for one cause.
func sentence(group []Miss) string {
	most := slices.MaxFunc(group, func(x, y Miss) int { return cmp.Compare(x.Free, y.Free) })
	gpus, has, at := describeGPUs(group), "has", ""
	switch {
	case len(group) == 1:
	case !slices.ContainsFunc(group, func(m Miss) bool { return m.Free != most.Free }):
		gpus = "each of " + gpus
	default:
		has, at = "have at most", fmt.Sprintf(" (GPU %d)", most.Index)
	}
	if text := most.ofSwap(gpus, has, at); text != "" {
		return text
	}
	switch most.Cause {
	case CauseCapacity:
		return fmt.Sprintf("memory %s is more than %s has for tenants: ask for at most %s", amount(most.Need), most.called(), amount(most.All))
	case CauseContext:
		return fmt.Sprintf("memory %s leaves nothing to allocate: the context of one process takes %s of %s: ask for more",
			amount(most.Need), amount(most.Free), most.called())
	case CauseMemory:
		left, need := distinct(most.Free, most.Need)
		return fmt.Sprintf("%s %s %s of %s not granted%s and the share needs %s", gpus, has, left, v1alpha1.RoundBytes(most.All), at, need)
	case CauseNoSwap, CauseSwapFull:
		return most.ofSwapMemory(group, gpus, has, at)
	case CauseCores:
		return fmt.Sprintf("%s %s %d of %d cores left to guarantee%s and the share needs %d", gpus, has, most.Free, most.All, at, most.Need)
	case CauseBusy:
		return fmt.Sprintf("%s %s tenants and the request needs a whole GPU", describeGPUs(group), plural(len(group), "has", "have"))
	case CauseForm:
		return fmt.Sprintf("%s %s shares of backend %s, and a GPU has shares of one backend at a time",
			describeGPUs(group), plural(len(group), "has", "have"), most.Form)
	case CauseUser:
		return fmt.Sprintf("%s %s shares of user %s, and a GPU of backend %s serves one user at a time",
			describeGPUs(group), plural(len(group), "has", "have"), most.User, most.Form)
	case CauseClients:
		return fmt.Sprintf("%s %s the %d programs that the driver lets share a GPU by %s",
			describeGPUs(group), plural(len(group), "has", "have"), most.All, most.Form)
	case CauseProfile, CausePlacement:
		return describeEach(group) + " " + most.MIG
	case CauseFault:
		return fmt.Sprintf("%s %s no new shares: %s", describeGPUs(group), plural(len(group), "takes", "take"), most.Fault)
	}
	return fmt.Sprintf("%s: %s", describeGPUs(group), most.Cause)
}

// distinct writes two amounts as lists do, and exactly where they would look the same.
func distinct(x, y uint64) (string, string) {
	if v1alpha1.RoundBytes(x) == v1alpha1.RoundBytes(y) {
		return amount(x), amount(y)
	}
	return v1alpha1.RoundBytes(x), v1alpha1.RoundBytes(y)
}

// called is how a text calls the GPU of a miss.
func (m *Miss) called() string { return describeGPUs([]Miss{*m}) }

// describeEach names GPUs of each of which the same is said.
func describeEach(group []Miss) string {
	if len(group) == 1 {
		return describeGPUs(group)
	}
	return "each of " + describeGPUs(group)
}

// describeGPUs names GPUs by their indexes: "GPU 3", "GPUs 0, 2 and 5", "GPUs 0 to 7".
func describeGPUs(group []Miss) string {
	if group[0].Name != "" {
		return group[0].Name
	}
	var indexes []int
	for _, m := range group {
		indexes = append(indexes, m.Index)
	}
	slices.Sort(indexes)
	last := len(indexes) - 1
	if last == 0 {
		return fmt.Sprintf("GPU %d", indexes[0])
	}
	if last > 1 && indexes[last]-indexes[0] == last {
		return fmt.Sprintf("GPUs %d to %d", indexes[0], indexes[last])
	}
	text := "GPUs "
	for i, index := range indexes {
		switch {
		case i == last:
			text += " and "
		case i > 0:
			text += ", "
		}
		text += strconv.Itoa(index)
	}
	return text
}

func plural(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}
