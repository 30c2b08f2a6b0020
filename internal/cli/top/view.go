package top

import (
	"fmt"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/divvy-gpu/divvy/internal/cli/text"
)

// Least sizes of a screen on which there is anything to see, in columns and rows.
const (
	leastWidth  = 20
	leastHeight = 3
)

// line is one row of the screen: a text, or what draws it once it is on the screen.
type line struct {
	text     string
	draw     func() string
	share    string // the key of the share whose row it is
	selected bool
	within   bool // it belongs to the row above, as a GPU's bars do
}

func (l line) drawn() string {
	if l.draw != nil {
		return l.draw()
	}
	return l.text
}

// View is the screen, in as many rows as it has, without an end of line after the last.
func (m Model) View() string {
	if !m.whole && (m.width < leastWidth || m.height < leastHeight) {
		return text.Cut("too small", m.width)
	}
	body := m.body()
	if m.whole {
		var rows []string
		rows = append(rows, m.header(0, 0))
		for _, l := range body {
			rows = append(rows, l.drawn())
		}
		return strings.Join(rows, "\n")
	}
	room, from := m.room(), m.begin(body)
	rows := []string{m.header(from, len(body)-from-room)}
	for i := range room {
		row := ""
		if from+i < len(body) {
			row = body[from+i].drawn()
		}
		rows = append(rows, row)
	}
	return strings.Join(append(rows, m.footer()), "\n")
}

func (m Model) body() []line {
	switch m.pane {
	case paneHelp:
		return m.lines(helpLines(m.columns()))
	case paneDetails:
		if s, ok := m.current(); ok {
			return m.lines(s.Details())
		}
	}
	var all []line
	if m.asked && len(m.now.GPUs)+len(m.now.Notes) == 0 && m.now.Fault == "" {
		all = append(all, m.lines([]string{"No GPUs.", "divvy run --memory 8Gi -- COMMAND"})...)
	}
	for _, g := range m.now.GPUs {
		all = append(all, m.gpu(g)...)
	}
	all = append(all, m.shares()...)
	return append(all, m.lines(m.now.Notes)...)
}

// lines are sentences, as long as the screen is wide.
func (m Model) lines(sentences []string) (all []line) {
	for _, s := range sentences {
		s = m.cut(text.Plain(s, m.columns()))
		if strings.HasPrefix(s, "!") {
			s = m.paint(alarm, s)
		}
		all = append(all, line{text: s})
	}
	return all
}

// columns is how many there are; what is printed elsewhere than on a screen has a usual number.
func (m Model) columns() int {
	if m.width <= 0 {
		return 100
	}
	return m.width
}

func (m Model) cut(s string) string { return text.Cut(s, m.columns()) }

// header says what is shown, and how many rows are above and below the screen.
func (m Model) header(above, below int) string {
	parts := []string{"divvy top"}
	if !m.now.At.IsZero() {
		parts = append(parts, m.now.At.Local().Format("15:04:05"))
	}
	if m.asked {
		parts = append(parts, count(len(m.now.GPUs), "GPU"), count(len(m.shown()), "share"))
	} else {
		parts = append(parts, "asking …")
	}
	if m.paused {
		parts = append(parts, "PAUSED")
	}
	if m.filter != "" {
		parts = append(parts, "filter "+text.Plain(m.filter, 20))
	}
	parts = append(parts, "by "+string(m.order))
	return m.paint(heading, m.withHidden(strings.Join(parts, "  "), above, below))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// footer is the last row: a question, what a command came to, or the keys.
func (m Model) footer() string {
	switch {
	case m.pane == paneFilter:
		return m.cut("filter: " + text.Plain(m.typed, m.columns()) + "_")
	case m.pane == paneStop:
		share, _ := m.current()
		return m.paint(alarm, m.question(share))
	case m.said != "":
		return m.cut(text.Plain(m.said, m.columns()))
	case m.now.Fault != "":
		return m.paint(alarm, m.cut(text.Plain("! "+m.now.Fault, m.columns())))
	case m.pane != paneList && len(m.body()) > m.room():
		return m.cut("↑↓ scroll  other keys: back  q: quit")
	case m.pane != paneList:
		return m.cut("any key: back  q: quit")
	}
	return m.paint(faint, m.cut("q quit  ? help  ↑↓ select  enter details  s sort  / filter  p pause  x stop"))
}

// question asks whether a share is to be stopped. What is left out where there is no room is first the user, then the end of
// the name.
func (m Model) question(s Share) string {
	const ask, keys = "stop ", "? y/n"
	name := text.Plain(s.Name, 30)
	if whole := ask + name + " of " + text.Plain(s.User, 20) + keys; text.Width(whole) <= m.columns() {
		return whole
	}
	return ask + text.Cut(name, m.columns()-text.Width(ask+keys)) + keys
}

// help has a line for each key, and then what the bars mean.
var help = []string{
	"up, down, k, j  select a share       enter  its details",
	"pgup, pgdown    by half a screen     /      show shares with a text; esc all",
	"home, end       the top, the end",
	"s               next order           x      stop the share, after a question",
	"p, space        pause                q      quit",
	"",
	"Each GPU has a bar for memory and one for time. A share's part begins with",
	"what it uses (█), then what it may use and does not (░); · is nobody's, and",
	"+ ends the part of a share that uses more than it is entitled to.",
}

// narrowHelp is the same for a narrow screen, the keys without which nobody finds out first.
var narrowHelp = []string{
	"↑ ↓ select       enter its details",
	"/ filter         esc   all shares",
	"s next order     p     pause",
	"x stop, asks     q     quit",
	"pgup, pgdown: by half a screen",
	"home: the top    end: the end",
	"█ used  ░ may be used  · nobody's",
	"+ more than the share is entitled to",
}

// helpLines are what help shows on a screen of some columns.
func helpLines(columns int) []string {
	for _, line := range help {
		if text.Width(line) > columns {
			return narrowHelp
		}
	}
	return help
}

// gpu are the rows of a GPU.
func (m Model) gpu(g GPU) []line {
	name := fmt.Sprintf("GPU %d", g.Index)
	if g.Machine != "" {
		name = text.Plain(g.Machine, 20) + " " + name
	}
	title := []string{name, text.Plain(g.Model, 24)}
	for _, f := range []struct {
		n    *int
		unit string
	}{{g.Utilisation, "%"}, {g.Celsius, "C"}, {g.Watts, "W"}} {
		if f.n != nil {
			title = append(title, strconv.Itoa(*f.n)+f.unit)
		}
	}
	head := strings.Join(title, "  ")
	if room := m.columns() - text.Width(head) - 2; room >= 8 && len(m.utilisation[g.Key]) > 0 {
		head += "  " + spark(m.utilisation[g.Key], min(room, 30))
	}
	rows := []line{{text: m.paint(heading, m.cut(head))}}
	var memory, time []part
	entitled, used, granted := 0.0, 0.0, uint64(0)
	for _, s := range m.now.Shares {
		if s.GPU != g.Key {
			continue
		}
		memory = append(memory, part{ratio(s.Limit, g.Capacity), ratio(s.Used, g.Capacity)})
		time = append(time, part{s.Entitled / 100, orZero(s.Time) / 100})
		entitled, used, granted = entitled+s.Entitled, used+orZero(s.Time), granted+s.Limit
	}
	inUse := "?"
	if g.Used != nil {
		inUse = text.Size(*g.Used)
	}
	if !g.Served {
		if g.Used != nil {
			memory = []part{{0, 0}, {ratio(*g.Used, g.Capacity), ratio(*g.Used, g.Capacity)}}
		}
		return append(rows, line{within: true, text: m.bar("mem", memory, inUse+" of "+text.Size(g.Capacity), inUse)})
	}
	return append(rows,
		line{within: true, text: m.bar("mem", memory, fmt.Sprintf("%s used, %s of %s granted", inUse, text.Size(granted), text.Size(g.Capacity)), inUse)},
		line{within: true, text: m.bar("time", time, fmt.Sprintf("%.0f%% used, %.0f%% entitled", used, entitled), fmt.Sprintf("%.0f%%", used))})
}

func ratio(n, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// bar is a row with a bar, its name before it, and figures after it: the short ones where there is no room for all.
func (m Model) bar(name string, parts []part, figures, short string) string {
	const before, widest, enough = 5, 60, 30
	after := text.Width(figures) + 1
	if m.columns() < before+enough+after {
		figures, after = short, min(8, text.Width(short)+1)
	}
	cells, owners := bar(parts, min(widest, m.columns()-before-after))
	var w strings.Builder
	w.WriteString(text.Pad(name, before))
	for i := 0; i < len(cells); {
		end := i
		for end < len(cells) && owners[end] == owners[i] {
			end++
		}
		of := faint
		if owners[i] >= 0 {
			of = hues[owners[i]%len(hues)]
		}
		w.WriteString(m.paint(of, string(cells[i:end])))
		i = end
	}
	w.WriteString(" " + text.Cut(figures, after-1))
	return w.String()
}

// Looks of parts of the screen.
var (
	heading = lipgloss.NewStyle().Bold(true)
	faint   = lipgloss.NewStyle().Faint(true)
	alarm   = lipgloss.NewStyle().Foreground(lipgloss.Red)
	marked  = lipgloss.NewStyle().Reverse(true)
	// hues are those of shares in bars, in turn.
	hues = []lipgloss.Style{hue(lipgloss.Cyan), hue(lipgloss.Yellow), hue(lipgloss.Magenta), hue(lipgloss.Green), hue(lipgloss.Blue)}
)

func (m Model) paint(of lipgloss.Style, s string) string {
	if m.plain || s == "" {
		return s
	}
	return of.Render(s)
}
