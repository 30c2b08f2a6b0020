package abi

import (
	"fmt"
	"regexp"
)

// Nothing is the kind of an address that is sent as NULL.
const Nothing = "nothing"

// A Hold is a field of a structure that is a handle, or an address that is not sent.
type Hold struct {
	Field   string // as offsetof takes it
	Kind    string // a kind of handles, or Nothing
	At      int    // offset in bytes
	OnlyOut bool   // whether only an answer has it
	When    bool   // whether it is there only if the word at WhenAt is WhenIs
	WhenAt  int
	WhenIs  int
}

var holdPattern = regexp.MustCompile(
	`^([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*) ([A-Za-z_][A-Za-z0-9_]*) ([0-9]{1,5})( out)?(?: when ([0-9]{1,5}) is ([0-9]{1,5}))?$`)

// parseHold reads "field kind offset", and what may follow.
func parseHold(text string) (Hold, error) {
	m := holdPattern.FindStringSubmatch(text)
	if m == nil {
		return Hold{}, fmt.Errorf("%q is not a field, its kind, its offset, and \"out\" or \"when 0 is 1\" where needed", text)
	}
	return Hold{
		Field: m[1], Kind: m[2], At: atoi(m[3]), OnlyOut: m[4] != "",
		When: m[5] != "", WhenAt: atoi(m[5]), WhenIs: atoi(m[6]),
	}, nil
}

// fault says what is wrong with a field of a structure of this size.
func (h Hold) fault(size int, isHandle func(string) bool) string {
	switch {
	case h.Kind != Nothing && !isHandle(h.Kind):
		return fmt.Sprintf("%s: %s is no kind of handles, and not %q", h.Field, h.Kind, Nothing)
	case h.At%8 != 0 || h.At+8 > size:
		return fmt.Sprintf("%s: 8 bytes at %d are not aligned within %d", h.Field, h.At, size)
	case h.When && (h.WhenAt%4 != 0 || h.WhenAt+4 > size):
		return fmt.Sprintf("%s: the word at %d is not aligned within %d bytes", h.Field, h.WhenAt, size)
	}
	return ""
}
