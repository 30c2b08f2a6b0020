package cluster

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/overview"
)

// style is how tables look where they are written.
type style struct {
	// width is that of the terminal in columns, 0 for no limit.
	width int
	paint columns.Paint
}

func (a *app) style() style { return style{columns.WidthOf(a.out), columns.PaintFor(a.out)} }

// mostOfLine bounds a line below the tables, in characters.
const mostOfLine = 2000

// unknown stands where nobody tells.
const unknown = "-"

// over marks a GPU of which more was granted than it has.
const over = "!"

// writeOverview writes what people read: the GPUs, the shares, what is wrong with nodes, who waits, and what is not shown.
func writeOverview(w *strings.Builder, o *overview.Overview, as style) {
	fmt.Fprintln(w, summaryOf(o))
	if len(o.Nodes) > 0 {
		w.WriteByte('\n')
		writeGPUs(w, o, as)
		writeShares(w, o, as)
	}
	var lines []string
	for i := range o.Nodes {
		lines = append(lines, nodeLines(&o.Nodes[i], len(o.Nodes) > 1)...)
	}
	for i := range o.Waiting {
		lines = append(lines, waitingLine(&o.Waiting[i], o.Time))
	}
	if o.WaitingUnseen > 0 {
		lines = append(lines, fmt.Sprintf("waiting: %s that you may not see", counted(o.WaitingUnseen, "pod")))
	}
	if o.Hidden != "" {
		lines = append(lines, "not shown: "+o.Hidden)
	}
	if len(lines) > 0 {
		w.WriteByte('\n')
	}
	for _, line := range lines {
		line = text.Plain(line, mostOfLine)
		if strings.HasPrefix(line, "!") {
			line = as.paint.Of(columns.Alarm, line)
		}
		fmt.Fprintln(w, line)
	}
}

// summaryOf is one line.
func summaryOf(o *overview.Overview) string {
	t := o.Totals()
	head := counted(t.Nodes, "node") + " with " + counted(t.GPUs, "GPU")
	if len(o.Nodes) == 1 {
		head = "Node " + text.Plain(o.Nodes[0].Name, columns.MostOfName) + ": " + counted(t.GPUs, "GPU")
	}
	if t.Faulty > 0 {
		head += fmt.Sprintf(", %d of them faulty", t.Faulty)
	}
	head += ", " + counted(t.Shares, "share")
	if t.GPUs > 0 {
		head += fmt.Sprintf(", %s of %s granted", text.Size(t.Granted), text.Size(t.Capacity))
	}
	if waiting := len(o.Waiting) + o.WaitingUnseen; waiting > 0 {
		head += ", " + counted(waiting, "pod") + " waiting"
	}
	return head
}

func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

// usualCells are the cells of columns that are left out where nothing else stands in them.
var usualCells = map[string][]string{
	"PROFILE": {unknown}, "FORM": {unknown, "slice"}, "UTIL": {unknown}, "USED": {unknown}, "TEMP": {unknown}, "POWER": {unknown}, "CONTAINER": {unknown},
	"HELD": {unknown, "0s"}, "REFUSED": {"0"}, "POLICY": {unknown}, "CLASS": {unknown}, "USER": {unknown}, "NAMESPACE": {unknown}, "POD": {unknown}, "AGE": {unknown},
}

func writeGPUs(w *strings.Builder, o *overview.Overview, as style) {
	t := columns.Table{Most: columns.MostOfName, Elastic: "MODEL", Paint: as.paint, Colours: overGranted}
	t.Row("NODE", "GPU", "MODEL", "PROFILE", "FORM", "UTIL", "USED", "MEMORY", "GRANTED", "CORES", "SHARES", "TEMP", "POWER", "UUID")
	for i := range o.Nodes {
		n := &o.Nodes[i]
		for k := range n.GPUs {
			g := &n.GPUs[k]
			t.Row(n.Name, indexOf(g), known(g.Model), known(g.Profile), known(string(g.Form)), figure(g.Utilisation, "%"), size(g.Used), text.Size(g.Capacity),
				marked(text.Size(g.Granted), g.Granted > g.Capacity), marked(strconv.Itoa(g.Cores)+"%", g.Cores > 100), strconv.Itoa(g.Count),
				figure(g.Temperature, "C"), watts(g.Milliwatts), known(cmp.Or(g.UUID, g.Device)))
		}
	}
	if len(t.Rows) == 1 {
		return
	}
	if len(o.Nodes) == 1 {
		t.Drop(0)
	}
	t.Omit(usualCells)
	t.Show(w, as.width, "UUID", "POWER", "TEMP", "FORM", "MODEL")
}

func overGranted(_, cell string) columns.Colour {
	if strings.HasSuffix(cell, over) {
		return columns.Alarm
	}
	return ""
}

func writeShares(w *strings.Builder, o *overview.Overview, as style) {
	t := columns.Table{Most: columns.MostOfName, Elastic: "SHARE", Paint: as.paint}
	t.Row("NODE", "GPU", "NAMESPACE", "POD", "CONTAINER", "USER", "USED", "LIMIT", "CORES", "HELD", "REFUSED", "POLICY", "CLASS", "AGE", "SHARE")
	for i := range o.Nodes {
		n := &o.Nodes[i]
		for k := range n.GPUs {
			g := &n.GPUs[k]
			for j := range g.Shares {
				s := &g.Shares[j]
				t.Row(n.Name, indexOf(g), known(s.Namespace), podsOf(s), known(s.Container), known(s.User), size(s.Used), limitOf(s), cores(s.Cores),
					span(s.HeldBack), strconv.FormatUint(s.Refused, 10), known(string(s.Policy)), known(string(s.Class)), age(s.Since, o.Time), s.Name)
			}
		}
	}
	if len(t.Rows) == 1 {
		return
	}
	if len(o.Nodes) == 1 {
		t.Drop(0)
	}
	t.Omit(usualCells)
	w.WriteByte('\n')
	t.Show(w, as.width, "CLASS", "POLICY", "CONTAINER", "SHARE", "HELD", "REFUSED", "AGE")
}

// nodeLines are about the node, its GPUs and shares: with its name where there are others.
func nodeLines(n *overview.Node, named bool) (lines []string) {
	of := ""
	if named {
		of = " of node " + n.Name
	}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if g.Fault != "" {
			lines = append(lines, fmt.Sprintf("! GPU %s%s takes no new shares: %s", indexOf(g), of, g.Fault))
		}
		if hidden := g.Count - len(g.Shares); hidden > 0 {
			lines = append(lines, fmt.Sprintf("GPU %s%s: %s that you may not see", indexOf(g), of, counted(hidden, "share")))
		}
		for k := range g.Shares {
			for _, note := range g.Shares[k].Notes {
				lines = append(lines, fmt.Sprintf("! share %s on GPU %s%s: %s", titleOf(&g.Shares[k]), indexOf(g), of, note))
			}
		}
	}
	for i := range n.Outside {
		p := &n.Outside[i]
		lines = append(lines, fmt.Sprintf("! process %d%s uses GPU %d%s and is in no share", p.PID, ofUser(p.User), p.GPU, of))
	}
	for _, note := range n.Notes {
		if named {
			note = "node " + n.Name + ": " + note
		}
		lines = append(lines, note)
	}
	return lines
}

func waitingLine(p *overview.Waiting, now time.Time) string {
	line := "waiting"
	if !p.Since.IsZero() {
		line += " for " + text.Age(now.Sub(p.Since))
	}
	if p.Namespace != "" {
		line += fmt.Sprintf(": pod %s of namespace %s", p.Name, p.Namespace)
	}
	return line + ": " + cmp.Or(p.Reason, "nobody has said why")
}

func titleOf(s *overview.Share) string {
	if s.Namespace != "" {
		return s.Namespace + "/" + s.Name
	}
	return s.Name
}

func ofUser(user string) string {
	if user == "" {
		return ""
	}
	return " of " + user
}

func indexOf(g *overview.GPU) string {
	if g.Index == nil {
		return "?"
	}
	return strconv.Itoa(*g.Index)
}

// known is what somebody named, if anybody has.
func known(name string) string { return cmp.Or(name, unknown) }

func size(n *uint64) string {
	if n == nil {
		return unknown
	}
	return text.Size(*n)
}

func figure(n *int, unit string) string {
	if n == nil {
		return unknown
	}
	return strconv.Itoa(*n) + unit
}

func watts(milliwatts *uint64) string {
	if milliwatts == nil {
		return unknown
	}
	return strconv.FormatUint((*milliwatts+500)/1000, 10) + "W"
}

func marked(cell string, wrong bool) string {
	if wrong {
		return cell + over
	}
	return cell
}

func cores(n int) string {
	if n == 0 {
		return unknown
	}
	return strconv.Itoa(n) + "%"
}

func limitOf(s *overview.Share) string {
	if s.Whole {
		return "whole"
	}
	return text.Size(s.Memory)
}

func span(d *time.Duration) string {
	if d == nil {
		return unknown
	}
	return text.Age(*d)
}

func age(since, now time.Time) string {
	if since.IsZero() {
		return unknown
	}
	return text.Age(now.Sub(since))
}

// podsOf are a share's pods: one by its name, of several how many there are too.
func podsOf(s *overview.Share) string {
	switch len(s.Pods) {
	case 0:
		return unknown
	case 1:
		return s.Pods[0]
	}
	return fmt.Sprintf("%s +%d", s.Pods[0], len(s.Pods)-1)
}
