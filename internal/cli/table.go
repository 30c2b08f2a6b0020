package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/cli/text"
)

// table collects rows and aligns their columns. The first row has the columns' names.
type table struct {
	rows [][]string
	// most bounds a cell in characters; 0 stands for mostOfCell.
	most int
	// elastic is a column of which as much is shown as there is room for.
	elastic string
	// colours are those of cells, by their column; nil for none.
	colours func(column, cell string) colour
	paint   paint
}

// Bounds of what a table shows.
const (
	// gap is the space between two columns.
	gap = 2
	// mostOfCell bounds a cell in characters, mostOfName one with what somebody named, mostOfElastic one that is as wide as
	// there is room for.
	mostOfCell    = 1000
	mostOfName    = 60
	mostOfElastic = 200
	// leastOfElastic is how much is shown of an elastic column at least.
	leastOfElastic = 10
	// narrow is the width in columns below which cells stand below each other.
	narrow = 60
)

// row adds a row. What others named is made fit for a terminal.
func (t *table) row(cells ...string) {
	for i, cell := range cells {
		most := cmp.Or(t.most, mostOfCell)
		if len(t.rows) > 0 && i < len(t.rows[0]) && t.rows[0][i] == t.elastic {
			most = mostOfElastic
		}
		cells[i] = text.Plain(cell, most)
	}
	t.rows = append(t.rows, cells)
}

// print writes the table with all its columns.
func (t *table) print(w *strings.Builder) {
	widths := t.widths()
	for n, row := range t.rows {
		for i, cell := range row {
			shown := cell
			if i < len(row)-1 {
				shown = text.Pad(cell, widths[i]+gap)
			}
			switch {
			case n == 0:
				shown = t.paint.of(heading, shown)
			case t.colours != nil:
				shown = t.paint.of(t.colours(t.rows[0][i], cell), shown)
			}
			w.WriteString(shown)
		}
		w.WriteByte('\n')
	}
}

// show writes the table for a width: without the spare columns, in the order given, as far as there is no room for them,
// and with each row's cells below each other where that is not enough. A width of 0 is no limit.
func (t *table) show(w *strings.Builder, width int, spare ...string) {
	if width == 0 {
		t.print(w)
		return
	}
	whole := table{rows: slices.Clone(t.rows), elastic: t.elastic, colours: t.colours, paint: t.paint}
	t.fit(width, spare...)
	t.stretch(width)
	if width >= narrow && t.width() <= width {
		t.print(w)
		return
	}
	whole.stack(w, width)
}

// stack writes the cells of each row one after another, each with its column's name, in lines of that width. Cells that
// say nothing are left out.
func (t *table) stack(w *strings.Builder, width int) {
	const indent = "  "
	for _, row := range t.rows[1:] {
		line := 0
		for i, cell := range row {
			if cell == "-" || cell == "" {
				continue
			}
			name := t.rows[0][i]
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
			of := colour("")
			if t.colours != nil {
				of = t.colours(name, cell)
			}
			w.WriteString(t.paint.of(heading, name) + " " + t.paint.of(of, cell))
			line += long
		}
		w.WriteByte('\n')
	}
}

// omit leaves columns out in which every row has one of the usual values.
func (t *table) omit(usual map[string][]string) {
	for column := len(t.rows[0]) - 1; column >= 0; column-- {
		values, known := usual[t.rows[0][column]]
		telling := func(row []string) bool { return !slices.Contains(values, row[column]) }
		if !known || slices.ContainsFunc(t.rows[1:], telling) {
			continue
		}
		t.drop(column)
	}
}

func (t *table) drop(column int) {
	for i, row := range t.rows {
		t.rows[i] = slices.Concat(row[:column], row[column+1:])
	}
}

// fit leaves out columns, in the order given, until the table is no wider than that.
func (t *table) fit(width int, spare ...string) {
	for _, name := range spare {
		if width == 0 || t.least() <= width {
			return
		}
		if column := slices.Index(t.rows[0], name); column >= 0 {
			t.drop(column)
		}
	}
}

// stretch cuts the elastic column to the room that the others leave.
func (t *table) stretch(width int) {
	column := slices.Index(t.rows[0], t.elastic)
	if column < 0 {
		return
	}
	room := t.widths()[column] + width - t.width()
	for i, row := range t.rows {
		row = slices.Clone(row)
		row[column] = text.Cut(row[column], max(leastOfElastic, room))
		t.rows[i] = row
	}
}

// widths are those of the columns.
func (t *table) widths() []int {
	var all []int
	for _, row := range t.rows {
		all = append(all, make([]int, max(0, len(row)-len(all)))...)
		for i, cell := range row {
			all[i] = max(all[i], text.Width(cell))
		}
	}
	return all
}

// width is that of the longest line.
func (t *table) width() int {
	sum := -gap
	for _, width := range t.widths() {
		sum += width + gap
	}
	return sum
}

// least is the width with no more of the elastic column than must be.
func (t *table) least() int {
	width := t.width()
	if column := slices.Index(t.rows[0], t.elastic); column >= 0 {
		width -= max(0, t.widths()[column]-leastOfElastic)
	}
	return width
}
