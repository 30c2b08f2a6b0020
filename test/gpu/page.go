package main

import (
	"fmt"
	"slices"
	"strings"
)

// record completes a row by its runs: the value is their median.
func (t *trial) record(r row, runs []float64) float64 {
	sorted := slices.Sorted(slices.Values(runs))
	r.Value, r.Runs = sorted[len(sorted)/2], len(runs)
	r.Worst = sorted[0]
	if r.Better == "lower" {
		r.Worst = sorted[len(sorted)-1]
	}
	if len(sorted)%2 == 0 {
		r.Value = (sorted[len(sorted)/2-1] + sorted[len(sorted)/2]) / 2
	}
	t.rows = append(t.rows, r)
	return r.Value
}

// page is the report for people.
func (r *report) page() string {
	var p strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&p, format+"\n", args...) }
	if r.Simulated {
		line("# Divvy on a simulated GPU\n\nThis shows that the test runs. It says nothing about a GPU.\n")
	} else {
		line("# Divvy on a GPU\n")
	}
	switch {
	case !r.answered() && r.Unable != "":
		line("Divvy %s, %s. **Nothing was tried:** %s.\n", r.Version, r.Date, r.Unable)
	case r.Unable != "":
		line("Divvy %s, %s. %s.\n", r.Version, r.Date, r.summary())
		line("Driver %s, CUDA %s. **No whole GPU was tried:** %s.\n", r.Driver, r.CUDA, r.Unable)
	default:
		line("Divvy %s, %s. %s.\n", r.Version, r.Date, r.summary())
		line("Driver %s, CUDA %s. GPU %d was tried.\n", r.Driver, r.CUDA, r.Tried)
	}
	line("| GPU | model | capability | memory | free | mode | busy | other processes |\n|---|---|---|---|---|---|---|---|")
	for i, c := range r.GPUs {
		line("| %d | %s | %s | %d MiB | %d MiB | %s | %d %% | %d |", i, cell(c.Name), c.Capability, c.MiB, c.FreeMiB, modeText(c), c.Busy, c.Processes)
	}
	line("")
	for _, f := range r.System {
		line("* %s: %s", f.What, f.Seen)
	}
	if r.Unable != "" && !r.answered() {
		return p.String()
	}
	line("\n| case | outcome | seconds |\n|---|---|---|")
	for _, c := range r.Cases {
		line("| %s | %s | %.1f |", c.Name, cell(c.line()), c.Seconds)
	}
	for _, c := range r.Cases {
		if c.Outcome != skipped {
			c.section(line)
		}
	}
	return p.String()
}

func modeText(c card) string {
	if c.MIG {
		return "MIG"
	}
	return c.Mode
}

// section tells one case: what was asked, expected and seen, and what that means.
func (o outcome) section(line func(string, ...any)) {
	line("\n## %s: %s\n\n%s Expected: %s.", o.Name, o.Outcome, o.Asks, o.Expected)
	if o.Why != "" {
		line("\n**Seen: %s**", strings.ReplaceAll(o.Why, "\n", " "))
	}
	if o.Means != "" {
		line("\nIt would mean: %s.", o.Means)
	}
	o.comparison(line)
	for _, f := range o.Facts {
		switch {
		case f.compares():
		case f.What == "note":
			line("* %s", cell(f.Seen))
		default:
			line("* %s: %s", f.What, cell(f.Seen))
		}
	}
	for _, m := range o.Rows {
		line("* `%s` = %.4g %s (worst of %d: %.4g)", strings.TrimSuffix(m.ID+", "+m.Case, ", "), m.Value, m.Unit, m.Runs, m.Worst)
	}
}

// compares reports whether a fact was seen natively or in a share.
func (f fact) compares() bool { return f.Native != "" || f.Share != "" }

// comparison is the table of what was seen natively and in a share, and a blank line before what follows.
func (o outcome) comparison(line func(string, ...any)) {
	if slices.ContainsFunc(o.Facts, fact.compares) {
		line("\n| | natively | in a share |\n|---|---|---|")
	}
	for _, f := range o.Facts {
		if f.compares() {
			line("| %s | %s | %s |", cell(f.What), cell(f.Native), cell(f.Share))
		}
	}
	if len(o.Facts)+len(o.Rows) > 0 {
		line("")
	}
}

// cell is a text that does not break a table.
func cell(text string) string {
	return strings.NewReplacer("|", "/", "\n", " ").Replace(text)
}
