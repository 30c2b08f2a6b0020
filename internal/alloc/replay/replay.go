package replay

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Options say how a trace is replayed.
type Options struct {
	Policy string
	Seed   int64
	// Until is the demand to arrive, in percent of the GPU capacity.
	Until int
	// Order changes in which order the pods arrive; nil leaves the random one.
	Order func([]Pod)
	// Fragmentation is measured at every percent, which takes longer.
	Fragmentation bool
	// Clock tells the time for decisions per second; without it they are 0.
	Clock func() time.Time
	// Decided is called after each decision with the time it took.
	Decided func(time.Duration)
	// Progress is called with the percent that has arrived.
	Progress func(percent int)
}

// Point is the state of the cluster after some demand has arrived, in percent of
// the GPU capacity: means over the arrivals that round to Arrived.
type Point struct {
	Arrived    int     `json:"arrived_percent"`
	Allocated  float64 `json:"allocated_percent"`
	Fragmented float64 `json:"fragmented_percent"`
}

// Result is one replay.
type Result struct {
	Policy string `json:"policy"`
	Seed   int64  `json:"seed"`
	// Until is the demand that arrived, in percent of the GPU capacity, and AllocatedAtEnd what was allocated then.
	Until          int     `json:"until_percent"`
	AllocatedAtEnd float64 `json:"allocated_percent_at_end"`
	// AllocatedAt100 and AllocatedAt130 are left out where less arrived.
	AllocatedAt100 float64 `json:"allocated_percent_at_100,omitzero"`
	AllocatedAt130 float64 `json:"allocated_percent_at_130,omitzero"`
	PerSecond      float64 `json:"decisions_per_second"`
	Decisions      int     `json:"decisions"`
	Refused        int     `json:"refused"`
	Curve          []Point `json:"curve"`
}

// ErrOptions marks options with which no replay is possible.
var ErrOptions = errors.New("invalid options")

// MostUntil bounds the demand in percent of the capacity.
const MostUntil = 1000

// Arrivals follows the published procedure. It sorts the pods by name and shuffles
// them, adds independent samples until the demand is until percent of the capacity,
// and puts the nodes, sorted by name, in a random order. Go's math/rand gives the
// same sequence as in the published results.
func (t *Trace) Arrivals(seed int64, until int) (pods []Pod, nodes []alloc.Node, err error) {
	if until < 1 || until > MostUntil {
		return nil, nil, fmt.Errorf("%w: until %d %%: choose 1 to %d", ErrOptions, until, MostUntil)
	}
	sorted := slices.Clone(t.Pods)
	slices.SortFunc(sorted, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
	random := rand.New(rand.NewSource(seed))
	random.Int()
	pods = slices.Clone(sorted)
	random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	demand := int64(0)
	for i := range pods {
		demand += pods[i].Milli
	}
	capacity := int64(t.GPUs()) * 1000
	if capacity == 0 || demand == 0 {
		return nil, nil, fmt.Errorf("%w: the cluster has %d GPUs and the pods ask for %d thousandths of one", ErrOptions, capacity/1000, demand)
	}
	for demand*100 < capacity*int64(until) {
		pod := sorted[random.Intn(len(sorted))]
		pods = append(pods, pod)
		demand += pod.Milli
	}
	byName := make([]int, len(t.Nodes))
	for i := range byName {
		byName[i] = i
	}
	slices.SortFunc(byName, func(a, b int) int { return strings.Compare(t.Nodes[a].Name, t.Nodes[b].Name) })
	order := random.Perm(len(byName))
	for i := range order {
		order[i] = byName[order[i]]
	}
	return pods, t.clone(order), nil
}

// inventory makes the inventory of the nodes under a policy. The published policy
// fgd is told the workload beforehand; all others know nothing at the start.
func (t *Trace) inventory(policy string, seed int64, nodes []alloc.Node) (*alloc.Inventory, error) {
	p, err := alloc.PolicyNamed(policy)
	if err != nil {
		return nil, err
	}
	inventory, err := alloc.NewInventory(nodes, p.Seeded(uint64(seed)))
	if err == nil && policy == "fgd" {
		inventory.Know(t.requests())
	}
	return inventory, err
}

// Run replays arrivals without departures. A pod that fits nowhere is dropped.
func (t *Trace) Run(ctx context.Context, o Options) (Result, error) {
	pods, nodes, err := t.Arrivals(o.Seed, o.Until)
	if err != nil {
		return Result{}, err
	}
	if o.Order != nil {
		o.Order(pods)
	}
	inventory, err := t.inventory(o.Policy, o.Seed, nodes)
	if err != nil {
		return Result{}, err
	}
	r := run{trace: t, options: &o, inventory: inventory, capacity: int64(t.GPUs()) * 1000}
	if o.Fragmentation {
		r.target = inventory.Target(t.requests())
	}
	for i := range pods {
		if i&255 == 0 && ctx.Err() != nil {
			return Result{}, fmt.Errorf("replay: %w", ctx.Err())
		}
		if err := r.arrive(&pods[i]); err != nil {
			return Result{}, err
		}
	}
	return r.result(), nil
}

// run is the state of a replay.
type run struct {
	trace     *Trace
	options   *Options
	inventory *alloc.Inventory
	target    alloc.Target
	capacity  int64
	arrived   int64
	used      int64
	refused   int
	decisions int
	spent     time.Duration
	sums      []Point
	counts    []int
}

func (r *run) arrive(pod *Pod) error {
	r.arrived += pod.Milli
	assignment, err := r.decide(pod)
	if err != nil {
		return err
	}
	if assignment != nil {
		r.used += pod.Milli
	}
	percent := int((r.arrived*100 + r.capacity/2) / r.capacity)
	for len(r.sums) <= percent {
		r.sums = append(r.sums, Point{Arrived: len(r.sums)})
		r.counts = append(r.counts, 0)
		if r.options.Progress != nil {
			r.options.Progress(percent)
		}
		if r.options.Fragmentation {
			r.sums[len(r.sums)-1].Fragmented = float64(r.inventory.Fragmented(r.target)) * 100 / float64(r.capacity)
		}
	}
	r.sums[percent].Allocated += float64(r.used) * 100 / float64(r.capacity)
	r.counts[percent]++
	return nil
}

// decide places one pod. It returns nil if the pod fits nowhere.
func (r *run) decide(pod *Pod) (*alloc.Assignment, error) {
	var start time.Time
	if r.options.Clock != nil {
		start = r.options.Clock()
	}
	r.inventory.Observe(pod.Request)
	assignment, err := alloc.Search(r.inventory, pod.Request)
	if err == nil {
		err = r.inventory.Reserve(assignment)
	}
	if r.options.Clock != nil {
		took := r.options.Clock().Sub(start)
		r.spent += took
		if r.options.Decided != nil {
			r.options.Decided(took)
		}
	}
	r.decisions++
	var refusal *alloc.Refusal
	if errors.As(err, &refusal) {
		r.refused++
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("place pod %s: %w", pod.Name, err)
	}
	return &assignment, nil
}

func (r *run) result() Result {
	result := Result{Policy: r.options.Policy, Seed: r.options.Seed, Decisions: r.decisions, Refused: r.refused}
	for i, sum := range r.sums {
		if r.counts[i] == 0 {
			continue
		}
		sum.Allocated /= float64(r.counts[i])
		result.Curve = append(result.Curve, sum)
	}
	result.Until, result.AllocatedAtEnd = r.options.Until, result.At(r.options.Until)
	if result.Until >= 100 {
		result.AllocatedAt100 = result.At(100)
	}
	if result.Until >= 130 {
		result.AllocatedAt130 = result.At(130)
	}
	if r.spent > 0 {
		result.PerSecond = float64(r.decisions) / r.spent.Seconds()
	}
	return result
}

// At is what was allocated when that percent had arrived, or at the last point before, in percent of the GPU capacity.
func (r *Result) At(percent int) float64 {
	allocated := 0.0
	for _, p := range r.Curve {
		if p.Arrived <= percent {
			allocated = p.Allocated
		}
	}
	return allocated
}
