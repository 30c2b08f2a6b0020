package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/replay"
)

// mix describes a list of pods that is drawn from a published one. Parts are in percent; -1 leaves a part as it is in the
// published list.
type mix struct {
	name, from string
	// held mixes are for the final measurement alone: whoever changes a policy looks at the others.
	held bool
	// seen held mixes were measured once before the policy was changed for the last time, for a reason that another mix gave.
	seen bool
	// shares and several are the parts of the GPU demand of pods with less than a GPU and with more than one.
	shares, several int
	// wishes is the part of the pods with GPUs that accept only some models, and models how many each of them accepts.
	wishes, models int
	// processors is what pods with GPUs ask for of them, compared with the published ones.
	processors int
	// hosts is the number of pods without GPUs for each with GPUs, compared with the published list.
	hosts int
	order order
	// seed is the first of the replays.
	seed int64
}

// order changes in which order pods arrive.
type order int

// The orders.
const (
	shuffled    order = iota
	bursts            // equal pods follow each other, in windows of burstWindow
	smallFirst        // in windows of sizeWindow, the smallest demand first
	sharesEarly       // pods with less than a GPU arrive earlier by a fifth of all arrivals, others later
)

const (
	burstWindow = 400
	sizeWindow  = 1500
)

var mixes = []mix{
	{name: "shares only", from: "default", shares: 100, several: 0, wishes: -1, processors: 100, hosts: 100, seed: 42},
	{name: "shares 70", from: "gpushare40", shares: 70, several: -1, wishes: -1, processors: 100, hosts: 100, seed: 42},
	{name: "several 30", from: "multigpu20", shares: -1, several: 30, wishes: -1, processors: 100, hosts: 100, seed: 42},
	{name: "wishes 25", from: "default", shares: -1, several: -1, wishes: 25, models: 1, processors: 100, hosts: 100, seed: 42},
	{name: "processors 150", from: "default", shares: -1, several: -1, wishes: -1, processors: 150, hosts: 100, seed: 42},
	{name: "hosts 250", from: "default", shares: -1, several: -1, wishes: -1, processors: 100, hosts: 250, seed: 42},
	{name: "bursts", from: "gpushare40", shares: -1, several: -1, wishes: -1, processors: 100, hosts: 100, order: bursts, seed: 1000},
	{name: "other seeds", from: "multigpu20", shares: -1, several: -1, wishes: -1, processors: 100, hosts: 100, seed: 2000},

	{name: "shares only, no hosts", from: "gpushare40", held: true, seen: true, shares: 100, several: 0, wishes: -1, processors: 100, hosts: 0, seed: 42},
	{name: "shares 85", from: "default", held: true, seen: true, shares: 85, several: -1, wishes: -1, processors: 100, hosts: 100, seed: 42},
	{name: "several 50", from: "default", held: true, seen: true, shares: -1, several: 50, wishes: -1, processors: 100, hosts: 100, seed: 42},
	{name: "wishes 40 of two", from: "multigpu20", held: true, seen: true, shares: -1, several: -1, wishes: 40, models: 2, processors: 100, hosts: 100, seed: 42},
	{name: "processors 200", from: "gpushare40", held: true, seen: true, shares: -1, several: -1, wishes: -1, processors: 200, hosts: 100, seed: 42},
	{name: "hosts 400", from: "default", held: true, seen: true, shares: -1, several: -1, wishes: -1, processors: 100, hosts: 400, seed: 42},
	{name: "shares early", from: "default", held: true, seen: true, shares: -1, several: -1, wishes: -1, processors: 100, hosts: 100, order: sharesEarly, seed: 3000},
	{name: "all together", from: "cpu050", held: true, seen: true, shares: 45, several: 25, wishes: 15, models: 1, processors: 125, hosts: 150, order: smallFirst, seed: 4000},
	{name: "wishes 30", from: "cpu050", held: true, shares: -1, several: -1, wishes: 30, models: 1, processors: 100, hosts: 100, seed: 5000},
	{name: "wishes 50 of three", from: "gpushare40", held: true, shares: -1, several: -1, wishes: 50, models: 3, processors: 100, hosts: 100, seed: 6000},
}

// mostProcessors bounds what a pod asks for each of its GPUs, in thousandths of a processor: a large node has as many.
const mostProcessors = 16_000

// pods draws the list. It depends on nothing but the mix and the published trace.
func (m *mix) pods(t *replay.Trace) []replay.Pod {
	random := rand.New(rand.NewPCG(0x6d6978, uint64(slices.IndexFunc(mixes, func(o mix) bool { return o.name == m.name }))))
	var hosts []replay.Pod
	var groups [3][]replay.Pod // shares, one GPU, several
	var demand [3]int64
	for _, p := range t.Pods {
		if p.Request.Count == 0 {
			hosts = append(hosts, p)
			continue
		}
		g := groupOf(&p)
		groups[g] = append(groups[g], p)
		demand[g] += p.Milli
	}
	published := len(t.Pods) - len(hosts)
	want := m.demand(demand)
	var drawn []replay.Pod
	for g, pods := range groups {
		for sum := int64(0); sum < want[g] && len(pods) > 0; {
			p := m.change(pods[random.IntN(len(pods))], t, random)
			drawn = append(drawn, p)
			sum += p.Milli
		}
	}
	for range len(drawn) * len(hosts) * m.hosts / (100 * published) {
		drawn = append(drawn, hosts[random.IntN(len(hosts))])
	}
	random.Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	for i := range drawn {
		drawn[i].Name = fmt.Sprintf("pod-%06d", i)
	}
	return drawn
}

func groupOf(p *replay.Pod) int {
	switch {
	case p.Request.Count > 1:
		return 2
	case p.Request.Whole:
		return 1
	}
	return 0
}

// demand divides the published demand anew.
func (m *mix) demand(of [3]int64) [3]int64 {
	all, rest := of[0]+of[1]+of[2], int64(100)
	set := [3]int64{int64(m.shares), -1, int64(m.several)}
	left := int64(0)
	for g, part := range set {
		if part >= 0 {
			rest -= part
		} else {
			left += of[g]
		}
	}
	for g, part := range set {
		if part >= 0 {
			of[g] = all * part / 100
		} else {
			of[g] = all * rest / 100 * of[g] / max(left, 1)
		}
	}
	return of
}

// change gives a pod other processors, and a wish for models.
func (m *mix) change(p replay.Pod, t *replay.Trace, random *rand.Rand) replay.Pod {
	r := &p.Request
	r.CPU = max(r.CPU, min(r.CPU*int64(m.processors)/100, mostProcessors*int64(r.Count)))
	if m.wishes < 0 {
		return p
	}
	r.Models = ""
	if random.IntN(100) >= m.wishes {
		return p
	}
	var names []string
	for tries := 0; len(names) < m.models && tries < 100; tries++ {
		if name := wish(r, t, random); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	r.Models = alloc.Names(strings.Join(names, "|"))
	return p
}

// wish is the model of a random GPU among those of nodes that can serve the request.
func wish(r *alloc.Request, t *replay.Trace, random *rand.Rand) string {
	for range 1000 {
		n := &t.Nodes[random.IntN(len(t.Nodes))]
		// A node with more GPUs is taken more often.
		if random.IntN(alloc.MaxGPUs) < len(n.GPUs) && len(n.GPUs) >= r.Count && n.CPU >= r.CPU && n.Memory >= r.HostMemory {
			return n.GPUs[0].Model
		}
	}
	return ""
}

// arrange puts arrivals in the order of the mix.
func (o order) arrange(pods []replay.Pod) {
	switch o {
	case bursts:
		for window := range slices.Chunk(pods, burstWindow) {
			slices.SortStableFunc(window, func(a, b replay.Pod) int {
				return cmp.Or(cmp.Compare(a.Milli, b.Milli), cmp.Compare(a.Request.CPU, b.Request.CPU), cmp.Compare(a.Request.Models, b.Request.Models))
			})
		}
	case smallFirst:
		for window := range slices.Chunk(pods, sizeWindow) {
			slices.SortStableFunc(window, func(a, b replay.Pod) int { return cmp.Compare(a.Milli, b.Milli) })
		}
	case sharesEarly:
		type place struct {
			pod replay.Pod
			at  int
		}
		places := make([]place, len(pods))
		for i, p := range pods {
			places[i] = place{p, i + len(pods)/5}
			if p.Request.Count > 0 && groupOf(&p) == 0 {
				places[i].at = i - len(pods)/5
			}
		}
		slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.at, b.at) })
		for i := range places {
			pods[i] = places[i].pod
		}
	case shuffled:
	}
}
