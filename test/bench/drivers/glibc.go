package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/shipped"
)

const glibcID = "driver.glibc"

// measureGlibc finds the newest version of the C library's names that a file needs which is loaded or run in other
// people's containers.
func measureGlibc(_ context.Context, o options) ([]measurement.Row, error) {
	newest, of := []int{0, 0}, ""
	for _, name := range shipped.Loaded {
		needs, err := shipped.Needs(filepath.Join(o.build, name))
		if err != nil {
			return nil, err
		}
		for _, need := range needs {
			if slices.Compare(need.Version, newest) > 0 {
				newest, of = need.Version, fmt.Sprintf("%s of %s", need.Name, name)
			}
		}
	}
	// Versions have two digits after the point, so 2.4 is 2.04.
	r := row(glibcID, "", "", 2.17, float64(newest[0])+float64(newest[1])/100)
	r.Note = fmt.Sprintf("%s, in %d files", of, len(shipped.Loaded))
	return []measurement.Row{r}, nil
}
