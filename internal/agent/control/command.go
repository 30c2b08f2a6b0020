package control

import (
	"slices"
	"strings"
)

// commandKept is how many bytes are kept of a command line. It is for people, and
// part of everything that is saved and listed.
const commandKept = 1024

// ShortCommand is the beginning of a command line. Clients send no more, because a
// whole one can be longer in JSON than any request may be; agents keep no more,
// because clients may send what they like.
func ShortCommand(command []string) []string {
	room := commandKept
	for i, arg := range command {
		if room -= len(arg) + 1; room < 0 {
			kept := strings.ToValidUTF8(arg[:max(0, len(arg)+room)], "")
			return append(slices.Clone(command[:i]), kept+"…")
		}
	}
	return command
}
