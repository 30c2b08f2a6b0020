package advice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/history"
)

// Outcome is a replay of shares on the machines that are named in records.
type Outcome struct {
	// Machines, GPUs and Shares are how many there were.
	Machines int `json:"machines"`
	GPUs     int `json:"gpus"`
	Shares   int `json:"shares"`
	// Needed is how many GPUs had a share at once at the most, and Free the rest, which were whole all the time.
	Needed int `json:"needed"`
	Free   int `json:"free"`
	// Unplaced is how many shares found no place when they came.
	Unplaced int `json:"unplaced"`
}

// nodes are the machines of records with their GPUs, also with those that a share was on and no record of a machine has.
func nodes(records []history.Record) []alloc.Node {
	of := map[string]map[string]alloc.GPU{}
	put := func(node string, g alloc.GPU, known bool) {
		if of[node] == nil {
			of[node] = map[string]alloc.GPU{}
		}
		if before, there := of[node][g.UUID]; !there || known || g.Capacity > before.Capacity && before.Model == "" {
			of[node][g.UUID] = g
		}
	}
	for i := range records {
		r := &records[i]
		for _, g := range r.GPUs {
			put(r.Node, alloc.GPU{UUID: g.UUID, Index: g.Index, Model: cmp.Or(g.Model, "GPU"), Capacity: g.Capacity}, true)
		}
	}
	for i := range records {
		if r := &records[i]; r.UUID != "" {
			put(r.Node, alloc.GPU{UUID: r.UUID, Index: r.GPU, Capacity: max(r.Granted, r.Peak)}, false)
		}
	}
	all := make([]alloc.Node, 0, len(of))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		gpus := slices.SortedFunc(maps.Values(of[name]), func(a, b alloc.GPU) int { return cmp.Or(a.Index-b.Index, cmp.Compare(a.UUID, b.UUID)) })
		all = append(all, alloc.Node{Name: name, GPUs: gpus[:min(len(gpus), alloc.MaxGPUs)]})
	}
	return all
}

// step is a share that comes or goes.
type step struct {
	at    time.Time
	comes bool
	share int
}

// mostWork bounds machines times arrivals and ends: each arrival looks at every machine.
const mostWork = 200_000_000

// ErrWork is the error for records of more machines and shares than a replay is made of.
var ErrWork = errors.New("too many machines and shares to replay")

// Replay runs the shares of records through the allocator, with the arrivals and ends that they had, on the machines that the
// records name. Nil proposals replay what was granted. The errors are [ErrWork], and that of ctx
// when it is done.
func Replay(ctx context.Context, records []history.Record, proposals []Proposal) (Outcome, error) {
	policy, err := alloc.PolicyNamed("bestfit")
	if err != nil {
		return Outcome{}, err
	}
	machines, all := nodes(records), stays(records)
	o := Outcome{Machines: len(machines), Shares: len(all)}
	for i := range machines {
		o.GPUs += len(machines[i].GPUs)
	}
	arrivals := steps(all)
	if len(machines)*len(arrivals) > mostWork {
		return o, fmt.Errorf("%w: %d machines times %d arrivals and ends, at most %d: give --since or fewer files", ErrWork, len(machines), len(arrivals), mostWork)
	}
	inventory, err := alloc.NewInventory(machines, policy)
	if err != nil {
		return o, fmt.Errorf("replay: %w", err)
	}
	proposed := map[Workload]*Proposal{}
	for i := range proposals {
		proposed[proposals[i].Workload] = &proposals[i]
	}
	placed := make([]*alloc.Assignment, len(all))
	tenants, used := map[[2]int]int{}, 0 // by node and GPU
	for _, s := range arrivals {
		if err := ctx.Err(); err != nil {
			return o, fmt.Errorf("replay: %w", err)
		}
		if !s.comes {
			if a := placed[s.share]; a != nil {
				inventory.Release(*a)
				used -= count(tenants, a, -1)
			}
			continue
		}
		a, err := alloc.Search(inventory, all[s.share].request(proposed[all[s.share].Workload]))
		var refusal *alloc.Refusal
		switch {
		case errors.As(err, &refusal):
			o.Unplaced++
			continue
		case err == nil:
			err = inventory.Reserve(a)
		}
		if err != nil {
			return o, fmt.Errorf("replay: place a share of %s: %w", all[s.share].Owner, err)
		}
		placed[s.share] = &a
		used += count(tenants, &a, 1)
		o.Needed = max(o.Needed, used)
	}
	o.Free = o.GPUs - o.Needed
	return o, nil
}

// count adds to the shares of the GPUs of an assignment, and returns how many of these have become used or free.
func count(tenants map[[2]int]int, a *alloc.Assignment, by int) (changed int) {
	for _, s := range a.Shares {
		at := [2]int{a.Node, s.GPU}
		before := tenants[at]
		tenants[at] += by
		if before == 0 || tenants[at] == 0 {
			changed++
		}
	}
	return changed
}

// steps are the arrivals and ends in order. What ends makes room for what comes at the same time.
func steps(all []*stay) []step {
	var steps []step
	for i, s := range all {
		steps = append(steps, step{s.from, true, i})
		if s.ended {
			end := s.to
			if !end.After(s.from) {
				end = s.from.Add(time.Nanosecond)
			}
			steps = append(steps, step{end, false, i})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int {
		if d := a.at.Compare(b.at); d != 0 || a.comes == b.comes {
			return d
		}
		if b.comes {
			return -1
		}
		return 1
	})
	return steps
}

// request is what a share asks for: what it was granted, or what is proposed. A MIG instance stays what it is.
func (s *stay) request(p *Proposal) alloc.Request {
	r := alloc.Request{Count: min(len(s.gpus), alloc.MaxGPUs), Memory: v1alpha1.Bytes(s.granted), Cores: s.cores, Whole: s.whole, Form: s.backend}
	if p != nil && s.backend != string(v1alpha1.BackendMIG) {
		r.Memory, r.Cores, r.Whole = v1alpha1.Bytes(p.Memory), p.Cores, false
	}
	return r
}
