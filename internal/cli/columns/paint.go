package columns

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/cli/program"
)

// Colour is how a part of a line looks: a terminal's attributes, "" for none.
type Colour string

// The colours. They say nothing that the words do not say.
const (
	Heading Colour = "1" // bold
	Alarm   Colour = "31"
	Notice  Colour = "33"
)

// Paint is whether there are colours.
type Paint bool

// PaintFor is whether what is written to w is coloured: on terminals that have colours, unless NO_COLOR is set
// (https://no-color.org).
func PaintFor(w io.Writer) Paint {
	return Paint(program.IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

// Of is a text in a colour.
func (p Paint) Of(c Colour, shown string) string {
	if !p || c == "" {
		return shown
	}
	return "\x1b[" + string(c) + "m" + shown + "\x1b[0m"
}

// WidthOf is that of a terminal in columns, 0 for what is none and has no limit.
func WidthOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
