package replay

import "slices"

// Median is the median, the mean of the middle two for an even number; 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// medians is, by policy, the median of the runs at every percent; order has the
// policies as they first appear.
func medians(results []Result) (curves map[string][]Point, order []string) {
	allocated, fragmented := map[string]map[int][]float64{}, map[string]map[int][]float64{}
	for _, r := range results {
		if allocated[r.Policy] == nil {
			order = append(order, r.Policy)
			allocated[r.Policy], fragmented[r.Policy] = map[int][]float64{}, map[int][]float64{}
		}
		for _, p := range r.Curve {
			allocated[r.Policy][p.Arrived] = append(allocated[r.Policy][p.Arrived], p.Allocated)
			fragmented[r.Policy][p.Arrived] = append(fragmented[r.Policy][p.Arrived], p.Fragmented)
		}
	}
	curves = map[string][]Point{}
	for _, policy := range order {
		for percent, values := range allocated[policy] {
			curves[policy] = append(curves[policy], Point{
				Arrived: percent, Allocated: Median(values), Fragmented: Median(fragmented[policy][percent]),
			})
		}
		slices.SortFunc(curves[policy], func(a, b Point) int { return a.Arrived - b.Arrived })
	}
	return curves, order
}
