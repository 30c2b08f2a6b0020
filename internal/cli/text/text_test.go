package text

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
)

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 512: "512", 2 << 20: "2Mi", 1<<30 - 1: "1024Mi", 1 << 30: "1Gi", 3<<30 + 1<<29: "3.5Gi", 1 << 40: "1Ti",
	} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 119 * time.Minute: "119m", 3 * time.Hour: "3h", 72 * time.Hour: "3d",
	} {
		if got := Age(d); got != want {
			t.Errorf("Age(%s) = %s, want %s", d, got, want)
		}
	}
}

// Whatever somebody names a program, a terminal gets one line of printable characters.
func TestPlain(t *testing.T) {
	for name, want := range map[string]string{
		"python train.py":         "python train.py",
		"a\x1b[2J\x1b]0;x\ab":     `a\x1b[2J\x1b]0;x\ab`,
		"two\nlines\r":            `two\nlines\r`,
		"\xff\xfe":                `\xff\xfe`,
		"right\u202eleft":         `right\u202eleft`,
		"züge":                    "züge",
		strings.Repeat("x", 41):   strings.Repeat("x", 39) + "…",
		strings.Repeat("x", 40):   strings.Repeat("x", 40),
		strings.Repeat("\x1b", 9): strings.Repeat(`\x1b`, 9),
	} {
		if got := Plain(name, 40); got != want {
			t.Errorf("Plain(%q) = %q, want %q", name, got, want)
		}
	}
	if got := Plain(strings.Repeat("\x00", 1<<20), 40); Width(got) != 40 {
		t.Errorf("a megabyte becomes %d columns", Width(got))
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("a\x1b[2J\xff", 5)
	f.Fuzz(func(t *testing.T, name string, most int) {
		most %= 200
		got := Plain(name, most)
		if Width(got) > max(most, 0) {
			t.Errorf("%q in %d columns, wanted %d", got, Width(got), most)
		}
		for _, r := range got {
			if r < ' ' || r == 0x7f || r == 0xfffd && !strings.ContainsRune(name, 0xfffd) {
				t.Errorf("%q has %q", got, r)
			}
		}
	})
}

// JSON may end on a terminal too. It says the same when it is read.
func TestEscape(t *testing.T) {
	name := "a\u009b31m\u202e\x7f é 😀\u2028"
	document, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	escaped := Escape(document)
	for _, r := range string(escaped) {
		if !unicode.IsPrint(r) {
			t.Errorf("%q has %q", escaped, r)
		}
	}
	var back string
	if err := json.Unmarshal(escaped, &back); err != nil || back != name {
		t.Errorf("%q comes back as %q (%v)", name, back, err)
	}
}
