package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

// machine is the simulated machine of the figures about time. It has one GPU.
const machine = "a100-80g"

func cores(percent int) []string { return []string{"--cores", strconv.Itoa(percent)} }

// timed runs a gpubench command that tells the time of what it did, to its end, and returns the first of these times.
func timed(ctx context.Context, m *simulated.Machine, flags []string, program ...string) (time.Duration, error) {
	t, err := m.Start(flags, append([]string{m.Gpubench}, program...)...)
	if err != nil {
		return 0, err
	}
	defer t.End()
	lines, err := t.Wait(ctx)
	if err != nil {
		return 0, err
	}
	for _, l := range lines {
		if l.Result != "" && l.Result != "CUDA_SUCCESS" {
			return 0, fmt.Errorf("gpubench %s said %s", strings.Join(program, " "), l.Result)
		}
	}
	for _, l := range lines {
		if l.Wall > 0 {
			return time.Duration(l.Wall), m.Alone()
		}
	}
	return 0, errors.New("gpubench told no time")
}

// coldRatio is the time of 2,000 different kernels, each launched once, in a share against none.
func coldRatio(ctx context.Context, o options) (_ []measurement.Row, err error) {
	m, err := simulated.Open(ctx, o.build, machine)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	round := []string{"rounds", "--different", "2000", "--streams", "4", "--ns", "100000", "--grid", "1000"}
	var ratios []float64
	for range o.runs() {
		// The best of some, in turn: whatever else the machine does makes a time longer.
		native, shared := time.Hour, time.Hour
		for range 5 {
			without, err := timed(ctx, m, nil, round...)
			if err != nil {
				return nil, err
			}
			within, err := timed(ctx, m, []string{}, round...)
			if err != nil {
				return nil, err
			}
			native, shared = min(native, without), min(shared, within)
		}
		ratios = append(ratios, float64(shared)/float64(native))
	}
	return []measurement.Row{row("promise.cold_ratio", "no cap, alone", "ratio", 1.02, ratios)}, nil
}

// dependent is how much later kernels end that wait for each other in a capped share. The first of them works on the
// GPU while it waits, and the user's next share owes that time, so each run has a machine of its own.
func dependent(ctx context.Context, o options) ([]measurement.Row, error) {
	var late []float64
	for range o.runs() {
		more, err := dependentOnce(ctx, o.build)
		if err != nil {
			return nil, err
		}
		late = append(late, more.Seconds())
	}
	return []measurement.Row{row("promise.dependent_s", "cap 10", "s", 6, late)}, nil
}

func dependentOnce(ctx context.Context, build string) (more time.Duration, err error) {
	m, err := simulated.Open(ctx, build, machine)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	native, err := timed(ctx, m, nil, "await")
	if err != nil {
		return 0, err
	}
	shared, err := timed(ctx, m, cores(10), "await")
	return shared - native, err
}

// loadTime is how long the driver loads the code of one kernel.
const loadTime = 10 * time.Millisecond

// loading writes the file of a machine that loads kernels when they are first launched.
func loading(build, dir string) (string, error) {
	text, err := exec.Command(filepath.Join(build, "bin", "divvy"), "simgpu", "machines", machine).Output()
	if err != nil {
		return "", fmt.Errorf("print a machine file: %w", err)
	}
	changed := strings.Replace(string(text), "costs: {", "costs: {load: "+loadTime.String()+", ", 1)
	if changed == string(text) {
		return "", errors.New("the machine file has no costs")
	}
	path := filepath.Join(dir, machine+".yaml")
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		return "", fmt.Errorf("write a machine file: %w", err)
	}
	return path, nil
}

// lazyRatio is the time of a first round of kernels that are loaded inside it, against what its true GPU time needs
// under the cap. Loading takes 3 s without any share, so a round cannot take less.
func lazyRatio(ctx context.Context, o options) (_ []measurement.Row, err error) {
	dir, err := os.MkdirTemp("", "divvy-lazy-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for a machine file: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, err := loading(o.build, dir)
	if err != nil {
		return nil, err
	}
	m, err := simulated.Open(ctx, o.build, file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	var rows []measurement.Row
	for _, percent := range []int{10, 30} {
		var ratios []float64
		for _, ns := range slices.Repeat([]string{"1000000", "4000000"}, o.runs()) {
			round := []string{"rounds", "--different", "300", "--ns", ns, "--grid", "1000"}
			native, err := timed(ctx, m, nil, round...)
			if err != nil {
				return nil, err
			}
			before, err := m.Oracle.Now(ctx)
			if err != nil {
				return nil, err
			}
			shared, err := timed(ctx, m, cores(percent), round...)
			if err != nil {
				return nil, err
			}
			after, err := m.Oracle.Now(ctx)
			if err != nil {
				return nil, err
			}
			needed := time.Duration(after.Busy-before.Busy) * 100 / time.Duration(percent)
			ratios = append(ratios, float64(shared)/float64(max(needed, native)))
			fmt.Printf("  lazy, cap %d: GPU %v, without a limit %v, took %v\n", percent,
				time.Duration(after.Busy-before.Busy), native, shared)
		}
		rows = append(rows, row("promise.lazy_ratio", fmt.Sprintf("cap %d", percent), "ratio", 1.1, ratios))
	}
	return rows, nil
}
