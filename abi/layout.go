package abi

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
)

// A Layout is a set of structures with fixed sizes and offsets.
type Layout struct {
	Prefix    string // of C names
	GoPrefix  string // of Go names, may be empty
	Constants []Constant
	Structs   []Struct

	requires []requirement
}

// A Struct is one structure. Sizes, offsets and alignments are bytes.
type Struct struct {
	Name   string
	Doc    string
	Align  int
	Size   int
	Fields []Field

	line int
	tail int // padding after the last field
}

// A Field is one member of a Struct.
type Field struct {
	Name  string
	Type  string
	Align int
	Doc   string

	line    int
	element string // type without the array's length
	length  string // as written, "" for no array
	aligned bool   // Align exceeds the type's own
	before  int    // padding in front
	offset  int
}

// maxStruct bounds a structure, so that no arithmetic here can overflow.
const maxStruct = 1 << 30

var typePattern = regexp.MustCompile(`^([a-z][a-z0-9_]*)(?:\[([a-z0-9_]+)\])?$`)

// scalars are the sizes of the plain types; each is aligned to its size.
var scalars = map[string]int{
	"u8": 1, "u16": 2, "u32": 4, "u64": 8, "u128": 16,
	"i8": 1, "i16": 2, "i32": 4, "i64": 8, "f64": 8, "char": 1,
}

// ParseLayout reads a description of structures, computes their layout and checks
// what the description requires of its values. Faults are reported with file and
// line, all of them at once.
func ParseLayout(file string, text []byte) (*Layout, error) {
	l, err := readDescription(file, text)
	if err != nil {
		return nil, err
	}
	p := layoutParser{
		file: file, layout: l,
		constants: map[string]*big.Int{}, structs: map[string]Struct{}, goNames: map[string]string{},
	}
	if !identifier.MatchString(l.Prefix) {
		p.fault(1, "prefix", "%q is not a name of small letters, digits and single underscores", l.Prefix)
	}
	if !goPrefix.MatchString(l.GoPrefix) {
		p.fault(1, "go", "%q is not the beginning of an exported Go name", l.GoPrefix)
	}
	if len(l.Structs) == 0 {
		p.fault(1, "structs", "no structs")
	}
	for i := range l.Constants {
		p.constant(&l.Constants[i])
	}
	for i := range l.Structs {
		p.structure(&l.Structs[i])
	}
	if len(p.faults) == 0 { // else values and sizes are missing
		for _, r := range l.requires {
			p.requirement(r)
		}
	}
	if err := errors.Join(p.faults...); err != nil {
		return nil, err
	}
	return l, nil
}

type layoutParser struct {
	file      string
	layout    *Layout
	constants map[string]*big.Int // nil for one whose fault is reported
	structs   map[string]Struct
	goNames   map[string]string // what has each of them
	faults    []error
}

// fault reports a fault of what a line describes.
func (p *layoutParser) fault(line int, what, format string, args ...any) {
	p.faults = append(p.faults, fmt.Errorf("%s:%d: %s: %w", p.file, line, what, fmt.Errorf(format, args...)))
}

func (p *layoutParser) structure(s *Struct) {
	p.named(s.line, s.Name, s.Name, s.Doc)
	if _, ok := p.structs[s.Name]; ok || scalars[s.Name] != 0 {
		p.fault(s.line, s.Name, "type appears twice")
	}
	if _, ok := p.constants[s.Name]; ok {
		p.fault(s.line, s.Name, "name is already a constant's")
	}
	p.goNamed(s.line, s.Name, p.layout.goName(s.Name))
	p.goNamed(s.line, "size of "+s.Name, "SizeOf"+p.layout.goName(s.Name))
	if s.Doc == "" {
		p.fault(s.line, s.Name, "doc is missing")
	}
	if len(s.Fields) == 0 {
		p.fault(s.line, s.Name, "no fields")
		p.structs[s.Name] = Struct{Align: 1, Size: 1} // so that its users are not faulty too
		return
	}
	s.Align = p.alignment(s.line, s.Name, s.Align, 1)
	end := 0
	for i := range s.Fields {
		f := &s.Fields[i]
		if slices.ContainsFunc(s.Fields[:i], func(g Field) bool { return g.Name == f.Name }) {
			p.fault(f.line, s.Name+"."+f.Name, "field appears twice")
		}
		end = p.field(s, f, end)
	}
	size := roundUp(end, s.Align)
	switch {
	case s.Size == 0:
		s.Size = size
	case s.Size < end || s.Size%s.Align != 0 || s.Size > maxStruct:
		p.fault(s.line, s.Name, "size %d: the fields need %d bytes, alignment %d", s.Size, end, s.Align)
	}
	s.tail = s.Size - end
	p.structs[s.Name] = *s
}

// field places f at or after end and returns where it ends.
func (p *layoutParser) field(s *Struct, f *Field, end int) int {
	what := s.Name + "." + f.Name
	p.named(f.line, what, f.Name, f.Doc)
	p.fieldNamed(f.line, what, f.Name)
	p.goNamed(f.line, what, "OffsetOf"+p.layout.goName(s.Name)+goName(f.Name))
	m := typePattern.FindStringSubmatch(f.Type)
	if m == nil {
		p.fault(f.line, what, "type %q is neither T nor T[length]", f.Type)
		return end
	}
	f.element, f.length = m[1], m[2]
	size, align := scalars[f.element], scalars[f.element]
	if t, ok := p.structs[f.element]; ok {
		size, align = t.Size, t.Align
	}
	if size == 0 {
		p.fault(f.line, what, "type %q is unknown; structs come before their use", f.element)
		return end
	}
	if f.length != "" {
		n := p.length(f.line, what, f.length)
		if n*int64(size) > maxStruct {
			p.fault(f.line, what, "larger than %d bytes", maxStruct)
			return end
		}
		size *= int(n)
	}
	f.aligned = f.Align > align
	f.Align = p.alignment(f.line, what, f.Align, align)
	s.Align = max(s.Align, f.Align)
	f.offset = roundUp(end, f.Align)
	f.before = f.offset - end
	if f.offset+size > maxStruct {
		p.fault(f.line, what, "struct becomes larger than %d bytes", maxStruct)
		return end
	}
	return f.offset + size
}

// length is what a number or an earlier constant says of an array.
func (p *layoutParser) length(line int, what, text string) int64 {
	n, known := p.constants[text]
	if !known {
		var err error
		if n, err = readNumber(text); err != nil {
			p.fault(line, what, "length %q is neither a number nor an earlier constant", text)
			return 1
		}
	}
	if n == nil {
		return 1
	}
	if n.Cmp(big.NewInt(1)) < 0 || n.Cmp(big.NewInt(maxStruct)) > 0 {
		is := ""
		if known {
			is = fmt.Sprintf("is %d, which ", n)
			p.constants[text] = nil // the other arrays of this length say nothing new
		}
		p.fault(line, what, "length %s %sis not between 1 and %d", text, is, maxStruct)
		return 1
	}
	return n.Int64()
}

// alignment checks a wish against what the type needs and returns the stronger.
func (p *layoutParser) alignment(line int, what string, wish, need int) int {
	if wish&(wish-1) != 0 || wish > 1<<16 {
		p.fault(line, what, "align %d is not a power of two up to 65536", wish)
		return need
	}
	return max(wish, need)
}

func roundUp(n, align int) int { return (n + align - 1) / align * align }
