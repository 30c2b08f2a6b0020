package program

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ClearScreen moves a terminal's cursor to the corner and clears what is below.
const ClearScreen = "\x1b[H\x1b[J"

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
