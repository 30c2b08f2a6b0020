package cli

import (
	"io"
	"os"

	"github.com/divvy-gpu/divvy/internal/cli/program"
)

// colour is how a part of a line looks: a terminal's attributes, "" for none.
type colour string

// The colours. They say nothing that the words do not say.
const (
	heading colour = "1" // bold
	alarm   colour = "31"
	notice  colour = "33"
)

// paint is whether there are colours.
type paint bool

// paintFor is whether what is written to w is coloured: on terminals that have colours, unless NO_COLOR is set
// (https://no-color.org).
func paintFor(w io.Writer) paint {
	return paint(program.IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

// of is a text in a colour.
func (p paint) of(c colour, shown string) string {
	if !p || c == "" {
		return shown
	}
	return "\x1b[" + string(c) + "m" + shown + "\x1b[0m"
}
