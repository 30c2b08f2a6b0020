package replay

import (
	"context"
	"errors"
	"fmt"
	"math/rand"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// ChurnOptions say how arrivals and departures alternate.
type ChurnOptions struct {
	Policy string
	Seed   int64
	// Load is the demand that is kept up, in percent of the GPU capacity.
	Load int
	// Events is the number of arrivals and departures together.
	Events   int
	Progress func(percent int)
	// Curve has the result say what was fragmented over the whole run, which takes longer.
	Curve bool
}

// ChurnResult is one run of arrivals and departures.
type ChurnResult struct {
	Policy string `json:"policy"`
	Seed   int64  `json:"seed"`
	Load   int    `json:"load_percent"`
	Events int    `json:"events"`
	// Fragmented is the free capacity that the trace's requests for GPUs cannot
	// use, in percent of the GPU capacity: the mean over the second half of the run.
	Fragmented float64 `json:"fragmented_percent"`
	Arrivals   int     `json:"arrivals"`
	Refused    int     `json:"refused"`
	// Curve is there where the options ask for it.
	Curve []ChurnPoint `json:"curve,omitempty"`
}

// ChurnPoint is the state of the cluster after so many arrivals and departures.
type ChurnPoint struct {
	Events int `json:"events"`
	// Fragmented is the free capacity that the trace's requests cannot use, in percent of the GPU capacity.
	Fragmented float64 `json:"fragmented_percent"`
}

// churnPoints is about how many points a curve has.
const churnPoints = 200

// measureEvery is how many events lie between two measurements under churn.
const measureEvery = 100

// Churn replays random arrivals of the trace's pods, and random departures while
// the demand is at the load. A pod that was refused departs like the others, so the
// events depend on the seed alone and policies can be compared.
func (t *Trace) Churn(ctx context.Context, o ChurnOptions) (ChurnResult, error) {
	if o.Load < 1 || o.Load > MostUntil || o.Events < 1 {
		return ChurnResult{}, fmt.Errorf("%w: load %d %%, %d events: both must be positive and the load at most %d", ErrOptions, o.Load, o.Events, MostUntil)
	}
	if len(t.Pods) == 0 {
		return ChurnResult{}, fmt.Errorf("%w: there are no pods", ErrOptions)
	}
	_, nodes, err := t.Arrivals(o.Seed, 1)
	if err != nil {
		return ChurnResult{}, err
	}
	inventory, err := t.inventory(o.Policy, o.Seed, nodes)
	if err != nil {
		return ChurnResult{}, err
	}
	c := churn{
		trace: t, inventory: inventory, random: rand.New(rand.NewSource(o.Seed)),
		target:   inventory.Target(t.requests()),
		capacity: int64(t.GPUs()) * 1000,
		result:   ChurnResult{Policy: o.Policy, Seed: o.Seed, Load: o.Load, Events: o.Events},
	}
	err = c.run(ctx, o)
	return c.result, err
}

type churn struct {
	trace     *Trace
	inventory *alloc.Inventory
	target    alloc.Target
	random    *rand.Rand
	capacity  int64
	demand    int64
	present   []guest
	result    ChurnResult
}

// guest is a pod that has arrived; one that was refused has no assignment.
type guest struct {
	milli int64
	place *alloc.Assignment
}

func (c *churn) run(ctx context.Context, o ChurnOptions) error {
	sum, samples := int64(0), int64(0)
	step := max(1, o.Events/churnPoints)
	for event := range o.Events {
		if event&255 == 0 && ctx.Err() != nil {
			return fmt.Errorf("replay: %w", ctx.Err())
		}
		if c.demand*100 < c.capacity*int64(o.Load) || len(c.present) == 0 {
			if err := c.arrive(); err != nil {
				return err
			}
		} else {
			c.depart()
		}
		if event >= o.Events/2 && event%measureEvery == 0 {
			sum += c.inventory.Fragmented(c.target)
			samples++
		}
		if o.Curve && event%step == 0 {
			c.result.Curve = append(c.result.Curve, ChurnPoint{event, float64(c.inventory.Fragmented(c.target)) * 100 / float64(c.capacity)})
		}
		if o.Progress != nil && event*100/o.Events != (event+1)*100/o.Events {
			o.Progress((event + 1) * 100 / o.Events)
		}
	}
	c.result.Fragmented = float64(sum) * 100 / float64(max(samples, 1)*c.capacity)
	return nil
}

func (c *churn) arrive() error {
	pod := &c.trace.Pods[c.random.Intn(len(c.trace.Pods))]
	guest := guest{milli: pod.Milli}
	c.demand += pod.Milli
	c.result.Arrivals++
	c.inventory.Observe(pod.Request)
	place, err := alloc.Search(c.inventory, pod.Request)
	var refusal *alloc.Refusal
	switch {
	case errors.As(err, &refusal):
		c.result.Refused++
	case err != nil:
		return fmt.Errorf("place pod %s: %w", pod.Name, err)
	default:
		if err := c.inventory.Reserve(place); err != nil {
			return fmt.Errorf("place pod %s: %w", pod.Name, err)
		}
		guest.place = &place
	}
	c.present = append(c.present, guest)
	return nil
}

func (c *churn) depart() {
	i, last := c.random.Intn(len(c.present)), len(c.present)-1
	guest := c.present[i]
	c.present[i] = c.present[last]
	c.present = c.present[:last]
	c.demand -= guest.milli
	if guest.place != nil {
		c.inventory.Release(*guest.place)
	}
}
