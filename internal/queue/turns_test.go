package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Turns come in the order of the book, whatever happens in between: the first is the first of [Book.Order] that has a turn.
func TestTurnsAreInOrder(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // to be repeated
		book := NewBook()
		turns := NewTurns(book)
		book.SetCapacity([]Charge{{GPUs: 20_000}})
		specs := randomSpecs(random, 6, false)
		book.SetQueues(specs)
		has := map[string]bool{}
		for step := range 80 {
			id := fmt.Sprint("w", random.IntN(12))
			switch random.IntN(6) {
			case 0, 1:
				quota := []v1alpha1.Quota{v1alpha1.QuotaBorrowing, v1alpha1.QuotaGuaranteed, v1alpha1.QuotaOpportunistic}[random.IntN(3)]
				book.Arrive(Workload{
					ID: id, Queue: specs[random.IntN(len(specs))].Name, Quota: quota, Priority: random.Int32N(3),
					Since: time.Unix(random.Int64N(5), 0), Asks: []Charge{{GPUs: 1000 * random.Int64N(4)}},
				})
				if has[id] { // as whoever changes a workload does
					turns.Add(id)
				}
			case 2:
				if turns.Add(id) {
					has[id] = true
				}
			case 3:
				if turns.Remove(id) != has[id] {
					t.Fatalf("seed %d, step %d: %s had a turn: %v", seed, step, id, has[id])
				}
				delete(has, id)
			case 4:
				book.Hold(id, []Charge{{GPUs: 1000 * random.Int64N(3)}})
				book.Hold(id, nil) // the order has those alone that wait
			case 5:
				specs = randomSpecs(random, 6, false)
				book.SetQueues(specs)
			}
			want, any := "", false
			for one := range book.Order() {
				if has[one] {
					want, any = one, true
					break
				}
			}
			if got, ok := turns.First(); got != want || ok != any {
				t.Fatalf("seed %d, step %d: first is %q, and in order %q; %v of %v", seed, step, got, want, has, slices.Collect(book.Order()))
			}
			if turns.Len() != len(has) {
				t.Fatalf("seed %d, step %d: %d turns for %d", seed, step, turns.Len(), len(has))
			}
		}
	}
}
