package top

import (
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/cli/text"
)

// follow stands for a list that begins where the selected share is seen.
const follow = -1

// room is how many rows there are between the first and the last.
func (m Model) room() int { return max(0, m.height-2) }

// begin is the first row of a body that is on the screen.
func (m Model) begin(body []line) int {
	room := m.room()
	from := m.from
	if m.pane == paneDetails || m.pane == paneHelp {
		from = m.read
	}
	if from == follow {
		from = 0
		if at := slices.IndexFunc(body, func(l line) bool { return l.selected }); at >= room {
			from = at - room/2
		}
	}
	return aligned(body, min(from, len(body)-room), room, 1)
}

// leastAligned is in how many rows a GPU has all of its own.
const leastAligned = 3

// aligned is the next row in a direction, 1 or -1, at which a block begins: half a GPU says nothing. Where no block fits each
// row is one.
func aligned(body []line, from, room, direction int) int {
	from = max(0, from)
	for room >= leastAligned && from > 0 && from < len(body) && body[from].within {
		from += direction
	}
	return from
}

// scroll moves the screen by so many rows, as far as there are any. Scrolled is false where it stays.
func (m Model) scroll(by int) (after Model, scrolled bool) {
	body, direction := m.body(), 1
	if by < 0 {
		direction = -1
	}
	begin := m.begin(body)
	to := aligned(body, min(max(0, begin+by), max(begin, len(body)-m.room())), m.room(), direction)
	if to == begin {
		return m, false
	}
	if m.pane != paneList {
		m.read = to
		return m, true
	}
	m.from = to
	return m.selectSeen(body[to:min(to+m.room(), len(body))], direction), true
}

// selectSeen selects the share nearest to the one that has left the screen, if there is any on it.
func (m Model) selectSeen(seen []line, direction int) Model {
	keys := []string{}
	for _, l := range seen {
		if l.share != "" {
			keys = append(keys, l.share)
		}
	}
	switch {
	case len(keys) == 0 || slices.Contains(keys, m.selected):
	case direction > 0:
		m.selected = keys[0]
	default:
		m.selected = keys[len(keys)-1]
	}
	return m
}

// toEnd goes to the very top for a direction of -1, else to the very end, and selects the share there.
func (m Model) toEnd(direction int) Model {
	m = m.move(direction * len(m.now.Shares))
	m.from = 0
	if direction > 0 {
		m.from = len(m.body())
	}
	return m
}

// hidden says how many rows are above and below the screen, in words and in short.
func hidden(above, below int) (words, short string) {
	rows := func(n int) string {
		if n == 1 {
			return "1 row"
		}
		return fmt.Sprintf("%d rows", n)
	}
	switch {
	case above > 0 && below > 0:
		return fmt.Sprintf("%s above, %d below", rows(above), below), fmt.Sprintf("↑%d ↓%d", above, below)
	case above > 0:
		return rows(above) + " above", fmt.Sprintf("↑%d", above)
	case below > 0:
		return rows(below) + " below", fmt.Sprintf("↓%d", below)
	}
	return "", ""
}

// withHidden is the first row with what is not on the screen. Where there is no room the end of the row gives way.
func (m Model) withHidden(row string, above, below int) string {
	words, short := hidden(above, below)
	const gap = "  "
	switch {
	case words == "":
		return m.cut(row)
	case text.Width(row+gap+words) <= m.columns():
		return row + gap + words
	}
	return m.cut(text.Cut(row, m.columns()-text.Width(gap+short)) + gap + short)
}
