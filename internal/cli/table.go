package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// table collects rows and aligns their columns.
type table struct{ rows [][]string }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w *strings.Builder) {
	aligned := tabwriter.NewWriter(w, 0, 0, gap, ' ', 0)
	for _, cells := range t.rows {
		_, _ = aligned.Write([]byte(strings.Join(cells, "\t") + "\n"))
	}
	_ = aligned.Flush() // a builder takes everything
}

// omit leaves columns out in which every row has one of the usual values.
func (t *table) omit(usual map[string][]string) {
	for column := len(t.rows[0]) - 1; column >= 0; column-- {
		values, known := usual[t.rows[0][column]]
		telling := func(row []string) bool { return !slices.Contains(values, row[column]) }
		if !known || slices.ContainsFunc(t.rows[1:], telling) {
			continue
		}
		for i, row := range t.rows {
			t.rows[i] = slices.Delete(row, column, column+1)
		}
	}
}

// fit leaves out columns, in the order given, until the table is no wider than that. A
// width of 0 is no limit.
func (t *table) fit(width int, spare ...string) {
	for _, name := range spare {
		if width == 0 || t.width() <= width {
			return
		}
		column := slices.Index(t.rows[0], name)
		if column < 0 {
			continue
		}
		for i, row := range t.rows {
			t.rows[i] = slices.Delete(row, column, column+1)
		}
	}
}

// width is that of the longest line.
func (t *table) width() int {
	sum := 0
	for column := range t.rows[0] {
		widest := 0
		for _, row := range t.rows {
			widest = max(widest, utf8.RuneCountInString(row[column]))
		}
		sum += widest + gap
	}
	return sum - gap
}

// gap is the space between two columns.
const gap = 2

// usual is what shares have whose request says nothing of it. A column that says
// nothing else is left out.
var usual = map[string][]string{"INSTANCE": {"-"}, "BACKEND": {"slice"}, "POLICY": {"weighted", "-"}, "WEIGHT": {"1", "-"}, "CLASS": {"online"}, "LAYER": {"namespace"}}

// spare are the columns that a narrow terminal misses least; JSON has them.
var spare = []string{"OVERHEAD", "LAYER", "PIDS", "WEIGHT", "AGE", "CLASS", "POLICY", "BACKEND"}

// printTenants writes one row for each share of tenants, as they were at a time.
func printTenants(w *strings.Builder, tenants []control.Tenant, at time.Time, width int) {
	shares := table{}
	shares.row("SHARE", "USER", "AGE", "GPU", "INSTANCE", "USED", "LIMIT", "OVERHEAD", "TIME", "CORES", "BACKEND", "POLICY", "WEIGHT", "CLASS", "LAYER", "PIDS", "STATE")
	for _, tenant := range tenants {
		for _, s := range tenant.Shares {
			shares.row(tenant.Name, tenant.User, age(at.Sub(tenant.Created)), strconv.Itoa(s.Index), instanceOf(s), used(s), size(s.Limit), size(s.Overhead),
				spent(s.Time), coresOf(s), string(s.Backend), policyOf(s), weightOf(s), string(s.Class), string(tenant.Layer), pids(s.Process), state(tenant, s))
		}
	}
	shares.omit(usual)
	shares.fit(width, spare...)
	shares.print(w)
}

// instanceOf is the profile of the MIG instance on which a share is, with its first memory slice.
func instanceOf(s control.Share) string {
	if s.Instance == nil {
		return "-"
	}
	return fmt.Sprintf("%s@%d", s.Instance.Profile, s.Instance.Start)
}

// age writes a time in the largest unit of which it has at least two, seconds at least.
func age(d time.Duration) string {
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}} {
		if d >= 2*unit.length {
			return strconv.FormatInt(int64(d/unit.length), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(max(0, d)/time.Second), 10) + "s"
}

// processOf names a process that uses a GPU outside every share.
func processOf(o control.Outside) string {
	text := fmt.Sprintf("process %d", o.PID)
	if o.User != "" {
		text += " of " + o.User
	}
	if o.Command != "" {
		text += " (" + o.Command + ")"
	}
	return text
}
