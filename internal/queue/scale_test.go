package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// BenchmarkDecision is an arrival, the first in order, its start and an end, with 1,000 queues and 20,000 workloads.
func BenchmarkDecision(b *testing.B) {
	for _, queues := range []int{50, 1000} {
		b.Run(fmt.Sprint(queues, " queues"), func(b *testing.B) {
			var specs []Spec
			for i := range queues {
				s := Spec{Name: fmt.Sprintf("q%04d", i), QueueSpec: v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.AmountOf(8000, v1alpha1.UnitGPUs)}, {Model: "H100", Unit: v1alpha1.UnitMemory, Guaranteed: v1alpha1.AmountOf(800_000, v1alpha1.UnitMemory)}}}}
				if i >= 10 {
					s.Parent = fmt.Sprintf("q%04d", i%10)
				}
				specs = append(specs, s)
			}
			book := NewBook()
			book.SetQueues(specs)
			book.SetCapacity([]Charge{{Models: []string{"H100"}, GPUs: 8_000_000, Memory: 640_000_000}})
			one := []Charge{{Models: []string{"H100"}, GPUs: 1000, Memory: 80_000}}
			for i := range 20_000 {
				id := fmt.Sprint("w", i)
				book.Arrive(Workload{ID: id, Queue: specs[i%queues].Name, Since: time.Unix(int64(i), 0), Asks: one})
				if i%3 == 0 {
					book.Hold(id, one)
				}
			}
			i := 20_000
			for b.Loop() {
				book.Arrive(Workload{ID: fmt.Sprint("w", i), Queue: specs[i%queues].Name, Since: time.Unix(int64(i), 0), Asks: one})
				for id := range book.Order() {
					_ = book.Start(id, one)
					book.End(id)
					break
				}
				i++
			}
		})
	}
}
