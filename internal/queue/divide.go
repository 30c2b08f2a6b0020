package queue

import (
	"cmp"
	"math/bits"
	"slices"
)

// divide gives of a pool to each at most what it wants, in proportion to weights: all get the same for each unit of
// weight, but for those who want less. What is given is whole, less than one away from the exact share, and as much as the
// pool and the wants allow. Units that remain go to the largest fractions, of equal ones to the first. Those without weight
// divide equally what the others leave.
func divide(pool int64, wants, weights []int64) []int64 {
	got := make([]int64, len(wants))
	var some, others []int
	for i := range wants {
		switch {
		case wants[i] <= 0:
		case weights[i] > 0:
			some = append(some, i)
		default:
			others = append(others, i)
		}
	}
	pool = pour(pool, some, got, wants, weights)
	if pool > 0 && len(others) > 0 {
		equal := make([]int64, len(wants))
		for _, i := range others {
			equal[i] = 1
		}
		pour(pool, others, got, wants, equal)
	}
	return got
}

// pour divides a pool among some and returns what is left.
func pour(pool int64, among []int, got, wants, weights []int64) int64 {
	if pool <= 0 || len(among) == 0 {
		return max(pool, 0)
	}
	weight, want := int64(0), int64(0)
	for _, i := range among {
		weight += weights[i]
		want += wants[i]
	}
	if want <= pool {
		for _, i := range among {
			got[i] = wants[i]
		}
		return pool - want
	}
	// Who wants least for its weight is satisfied first.
	slices.SortFunc(among, func(a, b int) int {
		return cmp.Or(compareProducts(wants[a], weights[b], wants[b], weights[a]), cmp.Compare(a, b))
	})
	for len(among) > 0 {
		i := among[0]
		if compareProducts(wants[i], weight, pool, weights[i]) > 0 {
			break
		}
		got[i] = wants[i]
		pool -= wants[i]
		weight -= weights[i]
		among = among[1:]
	}
	fractions := make([]uint64, len(got))
	left := pool
	for _, i := range among {
		hi, lo := bits.Mul64(uint64(pool), uint64(weights[i]))
		whole, fraction := bits.Div64(hi, lo, uint64(weight))
		got[i], fractions[i] = int64(whole), fraction
		left -= int64(whole)
	}
	slices.SortFunc(among, func(a, b int) int { return cmp.Or(cmp.Compare(fractions[b], fractions[a]), cmp.Compare(a, b)) })
	for _, i := range among[:left] {
		got[i]++
	}
	return 0
}

// compareProducts compares a·b with c·d, all of which are not negative.
func compareProducts(a, b, c, d int64) int {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	hi2, lo2 := bits.Mul64(uint64(c), uint64(d))
	return cmp.Or(cmp.Compare(hi, hi2), cmp.Compare(lo, lo2))
}
