// Package plaintext makes what somebody else named or wrote fit for one line that people read.
package plaintext

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is a text in one line of at most so many characters: what would not be seen as itself, such as an escape sequence or
// what changes the direction of letters, is written as in Go, and the rest of what is too long is cut. An ellipsis beyond
// them tells of that. It is no protection against markup.
func Line(text string, most int) string {
	var w strings.Builder
	written := 0
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		shown := text[i : i+n]
		switch {
		case r == utf8.RuneError && n == 1:
			shown = fmt.Sprintf(`\x%02x`, text[i])
		case !unicode.IsPrint(r):
			quoted := strconv.QuoteRune(r)
			shown = quoted[1 : len(quoted)-1]
		}
		if written += utf8.RuneCountInString(shown); written > most {
			w.WriteString("…")
			break
		}
		w.WriteString(shown)
		i += n
	}
	return w.String()
}

// Short cuts each word of a line that has more than so many characters, and keeps what closes it, such as a quotation mark.
func Short(line string, most int) string {
	words := strings.Split(line, " ")
	for i, word := range words {
		if utf8.RuneCountInString(word) <= most {
			continue
		}
		rest := strings.TrimRight(word, `"'):;,.`)
		end := word[len(rest):]
		if len(end) > 4 {
			end = ""
		}
		runes := []rune(rest)
		words[i] = string(runes[:min(len(runes), most)]) + "…" + end
	}
	return strings.Join(words, " ")
}
