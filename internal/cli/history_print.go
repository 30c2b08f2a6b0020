package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/history"
)

// usualOfHistory is what most rows of a history have: a column that says nothing else is left out.
var usualOfHistory = map[string][]string{"RUNNING": {"0"}, "HELD": {"-"}, "REFUSED": {"-"}, "ENTITLED": {"-"}, "ENDED": {"-"}}

// spareOfHistory are the columns that a narrow terminal misses least.
var spareOfHistory = []string{"ENDED", "ENTITLED", "GRANTED", "NODE", "RUNNING", "COMMAND"}

func printHistory(w *strings.Builder, p past, by []history.Column, records bool, as look) {
	if len(p.Rows) == 0 {
		fmt.Fprintf(w, "No share is recorded since %s.\n", p.Since.Local().Format("15:04 on 2 January 2006"))
		return
	}
	t := columns.Table{Most: columns.MostOfName, Paint: as.paint}
	if records {
		recordRows(&t, p.Records)
	} else {
		sumRows(&t, p.Rows, by)
	}
	t.Omit(usualOfHistory)
	t.Show(w, as.width, spareOfHistory...)
}

func sumRows(t *columns.Table, rows []history.Row, by []history.Column) {
	var head []string
	for _, c := range by {
		head = append(head, strings.ToUpper(string(c)))
	}
	t.Row(append(head, "SHARES", "RUNNING", "TIME", "GPU-TIME", "ENTITLED", "HELD", "REFUSED", "GRANTED", "PEAK", "ENDED")...)
	for i := range rows {
		r := &rows[i]
		var cells []string
		for _, c := range by {
			cells = append(cells, orDash(r.Cell(c)))
		}
		t.Row(append(cells, strconv.FormatUint(r.Shares, 10), strconv.FormatUint(r.Running, 10), nanoseconds(r.Wall), lasted(r.Used), lasted(r.Entitled), lasted(r.Held),
			count(r.Refused), size(r.Granted), size(r.Peak), orDash(r.Ended))...)
	}
}

func recordRows(t *columns.Table, records []history.Record) {
	t.Row("FROM", "TO", "NODE", "USER", "SHARE", "GPU", "TIME", "GPU-TIME", "ENTITLED", "HELD", "REFUSED", "GRANTED", "PEAK", "ENDED", "COMMAND")
	for i := range records {
		r := &records[i]
		if r.Kind == history.KindNode {
			continue
		}
		t.Row(r.From.Local().Format(time.DateTime), r.At.Local().Format(time.DateTime), r.Node, r.Owner(), orDash(r.Name), strconv.Itoa(r.GPU), nanoseconds(r.Wall()),
			lasted(r.Used), lasted(r.Entitled), lasted(r.Held), count(r.Refused), size(r.Granted), size(r.Peak), orDash(r.Ended), orDash(strings.Join(r.Command, " ")))
	}
}

// lasted is a time, or a dash for none.
func lasted(ns uint64) string {
	if ns == 0 {
		return "-"
	}
	return nanoseconds(ns)
}

func count(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// writeCSV writes the sums or the records as RFC 4180 has it.
func writeCSV(out io.Writer, p past, by []history.Column, records bool) error {
	rows := sumCells(p.Rows, by)
	if records {
		rows = recordCells(p.Records)
	}
	w := csv.NewWriter(out)
	w.UseCRLF = true
	for _, row := range rows {
		for i := range row {
			row[i] = spreadsheetCell(row[i])
		}
		if err := w.Write(row); err != nil {
			return fmt.Errorf("write the history: %w", err)
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	return nil
}

// mostOfCSV bounds a cell, in characters.
const mostOfCSV = 1000

// spreadsheetCell is a text as a spreadsheet shows it: one that would be a formula is preceded by an apostrophe, and what a terminal
// would obey is escaped.
func spreadsheetCell(cell string) string {
	cell = text.Plain(cell, mostOfCSV)
	first, _ := utf8.DecodeRuneInString(strings.TrimLeft(cell, " \u00a0\u3000"))
	if strings.ContainsRune(formulas, first) {
		return "'" + cell
	}
	return cell
}

// formulas are the characters with which formulas begin, also in their wide forms.
const formulas = "=+-@|%＝＋－＠"

// figuresHead are the columns of figures, the same for sums and records.
var figuresHead = []string{"wall_seconds", "gpu_seconds", "entitled_seconds", "held_back_seconds", "refused_allocations", "granted_bytes", "peak_bytes", "ended"}

func figureCells(wall uint64, f history.Figures, granted, peak uint64, ended string) []string {
	return []string{
		inSeconds(wall), inSeconds(f.Used), inSeconds(f.Entitled), inSeconds(f.Held), strconv.FormatUint(f.Refused, 10),
		strconv.FormatUint(granted, 10), strconv.FormatUint(peak, 10), ended,
	}
}

// inSeconds writes ns with milliseconds.
func inSeconds(ns uint64) string { return strconv.FormatFloat(float64(ns)/1e9, 'f', 3, 64) }

func sumCells(sums []history.Row, by []history.Column) [][]string {
	var head []string
	for _, c := range by {
		head = append(head, string(c))
	}
	rows := [][]string{append(append(head, "shares", "running"), figuresHead...)}
	for i := range sums {
		r := &sums[i]
		var cells []string
		for _, c := range by {
			cells = append(cells, r.Cell(c))
		}
		cells = append(cells, strconv.FormatUint(r.Shares, 10), strconv.FormatUint(r.Running, 10))
		rows = append(rows, append(cells, figureCells(r.Wall, r.Figures, r.Granted, r.Peak, r.Ended)...))
	}
	return rows
}

func recordCells(records []history.Record) [][]string {
	rows := [][]string{append([]string{"from", "to", "kind", "node", "user", "uid", "namespace", "share", "command", "gpu", "uuid", "backend", "policy", "cores"}, figuresHead...)}
	for i := range records {
		r := &records[i]
		if r.Kind == history.KindNode {
			continue
		}
		cells := []string{
			r.From.UTC().Format(time.RFC3339), r.At.UTC().Format(time.RFC3339), string(r.Kind), r.Node, r.User, strconv.Itoa(r.UID), r.Namespace, r.Name, strings.Join(r.Command, " "),
			strconv.Itoa(r.GPU), r.UUID, r.Backend, r.Policy, strconv.Itoa(r.Cores),
		}
		rows = append(rows, append(cells, figureCells(r.Wall(), r.Figures, r.Granted, r.Peak, r.Ended)...))
	}
	return rows
}
