package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/internal/dialect/examples"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// treatedRight is how many of other systems' example pods are treated as their own system would, or refused with the
// reason where that cannot be.
const treatedRight = "cluster.pods"

func measureExamples(_ context.Context, o options) ([]measurement.Row, error) {
	all, _, err := examples.Load()
	if err != nil {
		return nil, err
	}
	right, refused, left := 0, 0, 0
	for i := range all {
		ok, got, err := all[i].Right()
		if err != nil {
			return nil, err
		}
		switch {
		case !ok:
			o.Say("%s %s: got %s, want %s", all[i].Source, all[i].Path, got, all[i].Want)
			continue
		case got == "left alone":
			left++
		case strings.HasPrefix(got, "refused: "):
			refused++
		}
		right++
	}
	return []measurement.Row{target.More(treatedRight, "", "%", 100, []float64{100 * float64(right) / float64(len(all))},
		fmt.Sprintf("of %d examples %d are translated, %d refused with the reason, and %d, which ask for none of our GPUs, left alone",
			len(all), right-refused-left, refused, left))}, nil
}
