// Command queues measures queues without a cluster: victims against all sets, random sequences, the time of a search that
// finds nobody, and an hour of overload. The tests of internal/queue count, in their long form; it writes what they tell to
// docs/measurements/queues.json.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// errSilent says that a test told no figure.
var errSilent = errors.New("no figure in what it wrote")

// source is a test that tells a figure.
type source struct {
	id, folder, test string
	unit             string
	goal             float64
	better           measurement.Direction
	settings         [][]string // of the environment, one run each
	note             string
}

var sources = []source{
	{
		id: "queue.victims", folder: "./internal/queue/reclaim", test: "TestVictimsAgainstAllSets", unit: "%", goal: 98, better: measurement.Higher,
		settings: [][]string{{"DIVVY_QUEUE_SEED=101"}, {"DIVVY_QUEUE_SEED=102"}, {"DIVVY_QUEUE_SEED=103"}, {"DIVVY_QUEUE_SEED=104"}, {"DIVVY_QUEUE_SEED=105"}},
		note:     "of 500 random clusters of at most 6 nodes, with the fewest victims that all sets have; a seed each run",
	},
	{
		id: "queue.random_sequences", folder: "./internal/queue", test: "TestRandomSequences", unit: "sequences", goal: 1000, better: measurement.Higher,
		settings: [][]string{{"DIVVY_LONG=queues"}}, note: "of 200 events each, after each of which every rule held",
	},
	{
		id: "queue.verdict_ms", folder: "./internal/queue/reclaim", test: "TestVerdictTime", unit: "ms", goal: 100, better: measurement.Lower,
		settings: [][]string{{"DIVVY_LONG=queues"}, {"DIVVY_LONG=queues"}, {"DIVVY_LONG=queues"}}, note: "99th percentile of 100 searches that find nobody, 1,000 nodes with 8,000 pods",
	},
	{
		id: "queue.thrash", folder: "./internal/queue", test: "TestSteadyOverloadEvictsNobody", unit: "pods", goal: 0, better: measurement.Lower,
		settings: [][]string{{"DIVVY_LONG=queues"}}, note: "that ended for others though nothing had changed, in five hours of overload",
	},
}

func main() {
	out := flag.String("out", "docs/measurements/queues.json", "`FILE` to merge the figures into")
	only := flag.String("only", "", "measure only the figures whose ids begin so, such as queue.victims")
	flag.Parse()
	err := measurement.Run(func(ctx context.Context) (all []measurement.Figure) {
		for i := range sources {
			s := &sources[i]
			all = append(all, measurement.Figure{IDs: s.id, Measure: func() ([]measurement.Row, error) { return s.measure(ctx) }})
		}
		return all
	}, *only, *out, false)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench queues:", err)
		os.Exit(1)
	}
}

func (s *source) measure(ctx context.Context) ([]measurement.Row, error) {
	var runs []float64
	for _, settings := range s.settings {
		value, err := s.run(ctx, settings)
		if err != nil {
			return nil, err
		}
		runs = append(runs, value)
	}
	row := measurement.Of(s.id, s.unit, s.goal, s.better, "make bench-queues ONLY="+s.id, runs...)
	row.Note = s.note
	return []measurement.Row{row}, nil
}

// run is what a test tells in a line "figure ID VALUE". A test that fails has told it all the same, unless it stopped before.
func (s *source) run(ctx context.Context, settings []string) (float64, error) {
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=60m", "-v", "-run", "^"+s.test+"$", s.folder)
	command.Env = append(os.Environ(), settings...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, os.Stderr
	failed := command.Run()
	for line := range strings.Lines(out.String()) {
		if _, text, ok := strings.Cut(line, "figure "+s.id+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
	}
	return 0, fmt.Errorf("%s tells no %s: %w\n%s", s.test, s.id, errors.Join(failed, errSilent), out.String())
}
