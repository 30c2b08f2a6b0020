package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// folder has the pictures.
const folder = "docs/pictures"

// screen is a recorded screen, and what is drawn of it.
type screen struct {
	file, picture string
	title, about  string
}

// screens are what tests of the commands hold to the byte, so a picture shows what the command prints.
var screens = []screen{
	{"internal/cli/top/testdata/colours", "top.svg", "divvy top", "The screen of divvy top: for each GPU a bar of its shares' memory and one of their time, then a line for each share."},
	{"internal/cli/testdata/ls-colours.table", "ls.svg", "divvy ls", "The lists of divvy ls: GPUs with their memory, and shares with what they use of what they were granted."},
}

func (s screen) read(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, s.file))
	if err != nil {
		return "", fmt.Errorf("read a screen: %w", err)
	}
	return string(text), nil
}

// The cells of the screen, in pixels.
const (
	cellWidth, lineHeight = 8, 18
	margin                = 12
)

// style has colours that can be told from both backgrounds.
const style = `text{font:13px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#1f2328}rect{fill:#f6f8fa}` +
	`.b{font-weight:bold}.d{opacity:.7}.c31{fill:#b3261e}.c32{fill:#116329}.c33{fill:#7a4d00}.c36{fill:#0b5c6b}.r{text-decoration:underline}` +
	`@media(prefers-color-scheme: dark){text{fill:#e6edf3}rect{fill:#0d1117}.c31{fill:#ff8078}.c32{fill:#5fd07a}.c33{fill:#e3b341}.c36{fill:#56d4dd}}`

// draw makes an SVG of a screen. Text stays text, each run of it at its column, so that columns stand whatever font there is.
func draw(text, title, about string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	widest := 0
	for _, line := range lines {
		widest = max(widest, utf8.RuneCountInString(codes.ReplaceAllString(line, "")))
	}
	width, height := widest*cellWidth+2*margin, len(lines)*lineHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title about">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n<desc id=\"about\">%s</desc>\n<style>%s</style>\n", html.EscapeString(title), html.EscapeString(about), style)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" rx=\"6\"/>\n", width, height)
	for i, line := range lines {
		drawLine(&b, line, margin+(i+1)*lineHeight-5)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// codes are the escape sequences that set how text looks.
var codes = regexp.MustCompile(`\x1b\[([0-9;]*)m`)

// drawLine draws the runs of a line, which begin and end at escape sequences.
func drawLine(b *strings.Builder, line string, y int) {
	class, column, at := "", 0, 0
	run := func(text string) {
		count := utf8.RuneCountInString(text)
		if strings.TrimSpace(text) != "" {
			fmt.Fprintf(b, `<text x="%d" y="%d" textLength="%d" xml:space="preserve"%s>%s</text>`+"\n",
				margin+column*cellWidth, y, count*cellWidth, class, html.EscapeString(text))
		}
		column += count
	}
	for _, m := range codes.FindAllStringSubmatchIndex(line, -1) {
		run(line[at:m[0]])
		at, class = m[1], classOf(line[m[2]:m[3]])
	}
	run(line[at:])
}

// classOf is the attribute for a sequence's numbers, nothing for the usual look.
func classOf(numbers string) string {
	var names []string
	for _, n := range strings.Split(numbers, ";") {
		switch n {
		case "1":
			names = append(names, "b")
		case "2":
			names = append(names, "d")
		case "7":
			names = append(names, "r")
		case "31", "32", "33", "36":
			names = append(names, "c"+n)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ` class="` + strings.Join(names, " ") + `"`
}
