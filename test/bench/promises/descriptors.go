package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// stormed is what sim_storm prints.
type stormed struct {
	Operations uint64 `json:"operations"`
	Rounds     uint64 `json:"rounds"`
	Kills      uint64 `json:"kills"`
	// Uncharged and Stale are the most bytes that a tenant was charged too little and
	// too much, at the end of any round.
	Uncharged uint64 `json:"uncharged"`
	Stale     uint64 `json:"stale"`
}

// descriptors has eight processes of two tenants export, copy, pass, import, close and
// die at random, and compares what is charged with the simulated driver's record.
func descriptors(ctx context.Context, o options) ([]measurement.Row, error) {
	operations := 100_000
	if o.quick {
		operations = 5_000
	}
	var wrong []float64
	var last stormed
	for run := range o.runs() {
		argv := []string{filepath.Join(o.build, "test/cuda/sim_storm"), strconv.Itoa(operations), strconv.Itoa(run + 1)}
		command := exec.CommandContext(ctx, argv[0], argv[1:]...)
		command.Stderr = os.Stderr
		out, err := command.Output() // it fails where bytes are wrong, and prints them all the same
		if jsonErr := json.Unmarshal(out, &last); jsonErr != nil {
			return nil, fmt.Errorf("read what sim_storm prints: %w: %w: %q", jsonErr, err, out)
		}
		wrong = append(wrong, float64(last.Uncharged+last.Stale))
	}
	row := measurement.Of("promise.fd_bytes", "B", 0, measurement.Lower,
		fmt.Sprintf("sim_storm %d SEED, seeds 1 to %d", operations, o.runs()), wrong...)
	row.Note = fmt.Sprintf("uncharged or stale bytes at the end of any round; last run: %d rounds, %d kills", last.Rounds, last.Kills)
	return []measurement.Row{row}, nil
}
