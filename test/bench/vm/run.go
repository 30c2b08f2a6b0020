package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/figure"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// Errors of a source.
var (
	errUntold  = errors.New("no test told it")
	errUnknown = errors.New("a test told a figure that no row has")
	errFailed  = errors.New("the tests failed, though each figure reaches its goal")
	errTests   = errors.New("run tests")
)

// runner runs tests.
type runner struct {
	build   string
	verbose bool
}

// measure runs a source's tests and makes rows of what they tell. Where tests fail, their figures stand only if one of them
// misses its goal: then that is what failed.
func (s source) measure(ctx context.Context, r runner) ([]measurement.Row, error) {
	var told []figure.Figure
	var failed error
	for _, some := range s.tests {
		figures, err := r.all(ctx, some)
		if err != nil && !errors.Is(err, errTests) {
			return nil, err
		}
		failed = errors.Join(failed, err)
		told = append(told, figures...)
	}
	return s.judge(told, failed)
}

// all runs tests in each of their guests, and returns the figures that they told, also where they failed: errTests.
func (r runner) all(ctx context.Context, some tests) (told []figure.Figure, failed error) {
	shapes := some.shapes
	if len(shapes) == 0 {
		shapes = []string{""}
	}
	for _, shape := range shapes {
		said, err := r.run(ctx, some, shape)
		figures, broken := figure.Read(strings.NewReader(said))
		if broken != nil {
			return nil, broken
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%w: %s in %s: %w\n%s", errTests, some.pattern, some.folder, err, said))
		}
		told = append(told, figures...)
	}
	return told, failed
}

// judge makes rows of figures. Those of one row from several guests are added: each counts what it saw.
func (s source) judge(told []figure.Figure, failed error) ([]measurement.Row, error) {
	var all []measurement.Row
	missed := false
	for _, r := range s.rows {
		values, notes := r.collect(told)
		if len(values) == 0 {
			return nil, errors.Join(fmt.Errorf("%s %s: %w", r.id, r.word, errUntold), failed)
		}
		made := measurement.Of(r.id, r.unit, r.goal, r.better, "make bench-vm ONLY="+r.id, values...)
		made.Case, made.Note = r.word, strings.Join(notes, "; ")
		missed = missed || !made.Reached()
		all = append(all, made)
	}
	for _, f := range told {
		if !s.has(f) {
			return nil, fmt.Errorf("%s %s: %w", f.ID, f.Case, errUnknown)
		}
	}
	if failed != nil && !missed {
		return nil, errors.Join(errFailed, failed)
	}
	return all, nil
}

func (s source) has(f figure.Figure) bool {
	for _, r := range s.rows {
		if r.id == f.ID && r.word == f.Case {
			return true
		}
	}
	return false
}

// collect returns the values of a row and what was noted of them.
func (r row) collect(told []figure.Figure) (values []float64, notes []string) {
	for _, f := range told {
		if f.ID != r.id || f.Case != r.word {
			continue
		}
		for i, value := range f.Values {
			if i < len(values) {
				values[i] += value
			} else {
				values = append(values, value)
			}
		}
		if f.Note != "" {
			notes = append(notes, f.Note)
		}
	}
	return values, notes
}

// run returns what tests write in one guest, or on this machine.
func (r runner) run(ctx context.Context, s tests, shape string) (string, error) {
	arguments := []string{"test"}
	if s.module {
		arguments, s.folder = append(arguments, "-C", s.folder), "."
	}
	arguments = append(arguments, "-count=1", "-timeout=30m", "-v", "-run", "^("+s.pattern+")$")
	settings := append([]string{"DIVVY_REQUIRE=vm," + os.Getenv("DIVVY_REQUIRE")}, s.settings...)
	if shape != "" {
		exec, err := filepath.Abs(filepath.Join(r.build, "vm/exec"))
		if err != nil {
			return "", fmt.Errorf("find what boots guests: %w", err)
		}
		words := []string{exec, "-shape", shape}
		for _, path := range s.with {
			words = append(words, "-with", path)
		}
		arguments = append(arguments, "-exec", strings.Join(words, " "))
	}
	return command(ctx, r.verbose, settings, "go", append(arguments, s.folder)...)
}

// command returns what a program writes.
func command(ctx context.Context, verbose bool, settings []string, name string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, arguments...)
	// go test passes an interrupt on to what it runs, which a kill would leave behind.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Env = append(os.Environ(), settings...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if verbose {
		cmd.Stdout = io.MultiWriter(&said, os.Stderr)
		cmd.Stderr = cmd.Stdout
	}
	err := cmd.Run()
	return said.String(), err
}
