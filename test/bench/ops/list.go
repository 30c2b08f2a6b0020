package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	listID   = "ops.ls_ms"
	listGoal = 30
)

// measureLists takes how long `divvy ls` runs, from its start to its end. Looks are further apart than the second for which
// the agent answers with what it has already looked up.
func measureLists(ctx context.Context, o options) ([]measurement.Row, error) {
	shares, looks, runs := 200, 30, 3
	if o.quick {
		shares, looks, runs = 16, 5, 1
	}
	s, err := openServed(ctx, o.build, shares)
	if err != nil {
		return nil, err
	}
	var medians []float64
	slowest := 0.0
	for range runs {
		var took []float64
		for range looks {
			one, err := s.list(ctx)
			if err == nil {
				err = s.machine.Pause(scrapeEvery)
			}
			if err != nil {
				return nil, errors.Join(err, s.close())
			}
			took = append(took, float64(one.Microseconds())/1000)
		}
		median, worst := measurement.Summary(took, measurement.Lower)
		medians, slowest = append(medians, median), max(slowest, worst)
	}
	if err := s.close(); err != nil {
		return nil, err
	}
	row := measurement.Of(listID, "ms", listGoal, measurement.Lower, "make bench-ops ONLY="+listID, medians...)
	row.Case = fmt.Sprintf("%d resting shares on %d GPUs", shares, gpus)
	row.Note = fmt.Sprintf("median of %d looks, the slowest of all %.1f ms", looks, slowest)
	return []measurement.Row{row}, nil
}

// list runs `divvy ls` once. A list without all shares is an error.
func (s *served) list(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	text, err := exec.CommandContext(ctx, s.machine.Divvy, "ls").Output()
	took := time.Since(begin)
	if err != nil {
		return 0, fmt.Errorf("list shares: %w", err)
	}
	listed := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "gpubench") {
			listed++
		}
	}
	if listed != s.shares {
		return 0, fmt.Errorf("list shares: %d of %d are listed: %s", listed, s.shares, text)
	}
	return took, nil
}
