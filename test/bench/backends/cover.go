package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// dialects are the figures of NVIDIA's files.
func (b bench) dialects() []measurement.Figure {
	return []measurement.Figure{{IDs: "dialect.cover", Measure: b.cover}}
}

// cover counts the published keys and fields that work, have no effect for a told reason, or are refused with the reason.
// The unit tests have a table of both, with a subtest for each.
func (b bench) cover() (rows []measurement.Row, err error) {
	for _, c := range []struct{ name, folder, each, others string }{
		{"keys of the device-plugin file", "./internal/pluginfile", "TestOutcomeOfEveryKey", "TestTableHasThePublishedKeys|TestNoKeyIsIgnored"},
		{"fields of the opaque configurations", "./internal/dialect", "TestEveryFieldOfNVIDIAsConfigurations", "TestNVIDIAsFieldsAreTold"},
	} {
		passed, all, err := b.subtests(c.folder, c.each, c.others)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		row := measurement.Of("dialect.cover", "%", 100, measurement.Higher, command("dialect.cover"), 100*float64(passed)/float64(all))
		row.Case = fmt.Sprintf("%d %s", all, c.name)
		rows = append(rows, row)
	}
	return rows, nil
}

// subtests runs unit tests, and returns how many subtests of one there are and pass. The others compare the table with
// what is read: without them a row that is missing would not count.
func (b bench) subtests(folder, each, others string) (passed, all int, err error) {
	run := exec.CommandContext(b.ctx, "go", "test", "-json", "-count=1", "-timeout=300s", "-run", "^("+each+"|"+others+")$", folder)
	out, runErr := run.Output() // a subtest that fails is a figure
	ended := map[string]string{}
	for lines := json.NewDecoder(bytes.NewReader(out)); ; {
		var event struct{ Action, Test string }
		if err := lines.Decode(&event); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return 0, 0, fmt.Errorf("read the tests' answers: %w", errors.Join(err, runErr))
		}
		if event.Action == "pass" || event.Action == "fail" || event.Action == "skip" {
			ended[event.Test] = event.Action
		}
	}
	for test, action := range ended {
		if strings.HasPrefix(test, each+"/") {
			all++
			if action == "pass" {
				passed++
			}
		}
	}
	for _, other := range strings.Split(others, "|") {
		if ended[other] != "pass" {
			return 0, 0, fmt.Errorf("run %s in %s: it does not pass: %w", other, folder, runErr)
		}
	}
	if all == 0 {
		return 0, 0, fmt.Errorf("run %s in %s: it has no subtests: %w", each, folder, runErr)
	}
	return passed, all, nil
}
