package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const deadID = "driver.dead"

// passed is what the simulated driver says when it ends a program that gave it a handle which has ended.
var passed = []byte(", which has ended; the caller is ")

// measureDead counts the handles that reached the driver after the program had destroyed their objects. In strict mode,
// which the tests do not turn off, the simulated driver ends the program at the first.
func measureDead(ctx context.Context, o options) ([]measurement.Row, error) {
	tests, err := filepath.Glob(filepath.Join(o.build, "test", "cuda", "sim_*"))
	if err != nil || len(tests) == 0 {
		return nil, fmt.Errorf("find the tests of the library: %w", err)
	}
	count, runs := 0, 0
	run := func(program string, words ...string) error {
		n, err := countDead(ctx, program, words...)
		count, runs = count+n, runs+1
		return err
	}
	for _, test := range tests {
		if err := run(test); err != nil {
			return nil, err
		}
	}
	rows := []measurement.Row{row(deadID, fmt.Sprintf("%d tests of the library", runs), "handles", 0, float64(count))}
	seeds := 10
	if o.quick {
		seeds = 2
	}
	count = 0
	for seed := range seeds {
		for _, test := range []string{"sim_handles", "sim_streams"} {
			words := []string{fmt.Sprint(seed + 2), "50000"}
			if test == "sim_streams" {
				words = []string{"3000", fmt.Sprint(seed + 2)}
			}
			if err := run(filepath.Join(o.build, "test", "cuda", test), words...); err != nil {
				return nil, err
			}
		}
	}
	name := fmt.Sprintf("random programs of many threads, %d operations", seeds*56_000)
	return append(rows, row(deadID, name, "handles", 0, float64(count))), nil
}

// countDead runs a test. One that fails for another reason is an error.
func countDead(ctx context.Context, program string, words ...string) (int, error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, words...)
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	dead := bytes.Count(said.Bytes(), passed)
	var exit *exec.ExitError
	if err != nil && (dead == 0 || !errors.As(err, &exit)) {
		os.Stderr.Write(said.Bytes()) //nolint:errcheck // it says why, beside the error
		return 0, fmt.Errorf("run %s: %w", program, err)
	}
	return dead, nil
}
