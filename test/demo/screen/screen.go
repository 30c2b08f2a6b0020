// Package screen is what demonstrations print: scenes, tables, and a summary of
// what was checked.
package screen

import (
	"fmt"
	"os"
	"strings"
)

// Screen shows a table that changes in place on a terminal; elsewhere it shows
// the last one of each scene.
type Screen struct {
	out    *os.File
	live   bool
	lines  int // of the table that is shown
	last   string
	checks []check
}

// check is one line of the summary.
type check struct {
	passed bool
	text   string
}

// New returns a screen on a terminal or a file.
func New(out *os.File) *Screen {
	info, err := out.Stat()
	return &Screen{out: out, live: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// write prints; nothing can be done about an output that nobody reads.
func (s *Screen) write(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format, args...)
}

// Say writes a line above the table that follows.
func (s *Screen) Say(format string, args ...any) {
	s.Rest()
	s.write("\n── "+format+"\n", args...)
}

// Table replaces the table that is shown.
func (s *Screen) Table(text string) {
	if text == s.last {
		return
	}
	if !s.live {
		s.last = text
		return
	}
	if s.lines > 0 {
		// Up to the table's first line, and clear from there.
		s.write("\x1b[%dA\x1b[J", s.lines)
	}
	s.write("%s", text)
	s.lines, s.last = strings.Count(text, "\n"), text
}

// Rest leaves the table that is shown as it is.
func (s *Screen) Rest() {
	if !s.live {
		s.write("%s", s.last)
	}
	s.lines, s.last = 0, ""
}

// Check keeps a line for the summary.
func (s *Screen) Check(passed bool, format string, args ...any) {
	s.checks = append(s.checks, check{passed, fmt.Sprintf(format, args...)})
}

// Summary prints the checks and reports whether there were some and all passed.
func (s *Screen) Summary() bool {
	passed := len(s.checks) > 0
	s.write("\n")
	for _, c := range s.checks {
		word := "PASS"
		if !c.passed {
			word, passed = "FAIL", false
		}
		s.write("%s  %s\n", word, c.text)
	}
	return passed
}
