package top

import (
	"fmt"
	"image/color"
	"slices"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/divvy-gpu/divvy/internal/cli/text"
)

func hue(c color.Color) lipgloss.Style { return lipgloss.NewStyle().Foreground(c) }

// field is a column of the list of shares. Columns that are needed most come first.
type field struct {
	name  string
	width int
	right bool // figures end at the same column
	of    func(m Model, s Share) string
}

// ofTurns are columns that are there where a share takes turns.
var ofTurns = []string{"TURN", "MOVED", "RESIDENT"}

// turned is a cell of such a column.
func turned(s Share, of func(t *Turns) string) string {
	if s.Turns == nil {
		return "-"
	}
	return of(s.Turns)
}

// fields are in the order of how much they are missed; they are shown in the order of fieldPlaces.
var fields = []field{
	{"SHARE", 14, false, func(_ Model, s Share) string { return s.Name }},
	{"TIME", 6, true, func(_ Model, s Share) string { return percent(s.Time) }},
	{"USED", 7, true, func(_ Model, s Share) string { return text.Size(s.Used) }},
	{"GPU", 3, true, func(_ Model, s Share) string { return strconv.Itoa(s.Index) }},
	{"STATE", 10, false, func(_ Model, s Share) string { return s.State }},
	{"USER", 10, false, func(_ Model, s Share) string { return s.User }},
	{"LIMIT", 7, true, func(_ Model, s Share) string { return text.Size(s.Limit) }},
	{"TURN", 10, false, func(_ Model, s Share) string { return turned(s, func(t *Turns) string { return t.Turn }) }},
	{"MOVED", 13, false, func(_ Model, s Share) string { return turned(s, func(t *Turns) string { return t.Moved }) }},
	{"ENTITLED", 8, true, func(_ Model, s Share) string { return fmt.Sprintf("%.0f%%", s.Entitled) }},
	{"RESIDENT", 13, false, func(_ Model, s Share) string { return turned(s, func(t *Turns) string { return t.Resident }) }},
	{"HELD", 5, true, func(_ Model, s Share) string { return held(s) }},
	{"REFUSED", 7, true, func(_ Model, s Share) string { return strconv.FormatUint(s.Refused, 10) }},
	{"AGE", 4, true, func(_ Model, s Share) string { return text.Age(s.Age) }},
	{"LATELY", 12, false, func(m Model, s Share) string { return spark(m.times[s.key()], 12) }},
	{"COMMAND", 12, false, func(_ Model, s Share) string { return s.Command }},
}

// fieldPlaces are the columns from left to right.
var fieldPlaces = []string{"SHARE", "USER", "GPU", "USED", "LIMIT", "RESIDENT", "TURN", "MOVED", "TIME", "ENTITLED", "HELD", "REFUSED", "AGE", "STATE", "LATELY", "COMMAND"}

func percent(n *float64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", *n)
}

func held(s Share) string {
	if s.HeldBack <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", s.HeldBack)
}

// shares are the rows of the list.
func (m Model) shares() []line {
	shown := m.shown()
	if len(m.now.Shares) == 0 {
		return nil
	}
	if len(shown) == 0 {
		return m.lines([]string{"", "No share has " + m.filter + " in its name, user, command or state."})
	}
	columns := m.chosen()
	names := make([]string, len(columns))
	for i, f := range columns {
		names[i] = f.name
	}
	all := []line{{within: true}, {text: m.paint(heading, m.row(columns, names, "  "))}}
	for _, s := range shown {
		selected := !m.whole && s.key() == m.selected
		all = append(all, line{draw: func() string { return m.share(columns, s, selected) }, share: s.key(), selected: selected})
	}
	return all
}

// share is the row of a share.
func (m Model) share(columns []field, s Share, selected bool) string {
	cells := make([]string, len(columns))
	for i, f := range columns {
		cells[i] = f.of(m, s)
	}
	mark := "  "
	if selected {
		mark = "> "
	}
	row := m.row(columns, cells, mark)
	switch {
	case selected:
		return m.paint(marked, row)
	case s.State == "fault", strings.HasPrefix(s.State, "over"):
		return m.paint(alarm, row)
	}
	return row
}

// chosen are the columns for which there is room, from left to right. The last of them takes what is left.
func (m Model) chosen() (columns []field) {
	room := m.columns() - 2
	wanted := map[string]field{}
	turns := slices.ContainsFunc(m.now.Shares, func(s Share) bool { return s.Turns != nil })
	for _, f := range fields {
		if !turns && slices.Contains(ofTurns, f.name) {
			continue
		}
		if len(wanted) > 0 && f.width+1 > room {
			break
		}
		room -= f.width + 1
		wanted[f.name] = f
	}
	for _, name := range fieldPlaces {
		if f, ok := wanted[name]; ok {
			columns = append(columns, f)
		}
	}
	if last := &columns[len(columns)-1]; last.name == "COMMAND" {
		last.width += max(0, room)
	} else if room > 0 {
		columns[0].width += min(room, 10)
	}
	return columns
}

// row is a row of cells after a mark.
func (m Model) row(columns []field, cells []string, mark string) string {
	var w strings.Builder
	w.WriteString(mark)
	for i, f := range columns {
		cell := text.Cut(cells[i], f.width)
		if i > 0 {
			w.WriteByte(' ')
		}
		if f.right {
			cell = strings.Repeat(" ", max(0, f.width-text.Width(cell))) + cell
		}
		w.WriteString(text.Pad(cell, f.width))
	}
	return m.cut(strings.TrimRight(w.String(), " "))
}
