package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
	"github.com/divvy-gpu/divvy/internal/queue/simulation"
)

// Two departments have four of eight GPUs each, and a uses all. When b asks for four, it has them once the grace is over, a
// keeps exactly four, and nobody else ends.
func TestFourOfEightComeBack(t *testing.T) {
	for _, c := range []struct{ pods, quarters, members int }{{8, 4, 1}, {16, 2, 1}, {16, 2, 4}, {8, 4, 4}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			now := time.Unix(1_000_000, 0)
			policy, err := alloc.PolicyNamed("spread")
			if err != nil {
				t.Fatal(err)
			}
			cluster, err := simulation.New([]alloc.Node{node("n0", 4), node("n1", 4)}, policy, now)
			if err != nil {
				t.Fatal(err)
			}
			four := v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.Written("4")}}}
			cluster.SetQueues([]queue.Spec{{Name: "a", QueueSpec: four}, {Name: "b", QueueSpec: four}})
			arrive := func(name string, i, quarters, size int) {
				cluster.Arrive(simulation.Workload{
					ID: fmt.Sprintf("%s%02d", name, i), Queue: name, Quota: v1alpha1.QuotaBorrowing, Size: size, Minimum: size,
					Pod:    alloc.Pod{Claims: [][]alloc.Request{{{Count: 1, Memory: v1alpha1.Percent(uint8(25 * quarters))}}}},
					Charge: queue.Charge{Models: []string{model}, GPUs: int64(quarters) * 250},
				})
			}
			running := func(name string, most int) (n int) {
				for i := range most {
					n += cluster.Running(fmt.Sprintf("%s%02d", name, i))
				}
				return n
			}
			for i := range c.pods {
				arrive("a", i, c.quarters, 1)
			}
			cluster.Step(now)
			if n := running("a", c.pods); n != c.pods {
				t.Fatalf("%d of %d pods of a run", n, c.pods)
			}
			for i := range 4 / c.members {
				arrive("b", i, 4, c.members)
			}
			cluster.Step(now)
			now = now.Add(v1alpha1.DefaultGrace)
			cluster.Step(now)
			if b, a := running("b", 4), running("a", c.pods); b != 4 || a != c.pods/2 || cluster.Evicted != c.pods/2 {
				t.Errorf("%d pods of b and %d of a run, %d ended", b, a, cluster.Evicted)
			}
		})
	}
}
