package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/docs/session"
)

const docsID = "ops.docs_commands_percent"

// measureDocs runs the commands of README.md and docs that test/docs runs, which must print what the pages say, and counts how
// many of all are run there or by another suite.
func measureDocs(ctx context.Context, o options) ([]measurement.Row, error) {
	prefix, err := filepath.Abs(o.build)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-run", "^Test(Commands|Book)$", "./test/docs")
	cmd.Env = append(os.Environ(), "DIVVY_PREFIX="+prefix, "DIVVY_REQUIRE=userns")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("run the commands of the pages: %w: %s", err, said)
	}
	all, err := session.Pages(".")
	if err != nil {
		return nil, err
	}
	book, err := session.Open(".")
	if err != nil {
		return nil, err
	}
	here, elsewhere, unrun := 0, 0, 0
	for _, c := range all {
		switch reason, test := book.Fate(c); {
		case reason != "":
			unrun++
		case test != "":
			elsewhere++
		default:
			here++
		}
	}
	percent := 100 * float64(here+elsewhere) / float64(len(all))
	row := measurement.Of(docsID, "%", 90, measurement.Higher, "make bench-ops ONLY="+docsID, percent)
	row.Case = "commands of README and docs, output compared"
	row.Note = fmt.Sprintf("%d of %d commands by test/docs, in this run; %d by the suites of clusters, containers, the package and the demonstration; %d have a reason in %s",
		here, len(all), elsewhere, unrun, session.File)
	return []measurement.Row{row}, nil
}
