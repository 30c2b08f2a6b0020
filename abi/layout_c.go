package abi

import (
	"fmt"
	"strings"
)

var cTypes = map[string]string{
	"u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
	"i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
	"f64": "double", "char": "char",
}

var cLiterals = map[string]string{"u32": "UINT32_C", "u64": "UINT64_C", "i32": "INT32_C", "i64": "INT64_C"}

// C is the header with the structures, from the given description.
func (l *Layout) C(source string) string {
	var b strings.Builder
	guard := "DIVVY_" + strings.ToUpper(l.Prefix) + "_LAYOUT_H"
	fmt.Fprintf(&b, "/* Written by go run ./abi/gen from %s; do not edit. */\n", source)
	fmt.Fprintf(&b, "#ifndef %s\n#define %s\n\n#include <stddef.h>\n#include <stdint.h>\n", guard, guard)
	if l.uses("u128") {
		fmt.Fprintf(&b, "\n__extension__ typedef unsigned __int128 %s_u128;\n", l.Prefix)
	}
	for _, c := range l.Constants {
		b.WriteString("\n" + cComment("", c.Doc))
		fmt.Fprintf(&b, "#define %s %s\n", l.cMacro(c.Name), cLiteral(c))
	}
	for _, s := range l.Structs {
		l.cStruct(&b, s)
	}
	b.WriteString("\n#endif\n")
	return b.String()
}

func (l *Layout) uses(element string) bool {
	for _, s := range l.Structs {
		for _, f := range s.Fields {
			if f.element == element {
				return true
			}
		}
	}
	return false
}

func (l *Layout) cMacro(name string) string { return strings.ToUpper(l.Prefix + "_" + name) }

func cLiteral(c Constant) string {
	value, negative := strings.CutPrefix(c.Value, "-")
	literal := fmt.Sprintf("%s(%s)", cLiterals[c.Type], value)
	if negative {
		return "(-" + literal + ")"
	}
	return literal
}

func (l *Layout) cType(element string) string {
	if t, ok := cTypes[element]; ok {
		return t
	}
	return l.Prefix + "_" + element
}

func (l *Layout) cStruct(b *strings.Builder, s Struct) {
	name := l.Prefix + "_" + s.Name
	fmt.Fprintf(b, "\n%stypedef struct %s {\n", cComment("", s.Doc), name)
	for i, f := range s.Fields {
		b.WriteString(cPadding(f.offset-f.before, f.before))
		b.WriteString(cComment("    ", f.Doc))
		align := f.Align
		if i == 0 {
			align = s.Align // raises the whole structure's alignment
		}
		b.WriteString("    ")
		if f.aligned || i == 0 && align > f.Align {
			fmt.Fprintf(b, "_Alignas(%d) ", align)
		}
		fmt.Fprintf(b, "%s %s", l.cType(f.element), f.Name)
		if f.length != "" {
			fmt.Fprintf(b, "[%s]", l.cLength(f.length))
		}
		b.WriteString(";\n")
	}
	b.WriteString(cPadding(s.Size-s.tail, s.tail))
	fmt.Fprintf(b, "} %s;\n", name)
	fmt.Fprintf(b, "_Static_assert(sizeof(%s) == %d, \"%s\");\n", name, s.Size, name)
	fmt.Fprintf(b, "_Static_assert(_Alignof(%s) == %d, \"%s\");\n", name, s.Align, name)
	for _, f := range s.Fields {
		fmt.Fprintf(b, "_Static_assert(offsetof(%s, %s) == %d, \"%s.%s\");\n", name, f.Name, f.offset, name, f.Name)
	}
}

func (l *Layout) cLength(length string) string {
	if length[0] >= '0' && length[0] <= '9' {
		return length
	}
	return l.cMacro(length)
}

func cPadding(offset, n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("    uint8_t pad_%d[%d];\n", offset, n)
}

func cComment(indent, doc string) string {
	if doc == "" {
		return ""
	}
	return fmt.Sprintf("%s/* %s */\n", indent, doc)
}
