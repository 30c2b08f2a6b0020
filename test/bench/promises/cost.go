package main

import (
	"context"
	"errors"
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
	costPercent = "promise.cost_percent"
	// costBefore is the build that today's is compared with: the last one without a cap from the first launch on, with
	// no order between our use of a handle and its end, and without figures of what descriptors keep.
	costBefore = "34a26e9"
)

// calls are the kinds that lib/cuda/test/calls.c makes, with how many take about 30 ms.
var calls = []struct {
	kind, name string
	count      int
}{
	{"launch", "launch, no limit", 2_000_000},
	{"capped", "launch, limited", 400_000},
	{"allocate", "allocation", 200_000},
	{"both", "allocation and free", 200_000},
}

// measureCost compares what calls cost in processor time, the two builds in turn, and in instructions.
func measureCost(ctx context.Context, o options) (rows []measurement.Row, err error) {
	dir, err := os.MkdirTemp("", "divvy-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	old := filepath.Join(dir, "tree")
	defer func() {
		err = errors.Join(err, command(ctx, "git", "worktree", "remove", "--force", old), os.RemoveAll(dir))
	}()
	if err := buildBefore(ctx, old); err != nil {
		return nil, err
	}
	builds := [2]string{filepath.Join(old, "build", "test", "cuda", "calls"), filepath.Join(o.build, "test", "cuda", "calls")}
	for _, c := range calls {
		pairs, err := timePairs(ctx, o, builds, c.kind, c.count)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row(costPercent, c.name, "%", 3, pairs))
	}
	for _, c := range calls {
		var each [2]float64
		for i, program := range builds {
			if each[i], err = instructions(ctx, program, c.kind); err != nil {
				return nil, err
			}
		}
		r := row(costPercent, "instructions: "+c.name, "%", 0, []float64{percentMore(each[0], each[1])})
		r.Note = fmt.Sprintf("%.1f before, %.1f after, with the fake driver's own", each[0], each[1])
		rows = append(rows, r)
	}
	return rows, nil
}

// buildBefore builds the older library in a tree of its own, and today's program of calls against it.
func buildBefore(ctx context.Context, tree string) error {
	if err := command(ctx, "git", "worktree", "add", "--detach", tree, costBefore); err != nil {
		return err
	}
	program, err := os.ReadFile("lib/cuda/test/calls.c")
	if err != nil {
		return fmt.Errorf("read the program of calls: %w", err)
	}
	// A name that the older makefile builds.
	if err := os.WriteFile(filepath.Join(tree, "lib/cuda/test/test_calls.c"), program, 0o644); err != nil {
		return fmt.Errorf("write the program of calls: %w", err)
	}
	return command(ctx, "make", "-s", "-C", tree, "build/test/cuda/calls")
}

func percentMore(before, after float64) float64 {
	return 100 * (after/before - 1)
}

// timePairs runs both builds again and again, one right after the other; each pair is one run of the figure.
func timePairs(ctx context.Context, o options, builds [2]string, kind string, count int) ([]float64, error) {
	rounds := 41
	if o.quick {
		rounds = 5
	}
	var pairs []float64
	for round := range rounds {
		var each [2]float64
		for k := range builds {
			i := (k + round) % 2
			text, err := exec.CommandContext(ctx, builds[i], kind, strconv.Itoa(count)).Output()
			if err != nil {
				return nil, fmt.Errorf("run %s %s: %w", builds[i], kind, err)
			}
			if each[i], err = strconv.ParseFloat(strings.TrimSpace(string(text)), 64); err != nil {
				return nil, fmt.Errorf("read what %s %s took: %w", builds[i], kind, err)
			}
		}
		pairs = append(pairs, percentMore(each[0], each[1]))
	}
	return pairs, nil
}

var references = regexp.MustCompile(`I\s+refs:\s+([0-9,]+)`)

// instructions counts those of one call: what twice as many calls take more.
func instructions(ctx context.Context, program, kind string) (float64, error) {
	const few = 20_000
	var counted [2]float64
	for i := range counted {
		text, err := exec.CommandContext(ctx, "valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
			program, kind, strconv.Itoa((i+1)*few)).CombinedOutput()
		match := references.FindSubmatch(text)
		if err != nil || match == nil {
			return 0, fmt.Errorf("count the instructions of %s: %w: %s", kind, err, text)
		}
		if counted[i], err = strconv.ParseFloat(strings.ReplaceAll(string(match[1]), ",", ""), 64); err != nil {
			return 0, fmt.Errorf("read the instructions of %s: %w", kind, err)
		}
	}
	return (counted[1] - counted[0]) / few, nil
}

func command(ctx context.Context, argv ...string) error {
	text, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w: %s", strings.Join(argv, " "), err, text)
	}
	return nil
}
