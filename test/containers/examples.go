package containers

import (
	"regexp"
	"strings"
)

// example is a command of a page, with what it prints.
type example struct {
	command string
	// output may have "…" for what differs each time.
	output string
}

// examples are those of a page: in its indented blocks, a line that begins with "# " is a command of root's, and the lines
// up to the next one are what it prints. Blocks without such a line are not run.
func examples(page string) []example {
	var all []example
	in := false
	for line := range strings.Lines(page) {
		text, block := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		command, begins := strings.CutPrefix(text, "# ")
		switch {
		case !block:
			in = false
		case begins:
			all, in = append(all, example{command: command}), true
		case in:
			all[len(all)-1].output += text + "\n"
		}
	}
	return all
}

// prints reports whether an output is the example's.
func (e example) prints(output string) bool {
	pattern := regexp.QuoteMeta(strings.TrimSpace(e.output))
	pattern = strings.ReplaceAll(pattern, "…", `.*`)
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(strings.TrimSpace(output))
}
