package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// Report is what became of the suite on one version of Kubernetes and one of containerd.
type Report struct {
	Kubernetes string `json:"kubernetes"`
	Containerd string `json:"containerd"`
	Command    string `json:"command"`
	// Part is the pattern of the tests that ran, empty where all did.
	Part      string     `json:"part,omitempty"`
	Machine   string     `json:"machine"`
	Date      string     `json:"date"`
	Commit    string     `json:"commit"`
	Scenarios []Scenario `json:"scenarios"`
}

// Scenario is one part of the suite, by its test's name.
type Scenario struct {
	Name    string  `json:"name"`
	Passed  bool    `json:"passed"`
	Seconds float64 `json:"seconds"`
}

// errNone says that a suite ran no scenario.
var errNone = errors.New("no scenario ran")

// scenarios reads what `go test -json` writes, copies the tests' own words to told, and returns the scenarios that have ended. A test
// that is skipped, or passes as the frame of others, is none.
func scenarios(events io.Reader, told io.Writer) ([]Scenario, error) {
	var all []Scenario
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Action, Test, Output string
			Elapsed              float64
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read what the suite writes: %w", err)
		}
		switch {
		case e.Action == "output":
			if _, err := io.WriteString(told, e.Output); err != nil {
				return nil, err
			}
		case e.Test != "" && (e.Action == "fail" || e.Action == "pass" && strings.Contains(e.Test, "/")):
			all = append(all, Scenario{Name: e.Test, Passed: e.Action == "pass", Seconds: e.Elapsed})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read what the suite writes: %w", err)
	}
	return all, nil
}

// fault is nil where all scenarios passed.
func (r *Report) fault() error {
	if len(r.Scenarios) == 0 {
		return errNone
	}
	for _, s := range r.Scenarios {
		if !s.Passed {
			return fmt.Errorf("%s failed", s.Name)
		}
	}
	return nil
}

// outcome says in a few words how many scenarios passed of those that ran.
func (r *Report) outcome() string {
	passed, all, part := 0, 0, ""
	for _, s := range r.Scenarios {
		if !strings.Contains(s.Name, "/") {
			continue // the frame of others
		}
		if all++; s.Passed {
			passed++
		}
	}
	if r.Part != "" {
		part = "a part, "
	}
	return fmt.Sprintf("%s with containerd %s (%s%d of %d)", minor(r.Kubernetes), minor(r.Containerd), part, passed, all)
}

// write puts the report where that of the same minor versions is.
func (r *Report) write(folder string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	name := fmt.Sprintf("kubernetes-%s-containerd-%s.json", minor(r.Kubernetes), minor(r.Containerd))
	return os.WriteFile(filepath.Join(folder, name), append(text, '\n'), 0o644)
}

// minor is a version without its last part.
func minor(version string) string {
	if i := strings.LastIndexByte(version, '.'); i >= 0 {
		return version[:i]
	}
	return version
}

// count writes the figures that all reports below the folder of measurements give.
func count(out string) error {
	files, err := filepath.Glob(filepath.Join(out, "versions", "*.json"))
	if err != nil {
		return err
	}
	var all []Report
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var r Report
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&r); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		all = append(all, r)
	}
	return measurement.Merge(filepath.Join(out, "slots.json"), rows(all))
}

const oldContainerd = "v1.7"

// rows are the minor versions of Kubernetes on which everything passed, and those of them on which it did so with the older line of
// containerd. A version of which a part has run or something failed does not count, and the note names it. They bear what the last of
// the reports says of the run.
func rows(all []Report) []measurement.Row {
	var passed, old, parts []string
	var last Report
	scenarios := 0
	for _, r := range all {
		if r.Date >= last.Date {
			last = r
		}
		if r.Part != "" || r.fault() != nil {
			parts = append(parts, r.outcome())
			continue
		}
		scenarios = max(scenarios, len(r.Scenarios))
		if !slices.Contains(passed, minor(r.Kubernetes)) {
			passed = append(passed, minor(r.Kubernetes))
		}
		if minor(r.Containerd) == oldContainerd {
			old = append(old, minor(r.Kubernetes))
		}
	}
	partly := ""
	if slices.Sort(parts); len(parts) > 0 {
		partly = "; not counted: " + strings.Join(parts, ", ")
	}
	row := func(of string, goal float64, versions []string) measurement.Row {
		value := float64(len(versions))
		if slices.Sort(versions); len(versions) == 0 {
			versions = []string{"none"}
		}
		return measurement.Row{
			ID: "slots.versions", Case: of, Value: value, Worst: value, Unit: "versions", Goal: &goal, Better: measurement.Higher, Runs: 1,
			Command: "make e2e-slots-all", Machine: last.Machine, Date: last.Date, Commit: last.Commit,
			Note: fmt.Sprintf("of Kubernetes, on whose real kubelet and API server all scenarios passed (up to %d): %s%s", scenarios, strings.Join(versions, " "), partly),
		}
	}
	return []measurement.Row{row("", 4, passed), row("with containerd 1.7", 1, old)}
}
