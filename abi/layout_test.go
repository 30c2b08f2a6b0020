package abi

import (
	"strings"
	"testing"
)

func TestParseLayoutFaults(t *testing.T) {
	head := "prefix: p\nstructs:\n  - name: a\n    doc: A.\n    fields:\n      - {name: x, type: u8}\n"
	field := func(fields string) string { return head + "      - {" + fields + "}\n" }
	constant := func(fields string) string { return "constants:\n  - {" + fields + "}\n" + head }
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "no structs"},
		{"bad YAML", "prefix: [", "f.yaml:1: read layout: "},
		{"unknown key", head + "more: 1\n", "f.yaml:7: read layout: field more not found"},
		{"unknown field key", field("name: b, type: u8, size: 3"), "f.yaml:7: read layout: field size not found"},
		{"repeated key", "prefix: p\n" + head, `f.yaml:2: read layout: mapping key "prefix" already defined`},
		{"no prefix", "structs:\n  - {name: a, doc: A., fields: [{name: x, type: u8}]}\n", `f.yaml:1: prefix: ""`},
		{"bad Go prefix", "go: raw\n" + head, `f.yaml:1: go: "raw"`},
		{"capital", field("name: B, type: u8"), "f.yaml:7: a.B: "},
		{"no scalar", field("name: [b], type: u8"), "f.yaml:7: read layout: want one value here"},
		{"second document", head + "---\n" + head, "f.yaml: a second document"},
		{"C keyword", field("name: register, type: u8"), `f.yaml:7: a.register: "register" is a word of C`},
		{"C23 keyword", field("name: nullptr, type: u8"), "is a word of C"},
		{"like padding", field("name: pad_8, type: u8"), "name of padding"},
		{"field twice in Go", field("name: x_1, type: u8") + "      - {name: x1, type: u8}\n", "f.yaml:8: a.x1: in Go this is called OffsetOfAX1, as a.x_1 is already"},
		{"struct twice in Go", head + "  - name: a1\n    doc: A.\n    fields: [{name: x, type: u8}]\n  - name: a_1\n    doc: A.\n    fields: [{name: x, type: u8}]\n", "f.yaml:10: a_1: in Go this is called A1, as a1 is already"},
		{"field twice", field("name: x, type: u8"), "a.x: field appears twice"},
		{"unknown type", field("name: b, type: u7"), `f.yaml:7: a.b: type "u7" is unknown`},
		{"recursive type", field("name: b, type: a"), `f.yaml:7: a.b: type "a" is unknown`},
		{"bad type", field("name: b, type: \"u8[\""), "is neither T nor T[length]"},
		{"no length", field("name: b, type: \"u8[k]\""), `length "k" is neither`},
		{"zero length", field("name: b, type: \"u8[0]\""), "is not between 1 and"},
		{"huge length", field("name: b, type: \"u64[1000000000]\""), "larger than"},
		{"bad align", field("name: b, type: u8, align: 3"), "align 3 is not a power of two"},
		{"negative align", field("name: b, type: u8, align: -4"), "f.yaml:7: a.b: align -4 is not between 1 and"},
		{"broken align", field("name: b, type: u8, align: 64.9"), `f.yaml:7: a.b: align: "64.9" is not an integer`},
		{"broken align of a struct", strings.Replace(head, "    doc", "    align: 8.5\n    doc", 1), `f.yaml:4: a: align: "8.5" is not an integer`},
		{"broken size", strings.Replace(head, "    doc", "    size: 640.9\n    doc", 1), `f.yaml:4: a: size: "640.9" is not an integer`},
		{"zero size", strings.Replace(head, "    doc", "    size: 0\n    doc", 1), "f.yaml:4: a: size 0 is not between 1 and"},
		{"comment end", field("name: b, type: u8, doc: \"*/ int x;\""), "beginning or end of a C comment"},
		{"comment begin", field("name: b, type: u8, doc: \"a /* b\""), "f.yaml:7: a.b: doc must be one line"},
		{"comment begin of a struct", strings.Replace(head, "A.", "a /* b", 1), "f.yaml:3: a: doc must be one line"},
		{"zero byte in a doc", field(`name: b, type: u8, doc: "a\0b"`), "f.yaml:7: a.b: doc must be one line without control characters"},
		{"byte order mark in a doc", field(`name: b, type: u8, doc: "a\ufeffb"`), "f.yaml:7: a.b: doc must be one line"},
		{"zero byte", field("name: b, type: u8, doc: \"a\x00b\""), `f.yaml:7: read layout: '\x00' is a control character`},
		{"line end in a formula", constant(`name: k, type: u32, value: "1 +\n1"`), "f.yaml:2: k: value \"1 +\\n1\" must be one line"},
		{"small size", strings.Replace(field("name: b, type: u64"), "    doc", "    size: 8\n    doc", 1), "f.yaml:3: a: size 8: the fields need 16"},
		{"odd size", strings.Replace(field("name: b, type: u64"), "    doc", "    size: 20\n    doc", 1), "alignment 8"},
		{"no doc", "prefix: p\nstructs:\n  - name: a\n    fields:\n      - {name: x, type: u8}\n", "f.yaml:3: a: doc is missing"},
		{"no fields", "prefix: p\nstructs:\n  - {name: a, doc: A.}\n", "f.yaml:3: a: no fields"},
		{"struct twice", head + "  - name: a\n    doc: A.\n    fields: [{name: x, type: u8}]\n", "a: type appears twice"},
		{"struct like scalar", strings.Replace(head, "name: a", "name: u8", 1), "u8: type appears twice"},
		{"constant type", constant("name: k, type: u8, value: 1"), "f.yaml:2: k: constants are"},
		{"constant range", constant("name: k, type: u32, value: 4294967296"), `f.yaml:2: k: value "4294967296" gives 4294967296, outside of u32: 0 to 4294967295`},
		{"constant sign", constant("name: k, type: u64, value: -1"), "f.yaml:2: k: value \"-1\" gives -1, outside of u64"},
		{"constant least", constant("name: k, type: i32, value: -2147483648"), "outside of i32"},
		{"constant text", constant("name: k, type: i32, value: many"), `f.yaml:2: k: value "many": "many" is not an earlier constant`},
		{"constant twice", "constants:\n  - {name: k, type: u32, value: 1}\n  - {name: k, type: u32, value: 1}\n" + head, "k: constant appears twice"},
		{"constant over 64 bits", constant("name: k, type: u64, value: 18446744073709551616"), "f.yaml:2: k: value"},
		{"constant below 64 bits", constant("name: k, type: i64, value: -9223372036854775808"), "outside of i64"},
		{"constant fraction", constant("name: k, type: u32, value: 1.5"), `f.yaml:2: k: value "1.5": "1.5" is not an integer`},
		{"constant power of ten", constant("name: k, type: u32, value: 1e9"), `"1e9" is not an integer`},
		{"constant octal", constant("name: k, type: u32, value: 010"), `"010" is not an integer`},
		{"constant odd groups", constant("name: k, type: u32, value: 10_00"), `"10_00" is not an integer`},
		{"constant absent", constant("name: k, type: u32"), "f.yaml:2: k: value is missing"},
		{"no list", "constants: 5\n" + head, "f.yaml:1: read layout: want a list here"},
		{"no keys", "constants: [5]\n" + head, "f.yaml:1: read layout: want keys with values here"},
		{"keys for a list", "constants: {name: k}\n" + head, "f.yaml:1: read layout: want a list here"},
		{"a list of everything", "- prefix: p\n", "f.yaml:1: read layout: want keys with values here"},
		{"no comparison", head + "requires: [{because: it has to}]\n", "f.yaml:7: requires: that is missing"},
		{"constant capital", constant("name: Slots, type: u32, value: 1"), `f.yaml:2: Slots: "Slots" is not a name`},
		{"constant twice in Go", "constants:\n  - {name: k1, type: u32, value: 1}\n  - {name: k_1, type: u32, value: 1}\n" + head, "f.yaml:3: k_1: in Go this is called K1, as k1 is already"},
		{"constant like a size", constant("name: size_of_a, type: u32, value: 1"), "in Go this is called SizeOfA, as size_of_a is already"},
		{"constant like struct", constant("name: a, type: u32, value: 1"), "name is already a constant's"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseLayout("f.yaml", []byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("have %v, want %q", err, c.want)
			}
		})
	}
}

// TestOneFaultForOneMistake spoils one line on which others depend: only that one is reported.
func TestOneFaultForOneMistake(t *testing.T) {
	const text = `prefix: p
constants:
  - {name: slots, type: u32, value: 8}
  - {name: words, type: u32, value: (slots + 63) / 64}
  - {name: bytes, type: u32, value: words * 8}
structs:
  - name: a
    doc: A.
    fields:
      - {name: x, type: "u8[slots]"}
      - {name: y, type: "u8[slots]"}
      - {name: z, type: "u8[bytes]"}
  - name: b
    doc: B.
    fields:
      - {name: x, type: "a[slots]"}
requires:
  - {that: slots > 1, because: it has to}
`
	for _, c := range []struct{ line, becomes, want string }{
		{"value: 8", "value: -1", `f.yaml:3: slots: value "-1" gives -1, outside of u32: 0 to 4294967295`},
		{"value: 8", "value: 8.5", `f.yaml:3: slots: value "8.5": "8.5" is not an integer such as 512, 1_000_000 or 0x8000`},
		{"type: u32, value: 8", "type: u8, value: 8", `f.yaml:3: slots: constants are u32, u64, i32 or i64, not "u8"`},
		{", value: 8", "", "f.yaml:3: slots: value is missing"},
		{"value: 8", "value: 0", "f.yaml:10: a.x: length slots is 0, which is not between 1 and 1073741824\nf.yaml:12: a.z: length bytes is 0, which is not between 1 and 1073741824"},
		{"(slots + 63) / 64", "slots / 0", `f.yaml:4: words: value "slots / 0": division by 0`},
	} {
		_, err := ParseLayout("f.yaml", []byte(strings.Replace(text, c.line, c.becomes, 1)))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: have %v, want %s", c.becomes, err, c.want)
		}
	}
	_, err := ParseLayout("f.yaml", []byte("prefix: p\nstructs:\n  - {name: a, doc: A.}\n  - {name: b, doc: B., fields: [{name: x, type: a}]}\n"))
	if err == nil || err.Error() != "f.yaml:3: a: no fields" {
		t.Errorf("a struct without fields: have %v", err)
	}
}

func TestLayoutPadding(t *testing.T) {
	l := exampleLayout(t)
	for _, c := range []struct {
		of, name     string
		offset, size int
	}{
		{"word", "tag", 8, 16},
		{"slot", "first", 16, 128},
		{"slot", "ratio", 40, 128},
		{"slot", "small", 64, 128},
		{"page", "whole", 16, 768},
		{"page", "slot", 64, 768},
		{"page", "last", 512, 768},
	} {
		for _, s := range l.Structs {
			for _, f := range s.Fields {
				if s.Name == c.of && f.Name == c.name && (f.offset != c.offset || s.Size != c.size) {
					t.Errorf("%s.%s: have offset %d of %d, want %d of %d", s.Name, f.Name, f.offset, s.Size, c.offset, c.size)
				}
			}
		}
	}
}

// A length is written as each language groups digits.
func TestLengthTexts(t *testing.T) {
	for _, c := range []struct{ length, inC, inGo string }{
		{"1_000", "uint8_t x[1000];", "X [1_000]uint8"},
		{"0x10", "uint8_t x[0x10];", "X [0x10]uint8"},
		{"12", "uint8_t x[12];", "X [12]uint8"},
	} {
		l, err := ParseLayout("f.yaml", []byte("prefix: p\nstructs: [{name: a, doc: A., fields: [{name: x, type: \"u8["+c.length+"]\"}]}]\n"))
		if err != nil {
			t.Errorf("%s: %v", c.length, err)
			continue
		}
		if have := l.C("f.yaml"); !strings.Contains(have, c.inC) {
			t.Errorf("%s: have %s, want %s in C", c.length, have, c.inC)
		}
		if have, err := l.Go("f.yaml", "p"); err != nil || !strings.Contains(have, c.inGo) {
			t.Errorf("%s: have %s (%v), want %s in Go", c.length, have, err, c.inGo)
		}
	}
}

func FuzzParseLayout(f *testing.F) {
	f.Add([]byte("prefix: p\ngo: P\nconstants:\n  - {name: k, type: u32, value: 4}\n" +
		"structs:\n  - name: a\n    doc: A.\n    align: 16\n    fields:\n      - {name: x, type: \"u16[k]\"}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := ParseLayout("f.yaml", text)
		if err != nil {
			return
		}
		for _, s := range l.Structs {
			end := 0
			for _, g := range s.Fields {
				if g.offset < end || g.offset%g.Align != 0 {
					t.Errorf("%s.%s: offset %d, alignment %d, %d bytes before", s.Name, g.Name, g.offset, g.Align, end)
				}
				end = g.offset + 1
			}
			if s.Size < end || s.Size > maxStruct || s.Size%s.Align != 0 {
				t.Errorf("%s: size %d, alignment %d, last field in byte %d", s.Name, s.Size, s.Align, end)
			}
		}
	})
}
