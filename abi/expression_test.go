package abi

import (
	"strings"
	"testing"
)

func withConstants(constants, requires string) string {
	return "prefix: p\nconstants:\n" + constants + "structs:\n  - name: a\n    doc: A.\n    fields:\n      - {name: x, type: \"u8[slots]\"}\n" + requires
}

func TestComputedConstants(t *testing.T) {
	for expression, want := range map[string]string{
		"(slots + 63) / 64":     "16",
		"bits(slots)":           "11",
		"bits(0)":               "0",
		"1 << bits(slots - 1)":  "1024",
		"slots * 2 - 1":         "2047",
		"slots - 2 - 3":         "1019",
		"slots % 10 + 0x10":     "20",
		"1_000_000 * slots":     "1024000000",
		"1 << 4 + 1":            "32",
		"slots":                 "1024",
		"((((slots))))":         "1024",
		"2 * (slots - 1) / 3":   "682",
		"slots / (slots - 1)":   "1",
		"(1 << 64) / (1 << 60)": "16",
	} {
		text := withConstants("  - {name: slots, type: u32, value: 1024}\n  - {name: k, type: u64, value: "+expression+"}\n", "")
		l, err := ParseLayout("f.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", expression, err)
		} else if have := l.Constants[1].cText(); have != want {
			t.Errorf("%s: have %s, want %s", expression, have, want)
		}
	}
}

func TestExpressionFaults(t *testing.T) {
	for expression, want := range map[string]string{
		"slots +":                  "it ends too early",
		"(slots":                   "a closing parenthesis is missing",
		"slots)":                   `")" is not expected here`,
		"slots slots":              `"slots" is not expected here`,
		"later":                    `"later" is not an earlier constant`,
		"k":                        `"k" is not an earlier constant`,
		"slots / 0":                "division by 0",
		"slots % (slots - slots)":  "division by 0",
		"1 << 200":                 "a shift by 200",
		"1 << (0 - 1)":             "a shift by -1",
		"slots < 3":                `"<" is not expected here`,
		"slots - 2000":             "outside of u32",
		"slots << 32":              "outside of u32",
		"size(b)":                  `"b" is not an earlier struct`,
		"slots & 1":                `"&" is not expected here`,
		"(slots + 017)":            `"017" is not an integer`,
		strings.Repeat("(", 300):   "at most 200 characters",
		"bits(slots":               "a closing parenthesis is missing",
		"slots + 1.5":              "is not expected here",
		"slots + 9a":               "is not an integer",
		"slots + 0x":               "is not an integer",
		"slots + 1_00":             "is not an integer",
		"bits + 1":                 `"bits" is not an earlier constant`,
		"slots ++ 1":               "is not an earlier constant",
		"1 << 100 << 100 << 100":   "outside of u32",
		"slots * (slots - (1 + 1)": "a closing parenthesis is missing",
	} {
		text := withConstants("  - {name: slots, type: u32, value: 1024}\n  - {name: k, type: u32, value: \""+expression+"\"}\n  - {name: later, type: u32, value: 1}\n", "")
		if _, err := ParseLayout("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f.yaml:4: k: ") {
			t.Errorf("%s: have %v, want line 4 and %q", expression, err, want)
		}
	}
}

func TestRequirements(t *testing.T) {
	for that, want := range map[string]string{
		"slots == 1024":             "",
		"slots <= 1 << 10":          "",
		"slots >= bits(slots)":      "",
		"size(a) == slots":          "",
		"size(a) * 2 < 1 << 12":     "",
		"slots < 1024":              "f.yaml:10: requires: slots < 1024, because it has to; here slots is 1024",
		"size(a) + slots > 1 << 20": "here size(a) is 1024, slots is 1024",
		"slots":                     "a comparison is missing",
		"slots < 1 < 2":             `"<" is not expected here`,
		"size(c) < 1":               `"c" is not an earlier struct`,
		"n < 1":                     `"n" is not an earlier constant`,
	} {
		text := withConstants("  - {name: slots, type: u32, value: 1024}\n", "requires:\n  - {that: "+that+", because: it has to}\n")
		_, err := ParseLayout("f.yaml", []byte(text))
		if want == "" && err != nil {
			t.Errorf("%s: %v", that, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: have %v, want %q", that, err, want)
		}
	}
	text := withConstants("  - {name: slots, type: u32, value: 1}\n", "requires:\n  - {that: slots < 2}\n")
	if _, err := ParseLayout("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "because is missing") {
		t.Errorf("have %v, want a missing reason", err)
	}
}

// Numbers are written as people write them, in each language.
func TestConstantTexts(t *testing.T) {
	for _, c := range []struct{ kind, value, inC, inGo string }{
		{"u64", "100000000", "UINT64_C(100000000)", "100_000_000"},
		{"u64", "100_000_000", "UINT64_C(100000000)", "100_000_000"},
		{"u32", "1024", "UINT32_C(1024)", "1024"},
		{"u32", "65535", "UINT32_C(65535)", "65_535"},
		{"u32", "0x8000", "UINT32_C(0x8000)", "0x8000"},
		{"u64", "0xffffffffffffffff", "UINT64_C(0xffffffffffffffff)", "0xffffffffffffffff"},
		{"i64", "-9223372036854775807", "(-INT64_C(9223372036854775807))", "-9_223_372_036_854_775_807"},
		{"u32", "0x10 * 1000000", "UINT32_C(16000000)", "16_000_000"},
	} {
		text := withConstants("  - {name: slots, type: u32, value: 1}\n  - {name: k, type: "+c.kind+", value: "+c.value+"}\n", "")
		l, err := ParseLayout("f.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", c.value, err)
			continue
		}
		if have := cLiteral(l.Constants[1]); have != c.inC {
			t.Errorf("%s: have %s in C, want %s", c.value, have, c.inC)
		}
		if have := l.Constants[1].goText(); have != c.inGo {
			t.Errorf("%s: have %s in Go, want %s", c.value, have, c.inGo)
		}
	}
}
