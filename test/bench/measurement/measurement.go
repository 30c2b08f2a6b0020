// Package measurement keeps the figures of docs/measurements: rows in JSON files, one file per area, and the
// table for people that is generated from all of them. It measures nothing itself.
package measurement

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Direction says which way a figure gets better.
type Direction string

// The two directions.
const (
	Higher Direction = "higher"
	Lower  Direction = "lower"
)

// Row is one figure. Value is the median of Runs runs, Worst the worst of them in the sense of Better. Goal is
// nil for a figure that has none. Rows with the same ID differ in Case.
type Row struct {
	ID      string    `json:"id"`
	Case    string    `json:"case,omitempty"`
	Value   float64   `json:"value"`
	Unit    string    `json:"unit"`
	Goal    *float64  `json:"goal"`
	Better  Direction `json:"better"`
	Worst   float64   `json:"worst"`
	Runs    int       `json:"runs"`
	Command string    `json:"command"`
	Machine string    `json:"machine"`
	Date    string    `json:"date"`
	Commit  string    `json:"commit"`
	Note    string    `json:"note,omitempty"`
}

// Reached reports whether the row's value meets its goal; a row without a goal has reached it.
func (r Row) Reached() bool {
	if r.Goal == nil {
		return true
	}
	if r.Better == Lower {
		return r.Value <= *r.Goal
	}
	return r.Value >= *r.Goal
}

// Summary is the median and the worst of some runs; the runs must not be empty.
func Summary(runs []float64, better Direction) (median, worst float64) {
	sorted := slices.Sorted(slices.Values(runs))
	middle := len(sorted) / 2
	median = sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	if better == Lower {
		return median, sorted[len(sorted)-1]
	}
	return median, sorted[0]
}

// ErrNone says that no figure is asked for.
var ErrNone = errors.New("no figure's id begins so")

// Figure measures the rows of one id, or of several with spaces between them.
type Figure struct {
	IDs     string
	Measure func() ([]Row, error)
}

// Take measures the figures of which an id begins with prefix, all if that is empty. It tells each row and how long each
// figure took, and merges the rows into the file out, unless that is "". A prefix of no id is ErrNone.
func Take(figures []Figure, prefix, out string, told io.Writer) error {
	figures = slices.DeleteFunc(figures, func(f Figure) bool { return !wanted(f.IDs, prefix) })
	if len(figures) == 0 {
		return fmt.Errorf("look for %q: %w", prefix, ErrNone)
	}
	for _, f := range figures {
		begin := time.Now()
		rows, err := f.Measure()
		if err != nil {
			return fmt.Errorf("measure %s: %w", f.IDs, err)
		}
		for _, r := range rows {
			goal := "none"
			if r.Goal != nil {
				goal = fmt.Sprintf("%v reached %v", *r.Goal, r.Reached())
			}
			_, _ = fmt.Fprintf(told, "%-30s %-40s %12.3f %-7s goal %s (worst %.3f of %d) %s\n",
				r.ID, r.Case, r.Value, r.Unit, goal, r.Worst, r.Runs, r.Note)
		}
		_, _ = fmt.Fprintf(told, "took %s\n", time.Since(begin).Round(time.Second))
		if out == "" {
			continue
		}
		if err := Merge(out, rows); err != nil {
			return err
		}
	}
	return nil
}

// Run is Take for a program: its figures end what they started also when it is interrupted. Quick ones are written nowhere.
func Run(figures func(context.Context) []Figure, prefix, out string, quick bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if quick {
		out = ""
	}
	return Take(figures(ctx), prefix, out, os.Stdout)
}

// wanted reports whether one of the ids, which stand with spaces between them, begins with the prefix that
// somebody asked for. An empty prefix asks for all.
func wanted(ids, prefix string) bool {
	for id := range strings.FieldsSeq(ids) {
		if strings.HasPrefix(id, prefix) {
			return true
		}
	}
	return false
}

// Of makes a row from its runs, with this machine, day and commit.
func Of(id, unit string, goal float64, better Direction, command string, runs ...float64) Row {
	median, worst := Summary(runs, better)
	return Row{
		ID: id, Value: median, Unit: unit, Goal: &goal, Better: better, Worst: worst, Runs: len(runs),
		Command: command, Machine: Machine(), Date: time.Now().UTC().Format(time.DateOnly), Commit: Commit(),
	}
}

// Machine names the processor, its count and the operating system, as far as they change a figure.
func Machine() string {
	model := runtime.GOARCH
	info, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d x %s, %s, no GPU", runtime.NumCPU(), model, runtime.GOOS)
}

// Commit is the checkout's commit, marked when code differs from it, or "unknown" outside a checkout. Measurements
// themselves do not count: one run writes several files.
func Commit() string {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	commit := strings.TrimSpace(string(out))
	if exec.Command("git", "diff", "--quiet", "HEAD", "--", ":/", ":!/docs/measurements").Run() != nil {
		commit += "-dirty"
	}
	return commit
}

// Merge puts rows into the file at path, replacing all rows that share an id with one of them.
func Merge(path string, rows []Row) error {
	kept, err := Read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	kept = slices.DeleteFunc(kept, func(old Row) bool {
		return slices.ContainsFunc(rows, func(fresh Row) bool { return fresh.ID == old.ID })
	})
	kept = append(kept, rows...)
	slices.SortStableFunc(kept, func(a, b Row) int { return strings.Compare(a.ID+"\x00"+a.Case, b.ID+"\x00"+b.Case) })
	text, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return fmt.Errorf("encode measurements: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write measurements: %w", err)
	}
	return nil
}

// Read returns the rows of one file; unknown fields are an error.
func Read(path string) ([]Row, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read measurements: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var rows []Row
	if err := decoder.Decode(&rows); err != nil {
		return nil, fmt.Errorf("read measurements in %s: %w", path, err)
	}
	return rows, nil
}

// Table renders every *.json file of a folder as one Markdown page.
func Table(folder string) (string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return "", fmt.Errorf("list measurements: %w", err)
	}
	var page strings.Builder
	page.WriteString("# Measurements\n\nGenerated from the JSON files in this folder by `make measurements`. The value is the\n" +
		"median of the runs; a figure that misses its goal stays as it is.\n")
	for _, file := range files {
		rows, err := Read(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&page, "\n## %s\n\n| id | value | goal | worst | runs | reached |\n|---|---|---|---|---|---|\n",
			strings.TrimSuffix(filepath.Base(file), ".json"))
		for _, row := range rows {
			page.WriteString(row.line())
		}
		page.WriteString(sources(rows))
	}
	return page.String(), nil
}

func (r Row) line() string {
	name := "`" + r.ID + "`"
	if r.Case != "" {
		name += " " + r.Case
	}
	goal, reached := "–", "–"
	if r.Goal != nil {
		sign := map[Direction]string{Lower: "≤", Higher: "≥"}[r.Better]
		goal = sign + " " + number(*r.Goal)
		reached = map[bool]string{true: "yes", false: "**no**"}[r.Reached()]
	}
	return fmt.Sprintf("| %s | %s %s | %s | %s | %d | %s |\n", name, number(r.Value), r.Unit, goal, number(r.Worst), r.Runs, reached)
}

func number(value float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", value), "0"), ".")
}

// sources lists the distinct commands, machines and notes below a table.
func sources(rows []Row) string {
	var lines []string
	for _, row := range rows {
		line := fmt.Sprintf("* `%s` on %s, %s, commit %s", row.Command, row.Machine, row.Date, row.Commit)
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for _, row := range rows {
		if row.Note != "" {
			lines = append(lines, fmt.Sprintf("* `%s` %s: %s", row.ID, row.Case, row.Note))
		}
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}
