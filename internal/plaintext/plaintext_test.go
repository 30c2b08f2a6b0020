package plaintext

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// Whatever somebody names a program, one line of printable characters is shown.
func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"python train.py":         "python train.py",
		"a\x1b[2J\x1b]0;x\ab":     `a\x1b[2J\x1b]0;x\ab`,
		"two\nlines\r":            `two\nlines\r`,
		"\xff\xfe":                `\xff\xfe`,
		"right\u202eleft":         `right\u202eleft`,
		"züge":                    "züge",
		strings.Repeat("x", 41):   strings.Repeat("x", 40) + "…",
		strings.Repeat("x", 40):   strings.Repeat("x", 40),
		strings.Repeat("\x1b", 9): strings.Repeat(`\x1b`, 9),
		"it's":                    "it's",
	} {
		if got := Line(text, 40); got != want {
			t.Errorf("Line(%q) = %q, want %q", text, got, want)
		}
	}
	if got := Line(strings.Repeat("\x00", 1<<20), 40); got != strings.Repeat(`\x00`, 10)+"…" {
		t.Errorf("a megabyte becomes %q", got)
	}
}

// A word that nobody reads to its end is cut, and the sentence around it stays.
func TestShort(t *testing.T) {
	long := strings.Repeat("ü", 300)
	for line, want := range map[string]string{
		"no such share: train":              "no such share: train",
		`no such share: "` + long + `": ls`: `no such share: "` + strings.Repeat("ü", 9) + `…": ls`,
		long + " " + long:                   strings.Repeat("ü", 10) + "… " + strings.Repeat("ü", 10) + "…",
		strings.Repeat(".", 300):            strings.Repeat(".", 0) + "…",
	} {
		if got := Short(line, 10); got != want {
			t.Errorf("Short of %.20q… = %q, want %q", line, got, want)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\x1b[2J\xff", 5)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most %= 200
		got := Line(text, most)
		if utf8.RuneCountInString(got) > max(most, 0)+1 {
			t.Errorf("%q has %d characters, wanted %d", got, utf8.RuneCountInString(got), most)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Errorf("%q has %q", got, r)
			}
		}
	})
}
