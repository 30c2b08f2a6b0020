package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/programs"
)

const programsID = "driver.programs"

// measurePrograms counts the programs of other projects that run right on the simulated driver, natively and in shares.
func measurePrograms(ctx context.Context, o options) ([]measurement.Row, error) {
	build, err := filepath.Abs(o.build)
	if err != nil {
		return nil, fmt.Errorf("find the build folder: %w", err)
	}
	folder, err := filepath.Abs(o.programs)
	if err != nil {
		return nil, fmt.Errorf("find the programs: %w", err)
	}
	setting := programs.Setting{Tree: install.Tree(build), Folder: folder}
	right, all := 0, programs.All()
	for _, program := range all {
		if runsRight(ctx, setting, program) {
			right++
		}
	}
	r := measurement.Of(programsID, "", 11, measurement.Higher, "make bench-drivers ONLY="+programsID, float64(right))
	r.Note = fmt.Sprintf("of %d programs, each natively and in a share of both layers", len(all))
	return []measurement.Row{r}, ctx.Err()
}

// runsRight says on standard error what of a program is not right.
func runsRight(ctx context.Context, setting programs.Setting, program programs.Program) bool {
	right := true
	for _, way := range programs.Ways {
		if err := program.Check(ctx, setting, way); err != nil {
			fmt.Fprintf(os.Stderr, "  %s, %s: %v\n", program.Name, way, err)
			right = false
		}
	}
	return right
}
