// Package columns writes tables that fit the width of a terminal.
package columns

import (
	"cmp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/cli/text"
)

// Table collects rows and aligns their columns. The first row has the columns' names.
type Table struct {
	// Rows are what [Table.Row] added.
	Rows [][]string
	// Most bounds a cell in characters; 0 stands for mostOfCell.
	Most int
	// Elastic is a column of which as much is shown as there is room for.
	Elastic string
	// Colours are those of cells, by their column; nil for none.
	Colours func(column, cell string) Colour
	Paint   Paint
}

// Bounds of what a table shows.
const (
	// gap is the space between two columns.
	gap = 2
	// mostOfCell bounds a cell in characters, MostOfName one with what somebody named, mostOfElastic one that is as wide as
	// there is room for.
	mostOfCell    = 1000
	MostOfName    = 60
	mostOfElastic = 200
	// leastOfElastic is how much is shown of an elastic column at least.
	leastOfElastic = 10
	// narrow is the width in columns below which cells stand below each other.
	narrow = 60
)

// Row adds a row. What others named is made fit for a terminal.
func (t *Table) Row(cells ...string) {
	for i, cell := range cells {
		most := cmp.Or(t.Most, mostOfCell)
		if len(t.Rows) > 0 && i < len(t.Rows[0]) && t.Rows[0][i] == t.Elastic {
			most = mostOfElastic
		}
		cells[i] = text.Plain(cell, most)
	}
	t.Rows = append(t.Rows, cells)
}

// Print writes the table with all its columns.
func (t *Table) Print(w *strings.Builder) {
	widths := t.widths()
	for n, row := range t.Rows {
		for i, cell := range row {
			shown := cell
			if i < len(row)-1 {
				shown = text.Pad(cell, widths[i]+gap)
			}
			switch {
			case n == 0:
				shown = t.Paint.Of(Heading, shown)
			case t.Colours != nil:
				shown = t.Paint.Of(t.Colours(t.Rows[0][i], cell), shown)
			}
			w.WriteString(shown)
		}
		w.WriteByte('\n')
	}
}

// Show writes the table for a width: without the spare columns, in the order given, as far as there is no room for them,
// and with each row's cells below each other where that is not enough. A width of 0 is no limit.
func (t *Table) Show(w *strings.Builder, width int, spare ...string) {
	if width == 0 {
		t.Print(w)
		return
	}
	whole := Table{Rows: slices.Clone(t.Rows), Elastic: t.Elastic, Colours: t.Colours, Paint: t.Paint}
	t.fit(width, spare...)
	t.stretch(width)
	if width >= narrow && t.Width() <= width {
		t.Print(w)
		return
	}
	whole.stack(w, width)
}

// stack writes the cells of each row one after another, each with its column's name, in lines of that width. Cells that
// say nothing are left out.
func (t *Table) stack(w *strings.Builder, width int) {
	const indent = "  "
	for _, row := range t.Rows[1:] {
		line := 0
		for i, cell := range row {
			if cell == "-" || cell == "" {
				continue
			}
			name := t.Rows[0][i]
			cell = text.Cut(cell, max(leastOfElastic, width-len(indent)-text.Width(name)-1))
			long := text.Width(name) + 1 + text.Width(cell)
			switch {
			case line == 0:
			case line+gap+long > width:
				w.WriteString("\n" + indent)
				line = len(indent)
			default:
				w.WriteString("  ")
				line += gap
			}
			of := Colour("")
			if t.Colours != nil {
				of = t.Colours(name, cell)
			}
			w.WriteString(t.Paint.Of(Heading, name) + " " + t.Paint.Of(of, cell))
			line += long
		}
		w.WriteByte('\n')
	}
}

// Omit leaves columns out in which every row has one of the usual values.
func (t *Table) Omit(usual map[string][]string) {
	for column := len(t.Rows[0]) - 1; column >= 0; column-- {
		values, known := usual[t.Rows[0][column]]
		telling := func(row []string) bool { return !slices.Contains(values, row[column]) }
		if !known || slices.ContainsFunc(t.Rows[1:], telling) {
			continue
		}
		t.Drop(column)
	}
}

// Drop leaves a column out, by its number.
func (t *Table) Drop(column int) {
	for i, row := range t.Rows {
		t.Rows[i] = slices.Concat(row[:column], row[column+1:])
	}
}

// fit leaves out columns, in the order given, until the table is no wider than that.
func (t *Table) fit(width int, spare ...string) {
	for _, name := range spare {
		if width == 0 || t.least() <= width {
			return
		}
		if column := slices.Index(t.Rows[0], name); column >= 0 {
			t.Drop(column)
		}
	}
}

// stretch cuts the elastic column to the room that the others leave.
func (t *Table) stretch(width int) {
	column := slices.Index(t.Rows[0], t.Elastic)
	if column < 0 {
		return
	}
	room := t.widths()[column] + width - t.Width()
	for i, row := range t.Rows {
		row = slices.Clone(row)
		row[column] = text.Cut(row[column], max(leastOfElastic, room))
		t.Rows[i] = row
	}
}

// widths are those of the columns.
func (t *Table) widths() []int {
	var all []int
	for _, row := range t.Rows {
		all = append(all, make([]int, max(0, len(row)-len(all)))...)
		for i, cell := range row {
			all[i] = max(all[i], text.Width(cell))
		}
	}
	return all
}

// Width is that of the longest line.
func (t *Table) Width() int {
	sum := -gap
	for _, width := range t.widths() {
		sum += width + gap
	}
	return sum
}

// least is the width with no more of the elastic column than must be.
func (t *Table) least() int {
	width := t.Width()
	if column := slices.Index(t.Rows[0], t.Elastic); column >= 0 {
		width -= max(0, t.widths()[column]-leastOfElastic)
	}
	return width
}
