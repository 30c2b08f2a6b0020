package redaction

import (
	"bytes"
)

// stems are what names have in them that say that their values are secrets. The second group are those which also other names
// have, so they count as the last word of a name alone, and where a value is assigned.
var stems = compiled(`(?i)(passwd|password|passphrase|passcode|pgpass|requirepass|pwd|secret|token|api[_\-]?key|access[_\-]?key|account[_\-]?key|private[_\-]?key|` +
	`client[_\-]?key[_\-]?data|credential|auth[_\-]?key|signing[_\-]?key|encryption[_\-]?key|session[_\-]?key|ssh[_\-]?key|license[_\-]?key|cookie|bearer)|` +
	`(pass|auth|key|pat|jwt|session|otp|signature|sig)`)

var (
	// nameEnd is the rest of a name behind a stem.
	nameEnd = compiled(`^s?\d*(?:[_\-.][\w.\-]*)?`)
	// assigned is what stands between a name and its value, with the quote that ends the name.
	assigned   = compiled(`^\\*["']?(?:[ \t]*(?:=>|:=|==|[:=])[ \t]*|%3[AaDd])`)
	equal      = compiled(`^(?:[ \t]*(?:=>|:=|==|=)[ \t]*|%3[Dd]|\\*["'][ \t]*[:=][ \t]*)`)
	plainEqual = compiled(`^(?:[ \t]*==?[ \t]*|%3[Dd])`)
	// listed is what stands between a flag and its value, also where both are items of lists.
	listed = compiled(`^(?:[ \t]+|\\*["']\s*,\s*|["']?[ \t]*\r?\n[ \t]*-[ \t]+)`)
	// beside is what stands between a name and its value where these are two fields.
	beside = compiled(`^\\*["']?[ \t]*,?\s*\\*["']?value\\*["']?[ \t]*[:=][ \t]*`)
	inside = compiled(`^[^<>\r\n]*>`)
	// said is a word behind a name that looks like a secret, or stands alone there in its line.
	said  = compiled(`^[ \t]+(\S+)`)
	quote = compiled(`^(?:\\*"(?:[^"\\\r\n]|\\[^"\r\n])*?\\*"|\\*'(?:[^'\\\r\n]|\\[^'\r\n])*?\\*')`)
	// closes is what may follow a whole value in quotes that other things follow.
	closes = compiled(`^(?:[ \t]*(?:[,}\])]|\r?\n|\z)|\\*["'])`)
)

func nameByte(c byte) bool {
	return c == '_' || c == '-' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// named takes out the values of names: the rest of the line, and what is indented below it.
func named(text []byte) []byte {
	var out []byte
	from := 0
	for from < len(text) {
		at := stems().FindSubmatchIndex(text[from:])
		if at == nil {
			break
		}
		begin, end := from+at[0], from+at[1]
		strong := at[2] >= 0
		start := begin
		for start > 0 && nameByte(text[start-1]) {
			start--
		}
		if strong {
			end += len(nameEnd().Find(text[end:]))
		}
		first, last, ok := valueOf(text, start, begin, end, strong)
		switch {
		case !ok:
			end = from + at[1]
			out, from = append(out, text[from:end]...), end
		default:
			out = append(out, text[from:first]...)
			out, from = append(out, Mark...), last
		}
	}
	return append(out, text[from:]...)
}

// valueOf finds the value of the name from start to end, whose stem begins at stem.
func valueOf(text []byte, start, stem, end int, strong bool) (first, last int, ok bool) {
	rest := text[end:]
	if !strong && stem > start && !bytes.ContainsAny(text[stem-1:stem], "_-.") || end < len(text) && nameByte(text[end]) {
		return 0, 0, false
	}
	flag := text[start] == '-'
	if between := beside().Find(rest); between != nil {
		return extent(text, start, end+len(between))
	}
	form := equal
	switch {
	case strong:
		form = assigned
	case string(text[start:end]) == "key": // of Kubernetes' labels and taints too
		form = plainEqual
	}
	if between := form().Find(rest); between != nil {
		return extent(text, start, end+len(between))
	}
	if flag {
		if between := listed().Find(rest); between != nil {
			return word(text, end+len(between))
		}
	}
	return told(text, start, end, strong)
}

// told finds a value that nothing assigns: in an element of XML, or a word behind the name.
func told(text []byte, start, end int, strong bool) (first, last int, ok bool) {
	rest := text[end:]
	if between := inside().Find(rest); between != nil && start > 0 && text[start-1] == '<' {
		first = end + len(between)
		length := bytes.IndexByte(text[first:], '<')
		return first, first + max(length, 0), length > 0
	}
	if found := said().FindSubmatchIndex(rest); found != nil && strong {
		line := text[bytes.LastIndexByte(text[:start], '\n')+1 : start]
		after := rest[found[3]:]
		alone := len(bytes.TrimSpace(line)) == 0 && (len(after) == 0 || after[0] == '\n' || after[0] == '\r')
		if one := rest[found[2]:found[3]]; alone || random(one) {
			return end + found[2], end + found[3], true
		}
	}
	return 0, 0, false
}

// random reports whether a word looks like none of a language.
func random(word []byte) bool {
	digits := bytes.ContainsAny(word, "0123456789")
	letters := bytes.ContainsFunc(word, func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' })
	return len(word) >= 6 && digits && letters
}

// word is a value that ends with a blank or its quote.
func word(text []byte, first int) (int, int, bool) {
	if quoted := quote().Find(text[first:]); quoted != nil {
		return first, first + len(quoted), true
	}
	last := first
	for last < len(text) && !bytes.ContainsRune([]byte(" \t\r\n"), rune(text[last])) {
		last++
	}
	return first, last, last > first
}

// extent is a value that is assigned: one in quotes, or the rest of the line with what is indented below it.
func extent(text []byte, start, first int) (int, int, bool) {
	if quoted := quote().Find(text[first:]); len(quoted) > 2 && closes().Match(text[first+len(quoted):]) {
		return first, first + len(quoted), true
	}
	begin := bytes.LastIndexByte(text[:start], '\n') + 1
	last, empty := below(text, first, indentOf(text[begin:]))
	for last > first && (text[last-1] == '\n' || text[last-1] == '\r') {
		last--
	}
	return first, last, !empty
}

// below is the end of a value and of the lines that are indented below it. Empty is true where there is none.
func below(text []byte, first, indent int) (last int, empty bool) {
	last = lineEnd(text, first)
	empty = len(bytes.TrimSpace(text[first:last])) == 0
	for last < len(text) {
		next := text[last+1:]
		end := last + 1 + lineEnd(next, 0)
		line := bytes.TrimSpace(text[last+1 : end])
		// A value that is not in the line of its name is in the next, also where that is not indented.
		loose := empty && !bytes.ContainsAny(line, " \t:=")
		if len(line) > 0 && indentOf(next) <= indent && !loose || len(line) == 0 && end >= len(text) {
			break
		}
		empty = empty && len(line) == 0
		last = end
	}
	return last, empty
}

func lineEnd(text []byte, from int) int {
	if end := bytes.IndexByte(text[from:], '\n'); end >= 0 {
		return from + end
	}
	return len(text)
}

func indentOf(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " \t")) }
