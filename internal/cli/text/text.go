// Package text is how the command line writes amounts, times and what others named.
package text

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"charm.land/lipgloss/v2"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/plaintext"
)

// Size writes an amount of memory with about three digits.
func Size(n uint64) string { return v1alpha1.RoundBytes(n) }

// Age writes a time in the largest unit of which it has at least two, seconds at least.
func Age(d time.Duration) string {
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}} {
		if d >= 2*unit.length {
			return strconv.FormatInt(int64(d/unit.length), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(max(0, d)/time.Second), 10) + "s"
}

// Plain makes what somebody else named fit for one line of a terminal, in at most so many columns: what would not be
// seen as itself, such as an escape sequence, is written as in Go, and the rest of what is too long is cut.
func Plain(name string, most int) string { return Cut(plaintext.Line(name, most), most) }

// Escape writes in a JSON document as \uXXXX what terminals may act upon and JSON lets stand as it is: control characters beyond
// ASCII, and those that change the direction of letters.
func Escape(document []byte) []byte {
	plain := true
	for _, b := range document {
		plain = plain && b < utf8.RuneSelf && b != 0x7f
	}
	if plain {
		return document
	}
	var w []byte
	for _, r := range string(document) {
		if r < 0x7f || unicode.IsPrint(r) {
			w = utf8.AppendRune(w, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			w = fmt.Appendf(w, `\u%04x`, unit)
		}
	}
	return w
}

// Cut shortens a text to so many columns. The last of them tells that there was more.
func Cut(text string, columns int) string {
	if Width(text) <= columns {
		return text
	}
	if columns < 1 {
		return ""
	}
	room, cut := columns-1, 0
	for i, r := range text {
		if room -= Width(string(r)); room < 0 {
			break
		}
		cut = i + utf8.RuneLen(r)
	}
	return text[:cut] + "…"
}

// Pad fills a text up to so many columns.
func Pad(text string, columns int) string {
	return text + strings.Repeat(" ", max(0, columns-Width(text)))
}

// Width is how many columns of a terminal a text takes: letters of some scripts take two.
func Width(text string) int {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return lipgloss.Width(text)
		}
	}
	return len(text)
}
