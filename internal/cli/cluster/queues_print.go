package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/explanation"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// allModels stands where an amount is of GPUs of all models.
const allModels = "all"

// writeQueues writes a row for each queue, model and unit, and below what is wrong.
func writeQueues(w *strings.Builder, queues []explanation.Queue) {
	if len(queues) == 0 {
		fmt.Fprintln(w, "there are no queues: docs/queues.md says how to write them")
		return
	}
	rows := [][]string{{"QUEUE", "MODEL", "UNIT", "GUARANTEED", "ENTITLED", "USED", "LENT", "BORROWED", "DEMAND", "RUNNING", "WAITING", "CONDITIONS"}}
	unseen := 0
	for i := range queues {
		q := &queues[i]
		var types []string
		for _, c := range q.Conditions {
			types = append(types, c.Type)
		}
		name, last := strings.Repeat("  ", q.Depth)+q.Name, []string{strconv.Itoa(q.Running), strconv.Itoa(q.Waiting), strings.Join(types, ",")}
		for _, u := range q.Resources {
			rows = append(rows, slices.Concat([]string{name}, useCells(u), last))
			name, last = "", []string{"", "", ""}
		}
		if len(q.Resources) == 0 {
			rows = append(rows, slices.Concat([]string{name}, make([]string, 8), last))
		}
		if !q.Seen {
			unseen++
		}
	}
	writeAligned(w, rows)
	lines := conditionLines(queues)
	if unseen == len(queues) {
		lines = append(lines, "no scheduler has told where these queues stand: check that divvy-scheduler runs and that the chart's scheduler.queues is true")
	} else if unseen > 0 {
		lines = append(lines, fmt.Sprintf("the scheduler has not looked yet at the last change of %d of %d queues", unseen, len(queues)))
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(lines, "\n"))
	}
}

func conditionLines(queues []explanation.Queue) (lines []string) {
	for i := range queues {
		for _, c := range queues[i].Conditions {
			line := fmt.Sprintf("%s: %s: %s", queues[i].Name, c.Type, c.Message)
			if c.Next != "" {
				line += "; " + c.Next
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// useCells are the cells of a model and unit.
func useCells(u v1alpha1.QueueUse) []string {
	model := u.Model
	if model == "" {
		model = allModels
	}
	cells := []string{model, string(u.Unit)}
	for _, n := range []int64{u.Guaranteed, u.Entitled, u.Used, u.Lent, u.Borrowed, u.Demand} {
		cells = append(cells, u.Unit.Format(n))
	}
	return cells
}

// queueLine is a queue on one line.
func queueLine(q *explanation.Queue) string {
	parts := []string{fmt.Sprintf("running %d, waiting %d", q.Running, q.Waiting)}
	for _, u := range q.Resources {
		cells := useCells(u)
		parts = append(parts, fmt.Sprintf("%s of %s: guaranteed %s, entitled %s, used %s, lent %s, borrowed %s, demand %s",
			cells[1], cells[0], cells[2], cells[3], cells[4], cells[5], cells[6], cells[7]))
	}
	for _, c := range q.Conditions {
		parts = append(parts, c.Type+": "+c.Message)
	}
	return q.Name + ": " + strings.Join(parts, "; ")
}

// writeAligned writes rows as columns, without blanks at the ends of lines.
func writeAligned(w *strings.Builder, rows [][]string) {
	var aligned strings.Builder
	table := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, cells := range rows {
		_, _ = table.Write([]byte(strings.Join(cells, "\t") + "\n"))
	}
	_ = table.Flush() // a builder takes everything
	for line := range strings.Lines(aligned.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}
