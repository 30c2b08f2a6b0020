package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/divvy-gpu/divvy/internal/cli"
	"github.com/divvy-gpu/divvy/internal/cli/cluster"
)

// folder has the pages.
const folder = "docs/reference"

// pages are the pages' names, and what writes each from the code below a root.
var pages = map[string]func(root string) (string, error){
	"commands.md":      commands,
	"configuration.md": configuration,
	"metrics.md":       metrics,
	"events.md":        events,
}

// made heads each page.
const made = "<!-- Made by `make generate`. -->\n\n"

// cell is a text as a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(text), "|", `\|`), "\n", " ")
}

// commands describes the commands of both programs, hidden ones left out.
func commands(string) (string, error) {
	var b strings.Builder
	b.WriteString("# Commands and flags\n\n" + made)
	b.WriteString("What each command does and takes. `--help` of a command says more, with examples.\n")
	described := map[string]bool{}
	for _, program := range []*cobra.Command{cli.Commands(), cluster.Commands()} {
		describe(&b, program, described)
	}
	return b.String(), nil
}

// describe writes a command and those below it, each once.
func describe(b *strings.Builder, c *cobra.Command, described map[string]bool) {
	path := c.CommandPath()
	if c.Hidden || described[path] || c.Name() == "completion" || c.Name() == "help" {
		return
	}
	described[path] = true
	if c.Runnable() {
		fmt.Fprintf(b, "\n## %s\n\n%s: `%s`\n", path, strings.TrimSuffix(c.Short, "."), c.UseLine())
		flags(b, c.NonInheritedFlags())
	}
	for _, below := range c.Commands() {
		describe(b, below, described)
	}
}

// flags writes the table of a command's flags.
func flags(b *strings.Builder, set *pflag.FlagSet) {
	head := "\n| flag | meaning |\n|---|---|\n"
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if value != "" {
			name += " " + value
		}
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" && f.DefValue != "0s" {
			usage += " (default `" + f.DefValue + "`)"
		}
		fmt.Fprintf(b, "%s| `%s` | %s |\n", head, cell(name), cell(usage))
		head = ""
	})
}

// eventsFile declares the kinds of events, each with a comment that says what it tells.
const eventsFile = "internal/agent/control/event.go"

// errEvent is the error of a kind of events without a comment of its own.
var errEvent = errors.New("a kind of events has no comment that begins with its name and says what it is")

// events describes the kinds of events by their comments.
func events(root string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, eventsFile), nil, parser.ParseComments)
	if err != nil {
		return "", fmt.Errorf("read the kinds of events: %w", err)
	}
	var b strings.Builder
	b.WriteString("# Events\n\n" + made)
	b.WriteString("What an agent tells of shares and GPUs, below the lists of `divvy ls` and in `events` of `divvy ls -o json`, there as `kind`.\n\n")
	b.WriteString("| kind | what happened |\n|---|---|\n")
	kinds := 0
	for _, d := range file.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, s := range group.Specs {
			v, _ := s.(*ast.ValueSpec)
			if kind, ok := v.Type.(*ast.Ident); !ok || kind.Name != "EventKind" {
				continue
			}
			meaning, told := strings.CutPrefix(strings.Join(strings.Fields(v.Doc.Text()), " "), v.Names[0].Name+" ")
			value, _ := v.Values[0].(*ast.BasicLit)
			name, err := strconv.Unquote(value.Value)
			if !told || err != nil {
				return "", fmt.Errorf("%w: %s", errEvent, v.Names[0].Name)
			}
			kinds++
			_, meaning, _ = strings.Cut(meaning, " ") // is, or are
			fmt.Fprintf(&b, "| `%s` | %s |\n", name, cell(strings.TrimSuffix(meaning, ".")))
		}
	}
	if kinds == 0 {
		return "", fmt.Errorf("read the kinds of events: %s declares none", eventsFile)
	}
	return b.String(), nil
}
