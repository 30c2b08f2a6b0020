// Command drivers measures how near a share is to NVIDIA's own driver, and writes docs/measurements/drivers.json. What
// answers without a GPU is asked of the real drivers that hack/drivers.sh unpacks; the rest runs on the simulated one,
// whose own record judges.
//
// A figure has a file of its own with a function that measures it, and a line in figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/drivers"
)

// options are the flags.
type options struct {
	build, drivers, programs, out, only string
	quick                               bool
}

func main() {
	var o options
	flag.StringVar(&o.build, "build", "build", "build folder")
	flag.StringVar(&o.drivers, "drivers", ".cache/drivers", "folder that hack/drivers.sh filled")
	flag.StringVar(&o.programs, "programs", ".cache/programs", "folder that hack/programs.sh filled")
	flag.StringVar(&o.out, "out", "docs/measurements/drivers.json", "file to merge the figures into")
	flag.StringVar(&o.only, "only", "", "measure only the figures whose ids begin so, such as driver.names")
	flag.BoolVar(&o.quick, "quick", false, "fewer and shorter runs, to see whether something works; writes nothing")
	flag.Parse()
	if err := measurement.Run(func(ctx context.Context) []measurement.Figure { return figures(ctx, o) }, o.only, o.out, o.quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench drivers:", err)
		os.Exit(1)
	}
}

// figures has one line for each figure.
func figures(ctx context.Context, o options) []measurement.Figure {
	of := func(measure func(context.Context, options) ([]measurement.Row, error)) func() ([]measurement.Row, error) {
		return func() ([]measurement.Row, error) { return measure(ctx, o) }
	}
	return []measurement.Figure{
		{IDs: lookupsID, Measure: of(measureLookups)},
		{IDs: statusID, Measure: of(measureStatus)},
		{IDs: namesID, Measure: of(measureNames)},
		{IDs: glibcID, Measure: of(measureGlibc)},
		{IDs: overheadID, Measure: of(measureOverhead)},
		{IDs: queriesID, Measure: of(measureQueries)},
		{IDs: programsID, Measure: of(measurePrograms)},
		{IDs: deadID, Measure: of(measureDead)},
		{IDs: costID, Measure: of(measureCost)},
	}
}

// row is one case of a figure that is better the lower it is; its command takes the figure alone.
func row(id, name, unit string, goal float64, runs ...float64) measurement.Row {
	r := measurement.Of(id, unit, goal, measurement.Lower, "make bench-drivers ONLY="+id, runs...)
	r.Case = name
	return r
}

// eachDriver measures one case for each driver that is unpacked: natively, and in a share over it.
func eachDriver(ctx context.Context, o options, measure func(*drivers.Pair) (measurement.Row, error)) (_ []measurement.Row, err error) {
	found, err := drivers.Unpacked(o.drivers)
	if err != nil {
		return nil, err
	}
	var rows []measurement.Row
	for _, d := range found {
		r, err := onDriver(ctx, o, d, measure)
		if err != nil {
			return nil, fmt.Errorf("measure with driver %s: %w", d.Version, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func onDriver(ctx context.Context, o options, d drivers.Driver, measure func(*drivers.Pair) (measurement.Row, error)) (_ measurement.Row, err error) {
	dir, err := os.MkdirTemp("", "divvy-drivers-")
	if err != nil {
		return measurement.Row{}, fmt.Errorf("make a folder for libraries: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := drivers.Open(ctx, d, install.Tree(o.build), dir)
	if err != nil {
		return measurement.Row{}, err
	}
	return measure(p)
}
