package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/drivers"
)

// andSimulated adds to a figure's rows what the simulated driver answers otherwise than each driver to the questions of
// these names, of both libraries, without a reason that is listed.
func andSimulated(ctx context.Context, o options, rows []measurement.Row, id string, names ...string) ([]measurement.Row, error) {
	more, err := eachDriver(ctx, o, func(p *drivers.Pair) (measurement.Row, error) {
		s, err := p.Simulate(ctx)
		if err != nil {
			return measurement.Row{}, err
		}
		return unexpected(ctx, s, id, names)
	})
	return slices.Concat(rows, more), err
}

func unexpected(ctx context.Context, s *drivers.Simulated, id string, names []string) (measurement.Row, error) {
	answers, differ, without := 0, 0, 0
	for _, q := range drivers.Questions {
		if !slices.Contains(names, q.Name) {
			continue
		}
		result, err := s.Compare(ctx, q)
		if err != nil {
			return measurement.Row{}, err
		}
		for _, d := range s.Unexpected(result) {
			fmt.Fprintf(os.Stderr, "  %s: simgpu: %s: %s\n", s.Version, q, d)
			without++
		}
		answers, differ = answers+result.Answers, differ+len(result.Differences)
	}
	r := row(id, "simgpu, driver "+s.Version, "", 0, float64(without))
	r.Note = fmt.Sprintf("of %d answers; %d more differ for a reason, in test/drivers/simgpu.go", answers, differ-without)
	return r, nil
}
