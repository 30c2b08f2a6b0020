package drivers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Row is what came of one driver, for docs/drivers.md.
type Row struct {
	Driver
	// CUDA is the version that cuDriverGetVersion tells, such as 12040.
	CUDA int
	// Answers are counted by the Subjects' groups.
	Answers     map[string]int
	Differences int
}

// table renders rows as Markdown, with a column for each group, in that order. It is pure.
func table(rows []Row, groups []string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "| driver | Debian's package | CUDA | %s | differences |\n", strings.Join(groups, " | "))
	text.WriteString(strings.Repeat("|---", len(groups)+4) + "|\n")
	for _, r := range rows {
		fmt.Fprintf(&text, "| %s | %s | %d.%d |", r.Version, r.Release, r.CUDA/1000, r.CUDA%1000/10)
		for _, group := range groups {
			text.WriteString(" " + thousands(r.Answers[group]) + " |")
		}
		fmt.Fprintf(&text, " %d |\n", r.Differences)
	}
	return text.String()
}

// thousands writes a count with commas.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// listed renders the ways as a list. It is pure.
func listed(ways []Way) string {
	var text strings.Builder
	for _, w := range ways {
		layers := "both layers"
		if w.covered {
			layers = "layer namespace"
		}
		fmt.Fprintf(&text, "* %s (%s)\n", w.Name, layers)
	}
	return text.String()
}

// ErrPage says that the page has no place for what is generated.
var ErrPage = errors.New("the page has not both lines around what is generated")

// between returns the page with the generated text between two lines that name it, and what stood there before. It is pure.
func between(page, name, text string) (changed, old string, err error) {
	begin, end := "<!-- "+name+": generated -->\n", "<!-- end of "+name+" -->\n"
	before, rest, first := strings.Cut(page, begin)
	old, after, second := strings.Cut(rest, end)
	if !first || !second {
		return "", "", fmt.Errorf("%w: %q", ErrPage, name)
	}
	return before + begin + text + end + after, old, nil
}

// stale are the lines in which a page's old part and the text differ. A driver that is not among versions cannot be had here,
// and its line, which begins with its version, may stay.
func stale(old, text string, versions []string) []string {
	before, now := strings.Split(old, "\n"), strings.Split(text, "\n")
	var differ []string
	for _, line := range now {
		if !slices.Contains(before, line) {
			differ = append(differ, "lacks "+line)
		}
	}
	for _, line := range before {
		version, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " ")
		elsewhere := startsWithDigit(version) && !slices.Contains(versions, version)
		if !slices.Contains(now, line) && !elsewhere {
			differ = append(differ, "has "+line)
		}
	}
	return differ
}

func startsWithDigit(text string) bool { return text != "" && text[0] >= '0' && text[0] <= '9' }
