package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manuals are the manual pages of a command and of those below it, by file name. A command that is in several programs has
// the page of the first.
func manuals(made time.Time, version string, roots ...*cobra.Command) map[string][]byte {
	pages := map[string][]byte{}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		name := pageName(c)
		if _, there := pages[name]; !there && !c.DisableFlagParsing {
			pages[name] = manual(c, made, version)
		}
		for _, below := range c.Commands() {
			visit(below)
		}
	}
	for _, root := range roots {
		visit(root)
	}
	return pages
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1" }

// manual is a manual page in the language of man(7).
func manual(c *cobra.Command, made time.Time, version string) []byte {
	var b bytes.Buffer
	title := strings.TrimSuffix(pageName(c), ".1")
	fmt.Fprintf(&b, ".TH %s 1 %s \"divvy %s\" \"Divvy\"\n", strings.ToUpper(roff(title)), made.Format(time.DateOnly), version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(title), roff(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n\\fB%s\\fR\n", roff(c.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	text(&b, c.Long, c.Short)
	options(&b, c)
	if c.Example != "" {
		b.WriteString(".SH EXAMPLES\n")
		block(&b, c.Example)
	}
	seeAlso(&b, c)
	return b.Bytes()
}

var escapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`)

// roff is text without meaning to roff.
func roff(text string) string {
	text = escapes.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

// quoted are commands and the like in a text.
var quoted = regexp.MustCompile("`([^`\n]+)`")

// text writes paragraphs. Those that are set in keep their lines.
func text(b *bytes.Buffer, long, short string) {
	if long == "" {
		long = short + "."
	}
	for i, paragraph := range strings.Split(strings.TrimSpace(long), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(paragraph, " ") {
			block(b, paragraph)
			continue
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			line = quoted.ReplaceAllString(line, "\x01$1\x02") // roff would escape what is written for it
			b.WriteString(strings.NewReplacer("\x01", `\fB`, "\x02", `\fR`).Replace(roff(line)) + "\n")
		}
	}
}

func block(b *bytes.Buffer, lines string) {
	b.WriteString(".RS 4\n.nf\n")
	for line := range strings.SplitSeq(strings.Trim(lines, "\n"), "\n") {
		b.WriteString(roff(strings.TrimPrefix(line, "  ")) + "\n")
	}
	b.WriteString(".fi\n.RE\n")
}

func options(b *bytes.Buffer, c *cobra.Command) {
	b.WriteString(".SH OPTIONS\n")
	c.InitDefaultHelpFlag()
	seen := map[string]bool{}
	write := func(f *pflag.Flag) {
		if f.Hidden || seen[f.Name] {
			return
		}
		seen[f.Name] = true
		kind, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fR, ", f.Shorthand)
		}
		fmt.Fprintf(b, "\\fB%s\\fR", roff("--"+f.Name))
		if kind != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(kind))
		}
		b.WriteString("\n" + roff(usage))
		if !strings.Contains(usage, "default") && f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
			fmt.Fprintf(b, " (default %s)", roff(f.DefValue))
		}
		b.WriteByte('\n')
	}
	c.LocalFlags().VisitAll(write)
	c.InheritedFlags().VisitAll(write)
}

func seeAlso(b *bytes.Buffer, c *cobra.Command) {
	var also []string
	if c.HasParent() {
		also = append(also, pageName(c.Parent()))
	}
	for _, below := range c.Commands() {
		if !below.Hidden && below.Name() != "help" {
			also = append(also, pageName(below))
		}
	}
	if len(also) == 0 {
		return
	}
	b.WriteString(".SH SEE ALSO\n")
	for i, page := range also {
		end := ",\n"
		if i == len(also)-1 {
			end = "\n"
		}
		fmt.Fprintf(b, ".BR %s (1)%s", roff(strings.TrimSuffix(page, ".1")), end)
	}
}
