package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// The outcomes of a case.
const (
	passed   = "as expected"
	differed = "another answer"
	failed   = "not answered"
	skipped  = "skipped"
)

// testCase is one question to a machine with a GPU.
type testCase struct {
	name     string
	asks     string
	expected string
	// means is what another answer than the expected one would mean.
	means string
	limit time.Duration
	needs needs
	run   func(t *trial) error
}

// needs are what a case needs of the machine; what it lacks is the reason to skip the case.
type needs struct {
	share    bool // shares can be made
	together bool // two processes may have the GPU at once
	quiet    bool // nobody else keeps the GPU busy
	listed   bool // NVML lists a GPU, and no program need be able to use it
	instance bool // the same, and a program runs on a MIG instance
}

// whole reports whether a program must be able to use a whole GPU.
func (n needs) whole() bool { return !n.listed && !n.instance }

// skipError and differError are the outcomes that a case returns as errors; any other error is a question that could not
// be answered.
type (
	skipError   struct{ why string }
	differError struct{ what string }
)

func (e skipError) Error() string   { return e.why }
func (e differError) Error() string { return e.what }

func skip(format string, args ...any) error   { return skipError{fmt.Sprintf(format, args...)} }
func differ(format string, args ...any) error { return differError{fmt.Sprintf(format, args...)} }

// outcome is what became of a case, as the report has it.
type outcome struct {
	Name     string  `json:"name"`
	Asks     string  `json:"asks"`
	Expected string  `json:"expected"`
	Outcome  string  `json:"outcome"`
	Why      string  `json:"why,omitempty"`
	Means    string  `json:"means,omitempty"`
	Seconds  float64 `json:"seconds"`
	Facts    []fact  `json:"facts,omitempty"`
	Rows     []row   `json:"rows,omitempty"`
	// ran is whether the case had programs run on a GPU.
	ran bool
}

func (o outcome) line() string {
	if o.Why == "" {
		return o.Outcome
	}
	return o.Outcome + ": " + firstLine(o.Why)
}

// choose returns the cases whose names match, in the order in which they run: what a card alone decides comes first,
// what takes long comes last.
func choose(only *regexp.Regexp) (chosen []testCase) {
	for _, list := range [][]testCase{basicCases(), orderCases(), processCases(), memoryCases(), toolCases(), timeCases(), formCases(), remoteCases(), swapCases(), migCases(), torchCases(), lastCases()} {
		for _, c := range list {
			if only.MatchString(c.name) {
				chosen = append(chosen, c)
			}
		}
	}
	return chosen
}

// answer runs a case within its time.
func (b *bench) answer(within context.Context, c testCase) (o outcome) {
	o = outcome{Name: c.name, Asks: c.asks, Expected: c.expected}
	limit := c.limit
	if b.thorough {
		limit *= 10
	}
	ctx, cancel := context.WithTimeoutCause(within, limit, fmt.Errorf("no answer in %s", limit))
	defer cancel()
	t := &trial{bench: b, ctx: ctx}
	begin := time.Now()
	err := t.lacks(c.needs)
	if err == nil {
		err = c.run(t)
	}
	o.Seconds, o.Facts, o.Rows = time.Since(begin).Round(10*time.Millisecond).Seconds(), t.facts, t.rows
	defer func() { o.ran = !c.needs.listed && o.Outcome != skipped }()
	b.stuck = b.stuck || errors.Is(err, errStuck)
	var why skipError
	var what differError
	switch {
	case err == nil:
		o.Outcome = passed
	case errors.As(err, &why):
		o.Outcome, o.Why = skipped, why.Error()
	case errors.As(err, &what):
		o.Outcome, o.Why, o.Means = differed, what.Error(), c.means
	case within.Err() != nil:
		o.Outcome, o.Why = skipped, "the time for all cases was over, or the test was interrupted"
	default:
		o.Outcome, o.Why = failed, err.Error()
	}
	return o
}

// lacks says what a case needs and this machine does not have. That no share can be made although the GPU has room is a
// fault and no reason to skip: it is what the test is there to find.
func (t *trial) lacks(n needs) error {
	switch {
	case t.ctx.Err() != nil:
		return context.Cause(t.ctx)
	case t.stuck:
		return skip("an earlier program waits in the driver and cannot be ended")
	case t.unable != "" && (n.whole() || len(t.machine.GPUs) == 0):
		return skip("%s", t.unable)
	case n.share && t.size() < gib:
		return skip("the GPU has only %s free", bytesText(t.gpu.Free))
	case n.share && t.noShare != "":
		return errors.New(t.noShare)
	case n.together && t.gpu.Mode == modeExclusive:
		return skip("the GPU is in compute mode exclusive-process")
	}
	if !n.quiet {
		return nil
	}
	var now gpu
	quiet, err := t.until(quietTime, func() (bool, error) {
		var err error
		now, err = t.now()
		return now.others() == "", err
	})
	if err == nil && !quiet {
		err = skip("%s", now.others())
	}
	return err
}

// quietTime is how long the driver may go on telling of this test's own programs after their end: its figures are of the
// last second or so, and it is asked again until they have passed.
const quietTime = 8 * time.Second

// row is one measurement, in the form of docs/measurements.
type row struct {
	ID     string   `json:"id"`
	Case   string   `json:"case,omitempty"`
	Value  float64  `json:"value"`
	Unit   string   `json:"unit"`
	Goal   *float64 `json:"goal"`
	Better string   `json:"better"`
	Worst  float64  `json:"worst"`
	Runs   int      `json:"runs"`
}

// measured records a figure of which less is better, by the runs that it is the median of.
func (t *trial) measured(id, unit string, goal *float64, runs []float64) float64 {
	return t.record(row{ID: id, Unit: unit, Goal: goal, Better: "lower"}, runs)
}

// gained records a figure of which more is better.
func (t *trial) gained(id, unit string, goal *float64, runs []float64) float64 {
	return t.record(row{ID: id, Unit: unit, Goal: goal, Better: "higher"}, runs)
}

func goal(value float64) *float64 { return &value }
