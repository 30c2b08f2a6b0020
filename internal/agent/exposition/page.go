package exposition

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is what a family's values are.
type kind string

const (
	gauge   kind = "gauge"
	counter kind = "counter"
)

// family is one metric: its samples differ in labels.
type family struct {
	name string
	kind kind
	help string
}

// page is an answer that is written, in the text format of Prometheus.
type page struct {
	text []byte
	name string // of the family that is written
}

// family begins a metric. One without samples is told all the same.
func (p *page) family(name string, k kind, help string) {
	p.name = name
	for _, part := range []string{"# HELP ", name, " ", help, "\n# TYPE ", name, " ", string(k), "\n"} {
		p.text = append(p.text, part...)
	}
}

// sample writes one value of the family that was begun last.
func (p *page) sample(labels string, value float64) {
	p.text = append(p.text, p.name...)
	p.text = append(p.text, '{')
	p.text = append(p.text, labels...)
	p.text = append(p.text, "} "...)
	p.text = strconv.AppendFloat(p.text, value, 'g', -1, 64)
	p.text = append(p.text, '\n')
}

// one writes a family of one sample.
func (p *page) one(f family, labels string, value float64) {
	p.family(f.name, f.kind, f.help)
	p.sample(labels, value)
}

// labels renders names and values that follow each other.
func labels(pairs ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(pairs[i])
		b.WriteString(`="`)
		b.WriteString(value(pairs[i+1]))
		b.WriteByte('"')
	}
	return b.String()
}

// longestValue is more than the longest name of an object of Kubernetes (253).
const longestValue = 256

// value is what a label shows of a text that anybody may have chosen: at most longestValue characters, with an escape
// in place of what a terminal would obey or nobody would see, and nothing in it that ends the label.
func value(text string) string {
	plain := len(text) <= longestValue
	for i := 0; i < len(text) && plain; i++ {
		c := text[i]
		plain = c >= ' ' && c <= '~' && c != '"' && c != '\\'
	}
	if plain {
		return text
	}
	var b strings.Builder
	shown := 0
	for at := 0; at < len(text); shown++ {
		if shown == longestValue {
			b.WriteString("…")
			break
		}
		r, size := utf8.DecodeRuneInString(text[at:])
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteByte('?')
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case !unicode.IsPrint(r):
			// The backslash is one of the value's own, so it is doubled.
			b.WriteString(`\` + strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		at += size
	}
	return b.String()
}
