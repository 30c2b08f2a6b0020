package abi

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Role says which way the memory of a parameter goes between client and worker, or what its value stands for.
type Role string

// The roles. A parameter without one is a value or a handle that the call uses.
const (
	In      Role = "in"      // the callee reads it
	Out     Role = "out"     // the callee writes it
	InOut   Role = "inout"   // both
	Makes   Role = "makes"   // a handle that the call makes: the client numbers it
	Ends    Role = "ends"    // a handle, by value, which is none afterwards
	Text    Role = "text"    // ended by NUL: read if it is const, otherwise written
	Image   Role = "image"   // code whose own header proves how long it is
	Address Role = "address" // a pointer of the worker's, which nobody here follows
	Count   Role = "count"   // how many elements there is room for, and afterwards how many there are
)

var roles = []Role{In, Out, InOut, Makes, Ends, Text, Image, Address, Count}

// A Length says how many elements a parameter points to: one, if nothing is said.
type Length struct {
	Number    int  // so many
	Of        int  // as the parameter of this number says, counted from 1; 0 for none
	Less      int  // less so many
	UpTo      bool // the parameter says how many there is room for
	Bytes     bool // these are bytes, not elements
	Versioned bool // a structure whose first word says its size
}

// Many says whether an array has this length, of one element or more.
func (l Length) Many() bool { return l.Of > 0 || l.Number > 0 }

// A Parameter is one parameter of a function.
type Parameter struct {
	Type   string // in C
	Role   Role
	Length Length
	Always bool // it is written also when the call fails
}

// Pointer says whether the parameter is an address of the program's.
func (p Parameter) Pointer() bool { return strings.HasSuffix(p.Type, "*") }

// Const says whether the callee may not write what the parameter points to.
func (p Parameter) Const() bool { return strings.HasPrefix(p.Type, "const ") }

// Element is the type that a parameter points to, or its own.
func (p Parameter) Element() string {
	return strings.TrimRight(strings.TrimPrefix(p.Type, "const "), " *")
}

// Written says whether the callee writes what the parameter points to.
func (p Parameter) Written() bool {
	return p.Role == Out || p.Role == InOut || p.Role == Makes || p.Role == Count || p.Role == Text && !p.Const()
}

// String writes a parameter as a description does.
func (p Parameter) String() string {
	words := []string{p.Type}
	if p.Role != "" {
		words = append(words, string(p.Role))
	}
	if length := p.Length.String(); length != "" {
		words = append(words, length)
	}
	if p.Always {
		words = append(words, "always")
	}
	return strings.Join(words, " ")
}

func (l Length) String() string {
	var words []string
	if l.UpTo {
		words = append(words, "upto")
	}
	if l.Bytes {
		words = append(words, "bytes")
	}
	switch {
	case l.Versioned:
		words = append(words, "versioned")
	case l.Number > 0:
		words = append(words, strconv.Itoa(l.Number))
	case l.Of > 0 && l.Less > 0:
		words = append(words, fmt.Sprintf("a%d-%d", l.Of-1, l.Less))
	case l.Of > 0:
		words = append(words, fmt.Sprintf("a%d", l.Of-1))
	}
	return strings.Join(words, " ")
}

var (
	lengthPattern = regexp.MustCompile(`^(?:a([0-9]|1[0-9])(?:-([1-9]))?|([1-9][0-9]{0,5}))$`)
	rolePattern   = regexp.MustCompile(` (?:` + rolesPattern() + `)(?: |$)`)
)

func rolesPattern() string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, "|")
}

// parseParameter reads a type and the words after it.
func parseParameter(text string) (Parameter, error) {
	p := Parameter{Type: text}
	var words []string
	if at := rolePattern.FindStringIndex(text); at != nil {
		p.Type = text[:at[0]]
		words = strings.Split(text[at[0]+1:], " ")
		p.Role = Role(words[0])
		words = words[1:]
	}
	if !ctypePattern.MatchString(p.Type) {
		return p, fmt.Errorf("%q is not a C type in the form \"const T *\"", p.Type)
	}
	if last := len(words) - 1; last >= 0 && words[last] == "always" {
		p.Always, words = true, words[:last]
	}
	if err := p.Length.parse(words); err != nil {
		return p, fmt.Errorf("%q: %w", text, err)
	}
	return p, nil
}

// parse reads the words that say a length, in their one order.
func (l *Length) parse(words []string) error {
	all := strings.Join(words, " ")
	for _, flag := range []struct {
		word string
		is   *bool
	}{{"upto", &l.UpTo}, {"bytes", &l.Bytes}} {
		if len(words) > 0 && words[0] == flag.word {
			*flag.is, words = true, words[1:]
		}
	}
	if len(words) == 0 && !l.UpTo && !l.Bytes {
		return nil
	}
	if slices.Equal(words, []string{"versioned"}) && !l.UpTo && !l.Bytes {
		l.Versioned = true
		return nil
	}
	var m []string
	if len(words) == 1 {
		m = lengthPattern.FindStringSubmatch(words[0])
	}
	if m == nil {
		return fmt.Errorf("%q is no length: want a number, a parameter such as a2 or a2-1, upto a parameter, or versioned", all)
	}
	if m[1] != "" {
		l.Of = 1 + atoi(m[1])
	}
	l.Less, l.Number = atoi(m[2]), atoi(m[3])
	return nil
}

// atoi is the number that a pattern of digits matched, 0 for nothing.
func atoi(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}
