package queue_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/queue/simulation"
)

// overload is three queues that always want more than there is, in pods and gangs of several sizes.
func overload(t *testing.T, random *rand.Rand, now time.Time) (*simulation.Cluster, func(queue string)) {
	t.Helper()
	var nodes []alloc.Node
	for i := range 8 {
		nodes = append(nodes, node(fmt.Sprint("n", i), 8))
	}
	policy, err := alloc.PolicyNamed("bestfit")
	if err != nil {
		t.Fatal(err)
	}
	c, err := simulation.New(nodes, policy, now)
	if err != nil {
		t.Fatal(err)
	}
	share := func(name string, guaranteed int64) queue.Spec {
		return queue.Spec{Name: name, QueueSpec: v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.AmountOf(guaranteed, v1alpha1.UnitGPUs)}}}}
	}
	c.SetQueues([]queue.Spec{share("a", 32000), share("b", 19000), share("c", 8000)})
	count := 0
	return c, func(name string) {
		count++
		gpus, size := 1<<random.IntN(4), 1
		if random.IntN(3) == 0 {
			gpus, size = min(gpus, 4), 2+random.IntN(3)
		}
		c.Arrive(simulation.Workload{
			ID: fmt.Sprintf("%s%05d", name, count), Queue: name, Quota: v1alpha1.QuotaBorrowing, Size: size, Minimum: size,
			Pod:    alloc.Pod{Claims: [][]alloc.Request{{{Count: gpus, Whole: true}}}},
			Charge: queue.Charge{Models: []string{model}, GPUs: int64(gpus) * 1000},
		})
	}
}

// Q7: in an hour of steady overload nobody ends for others but where demand has changed.
func TestSteadyOverloadEvictsNobody(t *testing.T) {
	unexplained, explained, settled := 0, 0, 0
	seeds := uint64(1)
	if os.Getenv("DIVVY_LONG") == "queues" {
		seeds = 5
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 7))
		now := time.Unix(1_000_000, 0)
		c, arrive := overload(t, random, now)
		for _, name := range []string{"a", "a", "b", "c"} { // a fills the cluster before the others come
			for range 20 {
				arrive(name)
			}
			c.Step(now)
		}
		for range 20 { // until those that had too much have given it back
			now = now.Add(15 * time.Second)
			c.Step(now)
		}
		if settled += c.Evicted; c.Evicted == 0 {
			t.Error("nobody gave anything back")
		}
		for end := now.Add(time.Hour); now.Before(end); {
			before := c.Evicted
			if ids := c.IDs(); random.IntN(3) == 0 {
				if id := ids[random.IntN(len(ids))]; c.Running(id) > 0 {
					c.End(id)
					arrive(id[:1])
				}
			}
			c.Step(now)
			explained += c.Evicted - before
			for range 6 {
				before = c.Evicted
				now = now.Add(10 * time.Second)
				c.Step(now)
				unexplained += c.Evicted - before
			}
		}
	}
	t.Logf("figure queue.thrash %d", unexplained)
	t.Logf("%d pods ended until all had their part, and %d where demand had changed", settled, explained)
	if unexplained > 0 {
		t.Errorf("%d pods ended though nothing had changed", unexplained)
	}
}
