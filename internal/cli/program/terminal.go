package program

import (
	"io"
	"os"
)

// ClearScreen moves a terminal's cursor to the corner and clears what is below.
const ClearScreen = "\x1b[H\x1b[J"

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
