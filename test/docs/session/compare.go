package session

import (
	"regexp"
	"strings"
)

// spaces are what keeps a table's columns apart: as many as the varying words leave.
var spaces = regexp.MustCompile(` {2,}`)

// prints reports whether what a command printed is the page's output. Whatever a pattern finds in both is the same, and
// so is the space beside it; lines without any finding are compared to the byte, but for space at their ends.
func (c Command) prints(got string, varies []*regexp.Regexp) bool {
	return agree(lines(c.Output, varies), lines(got, varies))
}

// A line is one of an output: as it is, and with marks in the place of what varies.
type line struct{ plain, marked string }

func lines(text string, varies []*regexp.Regexp) []line {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	var all []line
	for _, plain := range strings.Split(strings.TrimRight(text, " \n"), "\n") {
		plain = strings.TrimRight(plain, " \r")
		plain = plain[strings.LastIndexByte(plain, '\r')+1:] // a terminal shows the last of what is written over
		marked := plain
		for _, p := range varies {
			marked = mark(marked, p)
		}
		if marked != plain {
			marked = spaces.ReplaceAllString(marked, "  ")
		}
		all = append(all, line{plain, marked})
	}
	return all
}

// mark replaces what a pattern finds, its first group alone if it has one.
func mark(line string, p *regexp.Regexp) string {
	const mark = "‹varies›"
	all := p.FindAllStringSubmatchIndex(line, -1)
	for i := len(all) - 1; i >= 0; i-- {
		from, to := all[i][0], all[i][1]
		if len(all[i]) > 2 {
			from, to = all[i][2], all[i][3]
		}
		if from >= 0 {
			line = line[:from] + mark + line[to:]
		}
	}
	return line
}

// agree compares lines. A wanted line that is … alone stands for any number of them.
func agree(want, got []line) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0].plain == "…" {
		for skipped := range len(got) + 1 {
			if agree(want[1:], got[skipped:]) {
				return true
			}
		}
		return false
	}
	if len(got) == 0 || !sameLine(want[0].plain, got[0].plain) && !sameLine(want[0].marked, got[0].marked) {
		return false
	}
	return agree(want[1:], got[1:])
}

// sameLine compares two lines. A … stands for anything, and in a table the spaces after it do.
func sameLine(want, got string) bool {
	if !strings.Contains(want, "…") {
		// A table's head has as many spaces as its varying columns leave.
		return want == got || heading(want) && spaces.ReplaceAllString(want, "  ") == spaces.ReplaceAllString(got, "  ")
	}
	want, got = spaces.ReplaceAllString(want, "  "), spaces.ReplaceAllString(got, "  ")
	parts := strings.Split(want, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}

// heading reports whether a line is a table's head: words in capitals.
func heading(line string) bool { return line == strings.ToUpper(line) && strings.Contains(line, "  ") }
