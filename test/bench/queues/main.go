// Command queues takes what tests tell of queues. Those of internal/queue need no cluster: victims against all sets, random
// sequences, the time of a search that finds nobody, and an hour of overload, in their long form. That of test/e2e takes GPUs back
// on a real cluster, as root. It writes docs/measurements/queues.json.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
	// cases has what tells rows of the id apart, by the word that the test writes behind the id, nil for one row alone.
	cases map[string]string
	// passes tells that a figure counts only if the test finds no fault. Others tell it though they fail at their goal.
	passes bool
	note   string
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
	{
		id: "queue.key_case", folder: "./test/e2e", test: "TestScheduler$/^taken-by-.*", unit: "s", goal: 5, better: measurement.Lower,
		settings: [][]string{{"DIVVY_E2E=claims"}, {"DIVVY_E2E=claims"}, {"DIVVY_E2E=claims"}},
		passes:   true,
		cases:    map[string]string{"pods": "four pods, each of which asks for itself", "gang": "a gang of four, where others lie in halves of GPUs"},
		note:     "real kubelets with simulated GPUs; from the demand until the last pod runs, less what the others take to end: nothing in the case of four pods, all of the grace of 30 s in the other case",
	},
}

func main() {
	out := flag.String("out", "docs/measurements/queues.json", "`FILE` to merge the figures into")
	only := flag.String("only", "", "measure only the figures whose ids begin so, such as queue.victims")
	verbose := flag.Bool("v", false, "show what the tests write")
	flag.Parse()
	err := measurement.Run(func(ctx context.Context) (all []measurement.Figure) {
		for i := range sources {
			s := &sources[i]
			all = append(all, measurement.Figure{IDs: s.id, Measure: func() ([]measurement.Row, error) { return s.measure(ctx, *verbose) }})
		}
		return all
	}, *only, *out, false)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench queues:", err)
		os.Exit(1)
	}
}

func (s *source) measure(ctx context.Context, verbose bool) (rows []measurement.Row, err error) {
	cases := s.cases
	if cases == nil {
		cases = map[string]string{"": ""}
	}
	runs := map[string][]float64{}
	for _, settings := range s.settings {
		told, err := s.run(ctx, settings, verbose)
		if err != nil {
			return nil, err
		}
		for word := range cases {
			value, err := find(told, s.id, word)
			if err != nil {
				return nil, fmt.Errorf("%s tells no %s %s: %w", s.test, s.id, word, err)
			}
			runs[word] = append(runs[word], value)
		}
	}
	for word, name := range cases {
		row := measurement.Of(s.id, s.unit, s.goal, s.better, "make bench-queues ONLY="+s.id, runs[word]...)
		row.Case, row.Note = name, s.note
		rows = append(rows, row)
	}
	return rows, nil
}

// run is what a test writes.
func (s *source) run(ctx context.Context, settings []string, verbose bool) (string, error) {
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=60m", "-v", "-run", "^"+s.test+"$", s.folder)
	command.Env = append(os.Environ(), settings...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, os.Stderr
	if verbose {
		command.Stdout = io.MultiWriter(&out, os.Stderr)
	}
	failed := command.Run()
	if failed != nil && (s.passes || !strings.Contains(out.String(), "figure "+s.id+" ")) {
		return "", fmt.Errorf("run %s: %w\n%s", s.test, failed, out.String())
	}
	return out.String(), nil
}

// find is what a test tells in a line "figure ID VALUE", or "figure ID WORD VALUE".
func find(told, id, word string) (float64, error) {
	for line := range strings.Lines(told) {
		if _, text, ok := strings.Cut(line, strings.TrimSpace("figure "+id+" "+word)+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
	}
	return 0, errSilent
}
