package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	differenceID = "remote.difference"
	mostCalls    = 1_000_000
)

// differs is a line of the program that compares.
var differs = regexp.MustCompile(`(?m)^(strict|posted): (\d+) calls, (\d+) of them failing, (\d+) late, (\d+) differences$`)

// differences has a program make random calls, with the simulated driver alone and away from it, and counts what differs:
// results, what was written, and memory.
func (b *bench) differences() ([]measurement.Row, error) {
	runs := map[string][]float64{}
	notes := map[string]string{}
	for seed := range b.times(3) {
		compare := exec.CommandContext(b.Context(), filepath.Join(b.build, "test", "remote", "difference"))
		compare.Env = append(os.Environ(), fmt.Sprintf("SEED=%d", seed+1), fmt.Sprintf("CALLS=%d", b.randomCalls()), "WAY=rings")
		text, err := compare.CombinedOutput()
		found := differs.FindAllStringSubmatch(string(text), -1)
		if len(found) != 2 {
			return nil, fmt.Errorf("compare random calls: %w: %s", err, strings.TrimSpace(string(text)))
		}
		for _, line := range found {
			count, err := strconv.ParseFloat(line[5], 64)
			if err != nil {
				return nil, fmt.Errorf("read how much differs: %w", err)
			}
			runs[line[1]] = append(runs[line[1]], count)
			notes[line[1]] = fmt.Sprintf("%s calls a run, drawn with another seed in each. Of the last run the driver refused %s; %s of these errors came late.", line[2], line[3], line[4])
		}
	}
	var rows []measurement.Row
	for _, manner := range []struct{ name, is string }{
		{"every call waits", "strict"},
		{"errors of posted calls with the next call that waits", "posted"},
	} {
		r := row(differenceID, manner.name, "differences", 0, measurement.Lower, runs[manner.is])
		r.Note = notes[manner.is]
		rows = append(rows, r)
	}
	return rows, nil
}

// randomCalls is how many calls a run makes.
func (o options) randomCalls() int {
	if o.quick {
		return mostCalls / 50
	}
	return mostCalls
}
