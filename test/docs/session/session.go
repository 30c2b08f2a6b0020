// Package session reads the commands of documents with what they print, so that tests run them and compare.
package session

import (
	"fmt"
	"regexp"
	"strings"
)

// A Command is one command of a page, with what the page says it prints.
type Command struct {
	// Page is the file, relative to the root of the repository, and Line the command's first line there, from 1.
	Page string
	Line int
	// Text is the command as a shell takes it, without prompts and without remarks: what follows two spaces and a #.
	Text string
	// Output is what it prints, without the lines' indentation. In it … stands for anything within a line, and for any lines
	// where it is all of one.
	Output string
	// User is whose command it is, such as root or ada; empty for one of anybody's.
	User string

	indent string
	begins int // line of the output, from 1; there are as many as Output has
}

// String names the command in messages.
func (c Command) String() string { return fmt.Sprintf("%s:%d: %s", c.Page, c.Line, c.Text) }

// prompt begins a command: "$ " one of anybody's, "ada$ " and "root# " one of the user's who is named. goingOn is that of a
// command's next lines.
var prompt = regexp.MustCompile(`^(?:(root)# |([a-z]*)\$ )`)

const goingOn = "> "

// program finds what only a command begins with, in a block that shows no prompt.
var program = regexp.MustCompile(`^(?:\w+=\S* )*(?:sudo |\./|build/)?(?:divvy|kubectl|helm|make|sudo|podman|docker|apptainer|ctr|kind|tar|cd|echo|systemctl|apt-get|dpkg|nvidia-smi|git|curl|pip|python3?|simgpuctl|sbatch|srun|gpu-test)(?: |$)`)

// bare cuts the remarks off a command: what follows two spaces and a # outside of quotes, to the line's end.
func bare(command string) string {
	lines := strings.Split(command, "\n")
	for i, line := range lines {
		quote := rune(0)
		for at, r := range line {
			switch {
			case quote == 0 && (r == '\'' || r == '"'), r == quote:
				quote ^= r
			case quote == 0 && strings.HasPrefix(line[at:], "  # "):
				lines[i] = strings.TrimRight(line[:at], " ")
			}
			if lines[i] != line {
				break
			}
		}
	}
	return strings.Join(lines, "\n")
}

// Read returns the commands of a page in their order. They stand in its blocks, fenced ones and those indented by four
// spaces: a block whose first line begins with a prompt is a session, in which each line with one is a command, and
// the lines up to the next one are what it prints. A command goes on in lines that begin with "> ", and after a \ at a line's end.
// A command in a block without a prompt is an error.
func Read(page, text string) ([]Command, error) {
	var all []Command
	for _, b := range blocks(text) {
		if prompt.MatchString(b.lines[0]) {
			all = append(all, b.commands(page)...)
			continue
		}
		for i, line := range b.lines {
			if program.MatchString(line) && !strings.Contains(line, "─") { // which stands in drawings
				return nil, fmt.Errorf("%s:%d: a command without a prompt: begin its line with \"$ \", so that it is run, and give what it prints: %s", page, b.first+i, line)
			}
		}
	}
	return all, nil
}

// commands are those of a session.
func (b block) commands(page string) []Command {
	var all []Command
	open := false // the last command can go on
	for i, line := range b.lines {
		if begins := prompt.FindStringSubmatch(line); begins != nil {
			all = append(all, Command{
				Page: page, Line: b.first + i, User: begins[1] + begins[2], Text: line[len(begins[0]):],
				indent: b.indent, begins: b.first + i + 1,
			})
			open = true
			continue
		}
		last := &all[len(all)-1]
		more, goes := strings.CutPrefix(line, goingOn)
		if line == strings.TrimSpace(goingOn) {
			more, goes = "", true
		}
		if !goes {
			more = line
		}
		if open = open && (goes || strings.HasSuffix(last.Text, `\`)); open {
			last.Text += "\n" + more
			last.begins++
			continue
		}
		last.Output += line + "\n"
	}
	for i := range all {
		all[i].Text = bare(all[i].Text)
		all[i].Output = strings.TrimRight(all[i].Output, "\n") // an empty line ends a block of Markdown
		if all[i].Output != "" {
			all[i].Output += "\n"
		}
	}
	return all
}

// A block is what stands between two fences, or lines that are indented.
type block struct {
	first  int // line, from 1
	indent string
	lines  []string
}

// blocks returns the blocks of a page that have lines. Empty lines within an indented block belong to it.
func blocks(text string) []block {
	var all []block
	var now *block
	fenced, deep := false, ""
	end := func() {
		if now != nil {
			for len(now.lines) > 0 && now.lines[len(now.lines)-1] == "" {
				now.lines = now.lines[:len(now.lines)-1]
			}
			if len(now.lines) > 0 {
				all = append(all, *now)
			}
		}
		now = nil
	}
	for i, line := range strings.Split(text, "\n") {
		bare := strings.TrimLeft(line, " ")
		space := line[:len(line)-len(bare)]
		switch {
		case strings.HasPrefix(bare, "```"):
			end()
			if fenced = !fenced; fenced {
				now, deep = &block{first: i + 2, indent: space}, space
			}
		case fenced:
			now.lines = append(now.lines, strings.TrimPrefix(line, deep))
		case now != nil && (bare == "" || strings.HasPrefix(line, deep)):
			now.lines = append(now.lines, strings.TrimPrefix(line, deep))
		case bare != "" && len(space) >= 4:
			end()
			now, deep = &block{first: i + 1, indent: space, lines: []string{bare}}, space
		default:
			end()
		}
	}
	end()
	return all
}

// Rewrite returns a page in which commands print something else: outputs, by the commands' lines.
func Rewrite(text string, commands []Command, outputs map[int]string) string {
	lines := strings.Split(text, "\n")
	for i := len(commands) - 1; i >= 0; i-- {
		c := commands[i]
		output, changed := outputs[c.Line]
		if !changed {
			continue
		}
		var made []string
		for line := range strings.Lines(strings.TrimRight(output, "\n ")) {
			made = append(made, strings.TrimRight(c.indent+strings.TrimRight(line, "\n"), " "))
		}
		at := c.begins - 1
		lines = append(lines[:at:at], append(made, lines[at+strings.Count(c.Output, "\n"):]...)...)
	}
	return strings.Join(lines, "\n")
}
