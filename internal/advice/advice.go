// Package advice proposes memory and cores for workloads from what their shares did, and replays
// a machine or cluster with them. It is pure.
package advice

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/history"
)

// Sureness says how much is known of a workload.
type Sureness string

// How sure a proposal is.
const (
	Little Sureness = "little" // less than any below
	Some   Sureness = "some"   // at least two runs and two hours
	Much   Sureness = "much"   // at least five runs and twenty hours
)

// Workload is what is proposed for together: all shares of an owner with one command or, where
// that is not known, one name.
type Workload struct {
	Owner string `json:"owner"`
	What  string `json:"what"`
}

// Proposal is what a share of a workload should be granted of each GPU. Amounts are bytes and percent.
type Proposal struct {
	Workload
	// Runs is how many shares were seen, and Hours for how long together.
	Runs  int     `json:"runs"`
	Hours float64 `json:"hours"`
	// Granted and GrantedCores are the most that was granted, and Peak the most memory that was used.
	Granted      uint64 `json:"grantedBytes"`
	GrantedCores int    `json:"grantedCores"`
	Peak         uint64 `json:"peakBytes"`
	// Wanted is how much of a GPU's time was used or waited for while the share was held back, in percent: 95 % of the time
	// no more. It is nil where no GPU time was measured.
	Wanted  *float64 `json:"wantedPercent,omitempty"`
	Refused uint64   `json:"refused"`
	// Memory and Cores are proposed. Cores are those that were granted where Wanted is nil, and those of weighted shares that
	// had enough of what they wanted.
	Memory uint64   `json:"memoryBytes"`
	Cores  int      `json:"cores"`
	Sure   Sureness `json:"sure"`
	// Notes say what else decided, in sentences.
	Notes []string `json:"notes,omitempty"`
}

// The margin beyond the peak. What the driver takes for contexts and modules changes with its version, and what
// allocators of frameworks keep from run to run; both are some hundred MiB, and grow with what is used.
const (
	marginPercent = 10
	leastMargin   = 512 << 20
	memoryStep    = 256 << 20
	coresStep     = 5
	// percentile of time in which the proposed cores suffice.
	percentile = 0.95
	// enoughPart is the part of the GPU time that a weighted share wanted with which it needs no guaranteed cores, in percent.
	// Shares that want all of a GPU wait for each other; four of equal weight have so much.
	enoughPart = 25
)

// stay is one share on all its GPUs, from its start to its end.
type stay struct {
	Workload
	node     string
	from, to time.Time
	ended    bool
	gpus     map[string]bool
	granted  uint64
	cores    int
	peak     uint64
	whole    bool
	backend  string
	refused  uint64
	wall     time.Duration
	capacity uint64 // the least of its GPUs, 0 where not known
	rates    []rate
	weighted bool
	// used and held are sums over the records that rates are of, in ns.
	used, held uint64
}

// rate is how busy a share was for a time.
type rate struct {
	percent float64
	weight  uint64 // ns
}

// stays puts records together to shares, in the order in which they began. Records of many shares are left out: nobody
// knows when each of them was there.
func stays(records []history.Record) []*stay {
	capacity := map[string]uint64{}
	newest := map[string]time.Time{}
	for i := range records {
		r := &records[i]
		for _, g := range r.GPUs {
			capacity[g.UUID] = g.Capacity
		}
		if r.At.After(newest[r.Node]) {
			newest[r.Node] = r.At
		}
	}
	by := map[history.Key]*stay{}
	var all []*stay
	for i := range records {
		r := &records[i]
		if r.Kind != history.KindHour && r.Kind != history.KindEnd {
			continue
		}
		key := r.Key()
		key.UUID = ""
		s := by[key]
		if s == nil {
			s = &stay{Workload: workloadOf(r), node: r.Node, from: r.From, to: r.At, gpus: map[string]bool{}, backend: r.Backend, weighted: true}
			by[key] = s
			all = append(all, s)
		}
		s.add(r, capacity[r.UUID])
	}
	const silence = 2 * time.Hour // a share without an end that was not recorded for so long ended with its machine
	for _, s := range all {
		s.ended = s.ended || newest[s.node].Sub(s.to) > silence
	}
	slices.SortStableFunc(all, func(a, b *stay) int { return a.from.Compare(b.from) })
	return all
}

func workloadOf(r *history.Record) Workload {
	return Workload{r.Owner(), cmp.Or(history.Workload(r.Command), r.Name)}
}

func (s *stay) add(r *history.Record, capacity uint64) {
	if r.From.Before(s.from) {
		s.from = r.From
	}
	if r.At.After(s.to) {
		s.to = r.At
	}
	s.gpus[r.UUID] = true
	s.ended = s.ended || r.Kind == history.KindEnd
	s.granted, s.cores, s.peak = max(s.granted, r.Granted), max(s.cores, r.Cores), max(s.peak, r.Peak)
	s.whole, s.refused = s.whole || r.Whole, s.refused+r.Refused
	s.weighted = s.weighted && r.Policy == string(v1alpha1.PolicyWeighted)
	s.wall = max(s.wall, s.to.Sub(s.from))
	if capacity > 0 && (s.capacity == 0 || capacity < s.capacity) {
		s.capacity = capacity
	}
	if wall := r.Wall(); wall > 0 && r.Used+r.Held > 0 {
		s.rates = append(s.rates, rate{min(100*float64(r.Used+r.Held)/float64(wall), 100), wall})
		s.used, s.held = s.used+r.Used, s.held+r.Held
	}
}

// Propose makes a proposal for each workload, in the order of their owners and names. The memory is never less than
// what a share of it has used.
func Propose(records []history.Record) []Proposal {
	of := map[Workload][]*stay{}
	for _, s := range stays(records) {
		of[s.Workload] = append(of[s.Workload], s)
	}
	all := make([]Proposal, 0, len(of))
	for w, some := range of {
		all = append(all, propose(w, some))
	}
	slices.SortFunc(all, func(a, b Proposal) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.What, b.What))
	})
	return all
}

func propose(w Workload, some []*stay) Proposal {
	p := Proposal{Workload: w, Runs: len(some)}
	capacity, whole := uint64(0), false
	for _, s := range some {
		p.Hours += s.wall.Hours()
		p.Granted, p.GrantedCores, p.Peak = max(p.Granted, s.granted), max(p.GrantedCores, s.cores), max(p.Peak, s.peak)
		p.Refused += s.refused
		capacity, whole = max(capacity, s.capacity), whole || s.whole
	}
	p.Memory, p.Cores = p.Granted, p.GrantedCores
	switch {
	case p.Peak == 0:
		p.note("it used no memory of a GPU that anybody saw: the memory that was granted stays")
	case p.Refused > 0:
		p.Memory = max(withMargin(p.Peak), p.Granted)
		p.note("allocations of it were refused, so it can need more than its peak: no less than was granted is proposed")
	default:
		p.Memory = withMargin(p.Peak)
	}
	if capacity > 0 {
		p.Memory = max(min(p.Memory, capacity), p.Peak)
	}
	p.proposeCores(some)
	if whole {
		p.note("it had whole GPUs, which it would share")
	}
	switch {
	case p.Runs >= 5 && p.Hours >= 20:
		p.Sure = Much
	case p.Runs >= 2 && p.Hours >= 2:
		p.Sure = Some
	default:
		p.Sure = Little
	}
	return p
}

// proposeCores proposes cores for shares. What nobody guaranteed to shares that divide a GPU by weight stays so while they
// have enough: guaranteed cores keep others away from the GPU.
func (p *Proposal) proposeCores(some []*stay) {
	var rates []rate
	weighted, used, held := true, uint64(0), uint64(0)
	for _, s := range some {
		rates = append(rates, s.rates...)
		weighted, used, held = weighted && s.weighted, used+s.used, held+s.held
	}
	wanted, ok := high(rates)
	if !ok {
		p.note("its GPU time was not measured: the cores that were granted stay")
		return
	}
	p.Wanted = &wanted
	part := 100 * float64(used) / (float64(used) + float64(held))
	if weighted && part >= enoughPart {
		if held > 0 {
			p.note(fmt.Sprintf("it had %.0f%% of the GPU time that it wanted, by its weight: it needs no guaranteed cores", part))
		}
		return
	}
	p.Cores = min(100, max(1, int(math.Ceil(wanted/coresStep))*coresStep))
	if weighted {
		p.note(fmt.Sprintf("it had %.0f%% of the GPU time that it wanted: it needs guaranteed cores or a larger weight", part))
	}
}

func (p *Proposal) note(text string) { p.Notes = append(p.Notes, text) }

// withMargin is a limit for a peak, in steps.
func withMargin(peak uint64) uint64 {
	return (peak + max(leastMargin, peak/100*marginPercent) + memoryStep - 1) / memoryStep * memoryStep
}

// high is the rate that is not exceeded for most of the time; ok is false without any.
func high(rates []rate) (percent float64, ok bool) {
	slices.SortFunc(rates, func(a, b rate) int { return cmp.Compare(a.percent, b.percent) })
	sum, passed := 0.0, 0.0
	for _, r := range rates {
		sum += float64(r.weight)
	}
	for _, r := range rates {
		if passed += float64(r.weight); passed >= percentile*sum {
			return r.percent, true
		}
	}
	return 0, false
}
