package queue

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// exact divides by rational numbers: it raises the level at which all are filled until the pool is empty.
func exact(pool int64, wants, weights []int64) []*big.Rat {
	got := make([]*big.Rat, len(wants))
	for i := range got {
		got[i] = new(big.Rat)
	}
	left := new(big.Rat).SetInt64(max(0, pool))
	for _, weigh := range []func(i int) int64{
		func(i int) int64 { return weights[i] },
		func(i int) int64 {
			if weights[i] > 0 {
				return 0
			}
			return 1
		},
	} {
		for left.Sign() > 0 {
			sum, step := int64(0), (*big.Rat)(nil)
			for i := range wants {
				missing := new(big.Rat).Sub(new(big.Rat).SetInt64(max(0, wants[i])), got[i])
				if w := weigh(i); w > 0 && missing.Sign() > 0 {
					sum += w
					if s := missing.Quo(missing, new(big.Rat).SetInt64(w)); step == nil || s.Cmp(step) < 0 {
						step = s
					}
				}
			}
			if sum == 0 {
				break
			}
			if all := new(big.Rat).Quo(left, new(big.Rat).SetInt64(sum)); all.Cmp(step) < 0 {
				step = all
			}
			for i := range wants {
				if w := weigh(i); w > 0 && got[i].Cmp(new(big.Rat).SetInt64(max(0, wants[i]))) < 0 {
					part := new(big.Rat).Mul(step, new(big.Rat).SetInt64(w))
					got[i].Add(got[i], part)
					left.Sub(left, part)
				}
			}
		}
	}
	return got
}

// What is divided is whole, less than one from the exact share, no more than is wanted, and in sum all that can be.
func TestDivisionIsExact(t *testing.T) {
	random := rand.New(rand.NewPCG(17, 1))
	partial := 0
	for range 3000 {
		n := 1 + random.IntN(9)
		size := int64(1) << random.IntN(40)
		wants, weights := make([]int64, n), make([]int64, n)
		sum := int64(0)
		for i := range n {
			wants[i] = random.Int64N(size + 1)
			weights[i] = random.Int64N(1 << random.IntN(20))
			sum += wants[i]
		}
		pool := random.Int64N(size*int64(n) + 1)
		if random.IntN(50) == 0 {
			pool = -pool
		}
		got, want := divide(pool, wants, weights), exact(pool, wants, weights)
		given := int64(0)
		for i := range n {
			given += got[i]
			away := new(big.Rat).Sub(new(big.Rat).SetInt64(got[i]), want[i])
			if away.Abs(away).Cmp(big.NewRat(1, 1)) >= 0 || got[i] > wants[i] || got[i] < 0 {
				t.Fatalf("of %d wants %v with weights %v: %v, exactly %v", pool, wants, weights, got, want)
			}
		}
		if given != max(0, min(pool, sum)) {
			t.Fatalf("of %d wants %v: %d given", pool, wants, given)
		}
		if pool < sum && pool > 0 {
			partial++
		}
	}
	if partial < 500 {
		t.Fatal(partial)
	}
}

// randomSpecs draws trees, good and bad ones.
func randomSpecs(random *rand.Rand, n int, bad bool) []Spec {
	var specs []Spec
	for i := range n {
		s := Spec{Name: fmt.Sprintf("q%02d", i)}
		if i > 0 && random.IntN(3) > 0 {
			s.Parent = fmt.Sprintf("q%02d", random.IntN(i))
		}
		if bad && random.IntN(8) == 0 {
			s.Parent = fmt.Sprintf("q%02d", random.IntN(n+2))
		}
		for _, model := range []string{"", "H100"} {
			if random.IntN(3) == 0 {
				continue
			}
			guaranteed := int64(random.IntN(5)) * 1000
			r := v1alpha1.QueueShare{Model: model, Guaranteed: v1alpha1.AmountOf(guaranteed, v1alpha1.UnitGPUs)}
			if random.IntN(3) == 0 {
				r.Limit = v1alpha1.AmountOf(guaranteed+int64(random.IntN(4))*1000, v1alpha1.UnitGPUs)
			}
			if random.IntN(3) == 0 {
				r.LendingLimit = v1alpha1.AmountOf(int64(random.IntN(3))*1000, v1alpha1.UnitGPUs)
			}
			if random.IntN(2) == 0 {
				r.Weight = p(int64(random.IntN(7)))
			}
			if bad && random.IntN(10) == 0 {
				r.Guaranteed = v1alpha1.AmountOf(-guaranteed-1, v1alpha1.UnitGPUs)
			}
			s.Resources = append(s.Resources, r)
		}
		specs = append(specs, s)
	}
	return specs
}

// checkShares tells of a law that the entitlements of a book break.
func checkShares(b *Book) error {
	t := b.tree
	for d := range b.shares {
		s := b.current(d)
		for i := range t.nodes {
			n := &t.nodes[i]
			q := n.quotas[d]
			if s.entitled[i] < 0 || s.guaranteed[i] < 0 || i > 0 && s.entitled[i] > q.limit {
				return fmt.Errorf("queue %q has %d entitled, %d guaranteed, limit %d", n.name, s.entitled[i], s.guaranteed[i], q.limit)
			}
			if i > 0 && s.entitled[i] < min(s.guaranteed[i], s.wanted[i]) {
				return fmt.Errorf("queue %q wants %d of %d guaranteed and gets %d", n.name, s.wanted[i], s.guaranteed[i], s.entitled[i])
			}
			if len(n.parts) == 0 {
				continue
			}
			entitled, kept, guaranteed, missing := int64(0), int64(0), int64(0), int64(0)
			wants, weights, base := make([]int64, len(n.parts)), make([]int64, len(n.parts)), make([]int64, len(n.parts))
			for j, part := range n.parts {
				entitled += s.entitled[part]
				kept += s.withheld[part]
				guaranteed += s.guaranteed[part]
				missing += s.wanted[part] - s.entitled[part]
				base[j] = min(s.guaranteed[part], s.wanted[part])
				wants[j] = s.wanted[part] - base[j]
				if weights[j] = t.nodes[part].quotas[d].weight; t.nodes[part].own {
					weights[j] = s.guaranteed[part]
				}
			}
			pool := s.entitled[i] - kept
			for _, v := range base {
				pool -= v
			}
			if guaranteed > s.guaranteed[i] || entitled+kept > s.entitled[i] || pool < 0 {
				return fmt.Errorf("parts of queue %q have %d guaranteed of %d, %d entitled and %d kept of %d", n.name, guaranteed, s.guaranteed[i], entitled, kept, s.entitled[i])
			}
			if missing > 0 && entitled+kept != s.entitled[i] {
				return fmt.Errorf("parts of queue %q miss %d, and %d of %d is given", n.name, missing, entitled+kept, s.entitled[i])
			}
			for j, want := range exact(pool, wants, weights) {
				away := new(big.Rat).Sub(new(big.Rat).SetInt64(s.entitled[n.parts[j]]-base[j]), want)
				if away.Abs(away).Cmp(big.NewRat(1, 1)) >= 0 {
					return fmt.Errorf("queue %q is %v from its exact share", t.nodes[n.parts[j]].name, away)
				}
			}
		}
	}
	return nil
}

// Whatever trees and demands: entitlements keep limits and guarantees, and are exact to one unit.
func TestLawsOfShares(t *testing.T) {
	random := rand.New(rand.NewPCG(17, 2))
	for i := range 400 {
		b := NewBook()
		specs := randomSpecs(random, 1+random.IntN(12), i%2 == 0)
		b.SetQueues(specs)
		b.SetCapacity(gpus(int64(random.IntN(30)) * 1000))
		for j := range random.IntN(20) {
			b.Arrive(Workload{ID: fmt.Sprint(j), Queue: specs[random.IntN(len(specs))].Name, Asks: gpus(int64(random.IntN(9000)))})
			if random.IntN(2) == 0 {
				_ = b.Start(fmt.Sprint(j), gpus(int64(random.IntN(4000))))
			}
		}
		if err := checkShares(b); err != nil {
			t.Fatalf("%v\n%+v", err, specs)
		}
	}
}

func FuzzTree(f *testing.F) {
	f.Add("a,,4000,,,\nb,a,2000,3000,0,1\n", int64(8000))
	f.Add("a,b,1,,,\nb,a,-1,,,\nc,x,99999999999999,0,0,0\n", int64(-1))
	f.Fuzz(func(t *testing.T, text string, capacity int64) {
		var specs []Spec
		for line := range strings.SplitSeq(text, "\n") {
			fields := strings.Split(line, ",")
			if len(specs) == 64 || len(fields) < 2 {
				continue
			}
			s := Spec{Name: fields[0]}
			s.Parent = fields[1]
			r := v1alpha1.QueueShare{}
			for i, field := range fields[2:] {
				var v int64
				if _, err := fmt.Sscan(field, &v); err != nil {
					continue
				}
				switch i {
				case 0:
					r.Guaranteed = v1alpha1.AmountOf(v, v1alpha1.UnitGPUs)
				case 1:
					r.Limit = v1alpha1.AmountOf(v, v1alpha1.UnitGPUs)
				case 2:
					r.LendingLimit = v1alpha1.AmountOf(v, v1alpha1.UnitGPUs)
				case 3:
					r.Weight = &v
				}
			}
			s.Resources = []v1alpha1.QueueShare{r}
			specs = append(specs, s)
		}
		b := NewBook()
		b.SetQueues(specs)
		b.SetCapacity(gpus(min(max(0, capacity), v1alpha1.MaxAmount)))
		for i, s := range specs {
			b.Arrive(Workload{ID: fmt.Sprint(i), Queue: s.Name, Asks: gpus(int64(i) * 1000)})
			_ = b.Start(fmt.Sprint(i), gpus(int64(i)*1000))
		}
		if err := checkShares(b); err != nil {
			t.Fatal(err)
		}
		b.Conditions()
		for _, s := range specs {
			b.Standing(s.Name)
		}
	})
}
