package abi

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// A Layout is a set of structures with fixed sizes and offsets.
type Layout struct {
	Prefix    string     `json:"prefix"` // of C names
	GoPrefix  string     `json:"go"`     // of Go names, may be empty
	Constants []Constant `json:"constants"`
	Structs   []Struct   `json:"structs"`
}

// A Constant is an integer known to both languages.
type Constant struct {
	Name  string `json:"name"`
	Type  string `json:"type"`  // u32, u64, i32 or i64
	Value string `json:"value"` // once parsed, a literal of both languages
	Doc   string `json:"doc"`
}

// A Struct is one structure. Sizes, offsets and alignments are bytes.
type Struct struct {
	Name   string  `json:"name"`
	Doc    string  `json:"doc"`
	Align  int     `json:"align"`
	Size   int     `json:"size"`
	Fields []Field `json:"fields"`

	tail int // padding after the last field
}

// A Field is one member of a Struct.
type Field struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Align int    `json:"align"`
	Doc   string `json:"doc"`

	element string // type without the array's length
	length  string // as written, "" for no array
	aligned bool   // Align exceeds the type's own
	before  int    // padding in front
	offset  int
}

// maxStruct bounds a structure, so that no arithmetic here can overflow.
const maxStruct = 1 << 30

var (
	identifier  = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	goPrefix    = regexp.MustCompile(`^([A-Z][A-Za-z0-9]*)?$`)
	typePattern = regexp.MustCompile(`^([a-z][a-z0-9_]*)(?:\[([a-z0-9_]+)\])?$`)
)

// scalars are the sizes of the plain types; each is aligned to its size.
var scalars = map[string]int{
	"u8": 1, "u16": 2, "u32": 4, "u64": 8, "u128": 16,
	"i8": 1, "i16": 2, "i32": 4, "i64": 8, "f64": 8, "char": 1,
}

// ParseLayout reads a description of structures and computes their layout.
// Faults of meaning are reported with file and line, all of them at once.
func ParseLayout(file string, text []byte) (*Layout, error) {
	p := layoutParser{
		file: file, lines: strings.Split(string(text), "\n"),
		constants: map[string]int64{}, structs: map[string]Struct{},
	}
	l := &Layout{}
	if err := yaml.UnmarshalStrict(text, l); err != nil {
		return nil, fmt.Errorf("%s: read layout: %w", file, err)
	}
	if !identifier.MatchString(l.Prefix) {
		p.faults = append(p.faults, fmt.Errorf("%s:1: prefix %q is not a name of small letters", file, l.Prefix))
	}
	if !goPrefix.MatchString(l.GoPrefix) {
		p.faults = append(p.faults, fmt.Errorf("%s:1: go %q is not the beginning of an exported Go name", file, l.GoPrefix))
	}
	if len(l.Structs) == 0 {
		p.faults = append(p.faults, fmt.Errorf("%s:1: no structs", file))
	}
	for i := range l.Constants {
		p.constant(&l.Constants[i])
	}
	for i := range l.Structs {
		p.structure(&l.Structs[i])
	}
	if err := errors.Join(p.faults...); err != nil {
		return nil, err
	}
	return l, nil
}

type layoutParser struct {
	file      string
	lines     []string
	constants map[string]int64
	structs   map[string]Struct
	faults    []error
}

// fault reports a fault of the entity that the names lead to: a constant, a
// structure, or a structure and its field.
func (p *layoutParser) fault(names []string, format string, args ...any) {
	line := 1
	for _, name := range names {
		entry := regexp.MustCompile(`^\s*(- )?\{?\s*name:\s*"?` + regexp.QuoteMeta(name) + `"?\s*(,|}|#|$)`)
		for i := line - 1; i < len(p.lines); i++ {
			if entry.MatchString(p.lines[i]) {
				line = i + 1
				break
			}
		}
	}
	what := strings.Join(names, ".")
	p.faults = append(p.faults, fmt.Errorf("%s:%d: %s: %s", p.file, line, what, fmt.Sprintf(format, args...)))
}

func (p *layoutParser) named(names []string, doc string) {
	name := names[len(names)-1]
	if name == "true" || name == "false" {
		p.fault(names, "YAML takes a bare y, n, yes, no, on or off for a boolean; quote it or choose another name")
	}
	if !identifier.MatchString(name) {
		p.fault(names, "%q is not a name of small letters, digits and single underscores", name)
	}
	if strings.Contains(doc, "*/") || strings.Contains(doc, "\n") {
		p.fault(names, "doc must be one line without the end of a C comment")
	}
}

func (p *layoutParser) constant(c *Constant) {
	names := []string{c.Name}
	p.named(names, c.Doc)
	if _, ok := p.constants[c.Name]; ok {
		p.fault(names, "constant appears twice")
	}
	bits, ok := map[string]int{"u32": 32, "u64": 64, "i32": 32, "i64": 64}[c.Type]
	if !ok {
		p.fault(names, "constants are u32, u64, i32 or i64, not %q", c.Type)
		return
	}
	var length int64 // of an array: other values are no lengths
	if strings.HasPrefix(c.Type, "u") {
		v, err := strconv.ParseUint(c.Value, 0, bits)
		if err != nil {
			p.fault(names, "value %q is no %s", c.Value, c.Type)
			return
		}
		c.Value = unsignedText(v)
		length = int64(min(v, maxStruct+1))
	} else {
		v, err := strconv.ParseInt(c.Value, 0, bits)
		if err != nil || v == -1<<(bits-1) { // the least has no literal in C
			p.fault(names, "value %q is no %s", c.Value, c.Type)
			return
		}
		c.Value = strconv.FormatInt(v, 10)
		length = min(v, maxStruct+1)
	}
	p.constants[c.Name] = length
}

func (p *layoutParser) structure(s *Struct) {
	names := []string{s.Name}
	p.named(names, s.Doc)
	if _, ok := p.structs[s.Name]; ok || scalars[s.Name] != 0 {
		p.fault(names, "type appears twice")
	}
	if _, ok := p.constants[s.Name]; ok {
		p.fault(names, "name is already a constant's")
	}
	if s.Doc == "" {
		p.fault(names, "doc is missing")
	}
	if len(s.Fields) == 0 {
		p.fault(names, "no fields")
		return
	}
	s.Align = p.alignment(names, s.Align, 1)
	end := 0
	for i := range s.Fields {
		f := &s.Fields[i]
		if slices.ContainsFunc(s.Fields[:i], func(g Field) bool { return g.Name == f.Name }) {
			p.fault([]string{s.Name, f.Name}, "field appears twice")
		}
		end = p.field(s, f, end)
	}
	size := roundUp(end, s.Align)
	switch {
	case s.Size == 0:
		s.Size = size
	case s.Size < end || s.Size%s.Align != 0 || s.Size > maxStruct:
		p.fault(names, "size %d: the fields need %d bytes, alignment %d", s.Size, end, s.Align)
	}
	s.tail = s.Size - end
	p.structs[s.Name] = *s
}

// field places f at or after end and returns where it ends.
func (p *layoutParser) field(s *Struct, f *Field, end int) int {
	names := []string{s.Name, f.Name}
	p.named(names, f.Doc)
	m := typePattern.FindStringSubmatch(f.Type)
	if m == nil {
		p.fault(names, "type %q is neither T nor T[length]", f.Type)
		return end
	}
	f.element, f.length = m[1], m[2]
	size, align := scalars[f.element], scalars[f.element]
	if t, ok := p.structs[f.element]; ok {
		size, align = t.Size, t.Align
	}
	if size == 0 {
		p.fault(names, "type %q is unknown; structs come before their use", f.element)
		return end
	}
	if f.length != "" {
		n := p.length(names, f.length)
		if n*int64(size) > maxStruct {
			p.fault(names, "larger than %d bytes", maxStruct)
			return end
		}
		size *= int(n)
	}
	f.aligned = f.Align > align
	f.Align = p.alignment(names, f.Align, align)
	s.Align = max(s.Align, f.Align)
	f.offset = roundUp(end, f.Align)
	f.before = f.offset - end
	if f.offset+size > maxStruct {
		p.fault(names, "struct becomes larger than %d bytes", maxStruct)
		return end
	}
	return f.offset + size
}

func (p *layoutParser) length(names []string, text string) int64 {
	n, known := p.constants[text]
	if !known {
		v, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			p.fault(names, "length %q is neither a number nor an earlier constant", text)
			return 1
		}
		n = v
	}
	if n < 1 || n > maxStruct {
		p.fault(names, "length %s is not between 1 and %d", text, maxStruct)
		return 1
	}
	return n
}

// alignment checks a wish against what the type needs and returns the stronger.
func (p *layoutParser) alignment(names []string, wish, need int) int {
	if wish < 0 || wish&(wish-1) != 0 || wish > 1<<16 {
		p.fault(names, "align %d is not a power of two up to 65536", wish)
		return need
	}
	return max(wish, need)
}

func roundUp(n, align int) int { return (n + align - 1) / align * align }

// unsignedText writes small values, which are counts, in decimal, and large
// ones, which are bit patterns, in hexadecimal.
func unsignedText(v uint64) string {
	if v < 1<<16 {
		return strconv.FormatUint(v, 10)
	}
	return fmt.Sprintf("%#x", v)
}
