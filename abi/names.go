package abi

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var (
	identifier = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	goPrefix   = regexp.MustCompile(`^([A-Z][A-Za-z0-9]*)?$`)
	padding    = regexp.MustCompile(`^pad_[0-9]+$`)
)

// cKeywords are the words that no field can have for a name in C, up to C23 and
// with what GNU's compiler adds. Every Go name begins with a capital, which no keyword of Go does.
var cKeywords = strings.Fields(`alignas alignof asm auto bool break case char const constexpr
	continue default do double else enum extern false float for goto if inline int long nullptr
	register restrict return short signed sizeof static static_assert struct switch thread_local
	true typedef typeof typeof_unqual union unsigned void volatile while linux unix i386`)

// named checks what the description calls an entity, and its doc.
func (p *layoutParser) named(line int, what, name, doc string) {
	if !identifier.MatchString(name) {
		p.fault(line, what, "%q is not a name of small letters, digits and single underscores", name)
	}
	if !commentable(doc) {
		p.fault(line, what, "doc must be one line without control characters and without the beginning or end of a C comment")
	}
}

// commentable says whether a comment in both languages can hold the text. C's compiler warns of a comment in a comment,
// and Go's refuses the byte order mark.
func commentable(text string) bool {
	return !strings.Contains(text, "/*") && !strings.Contains(text, "*/") &&
		!strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || r == '\ufeff' })
}

// fieldNamed checks what only fields have to satisfy: C spells them as they are.
func (p *layoutParser) fieldNamed(line int, what, name string) {
	if slices.Contains(cKeywords, name) {
		p.fault(line, what, "%q is a word of C itself; choose another name", name)
	}
	if padding.MatchString(name) {
		p.fault(line, what, "pad_ and a number is the name of padding; choose another name")
	}
}

// goNamed reports two constants, structures or offsets to which Go would give
// one name.
func (p *layoutParser) goNamed(line int, what, name string) {
	if first, ok := p.goNames[name]; ok && first != what {
		p.fault(line, what, "in Go this is called %s, as %s is already; choose another name", name, first)
		return
	}
	p.goNames[name] = what
}
