package main

import (
	"fmt"
	"os"
	"strings"
)

// screen shows a table that changes in place on a terminal; elsewhere each
// table follows the last.
type screen struct {
	out   *os.File
	live  bool
	lines int // of the table that is shown
	last  string
}

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	return &screen{out: out, live: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// write prints; nothing can be done about an output that nobody reads.
func (s *screen) write(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format, args...)
}

// say writes a line above the table that follows.
func (s *screen) say(format string, args ...any) {
	s.rest()
	s.write("\n── "+format+"\n", args...)
}

// table replaces the table that is shown.
func (s *screen) table(text string) {
	if text == s.last {
		return
	}
	if s.live && s.lines > 0 {
		// Up to the table's first line, and clear from there.
		s.write("\x1b[%dA\x1b[J", s.lines)
	}
	s.write("%s", text)
	s.lines, s.last = strings.Count(text, "\n"), text
}

// rest leaves the table that is shown as it is.
func (s *screen) rest() {
	s.lines, s.last = 0, ""
}
