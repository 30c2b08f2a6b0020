package docs

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// A tree is what documents may name.
type tree struct {
	// files has every file and folder, relative to the root of the repository.
	files map[string]bool
	// targets has the targets of make.
	targets map[string]bool
	// flags has the long flags of all commands, without dashes.
	flags map[string]bool
	// anchors has the headings of each document, as links name them.
	anchors map[string]map[string]bool
	// outputs has the values that -o takes.
	outputs map[string]bool
	// modules has the required versions of each module, in all go.mod files.
	modules map[string][]string
}

// A document is one Markdown file.
type document struct {
	name string
	text string
}

var (
	spans    = regexp.MustCompile("`([^`\n]+)`")
	links    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	makes    = regexp.MustCompile(`^make ((?:[a-z0-9-]*[a-z0-9](?: |$))+)`)
	flags    = regexp.MustCompile(`(?:^|[\s\[|])--([a-z][a-z0-9-]+)`)
	outputs  = regexp.MustCompile(`(?:^|\s)-o ([a-z-]+(?:\|[a-z-]+)*)`)
	modules  = regexp.MustCompile(`(?:^|[^\w./-])((?:github\.com/[\w.-]+/[\w.-]+|(?:k8s|sigs\.k8s|tags\.cncf|go\.yaml|golang)\.(?:io|in|org)/[\w.-]+(?:/[\w.-]+)?)(?:/v\d+)?)(?: (v\d+\.\d+\.\d+[\w.-]*))?`)
	roots    = regexp.MustCompile(`^(?:\./)?(?:\.ci|abi|api|cmd|deploy|docs|examples|hack|internal|lib|test|testdata)/[\w.{},*/@+-]*$`)
	headings = regexp.MustCompile(`(?m)^#+ (.*)$`)

	notInAnchors = regexp.MustCompile(`[^a-z0-9 _-]`)

	items    = regexp.MustCompile(`\n(?:\*|\d+\.) `)
	packages = regexp.MustCompile(`^(?:internal|lib|test|api|cmd)/[\w/-]+\.[A-Z]\w*$`)
)

// ownModule is not required by any go.mod of the repository.
const ownModule = "github.com/divvy-gpu/divvy"

// findings lists what the document names and the tree lacks, one line each.
func findings(d document, t tree) []string {
	var found []string
	for _, code := range d.code() {
		found = append(found, t.paths(code)...)
		found = append(found, t.makes(code)...)
		if strings.HasPrefix(code, "divvy") || strings.HasPrefix(code, "-") {
			own, _, _ := strings.Cut(code, " -- ")
			found = append(found, t.options(own)...)
		}
	}
	for _, m := range links.FindAllStringSubmatch(d.text, -1) {
		if t.leadsNowhere(d.name, m[1]) {
			found = append(found, fmt.Sprintf("link to %s leads nowhere", m[1]))
		}
	}
	for _, m := range modules.FindAllStringSubmatch(d.text, -1) {
		found = append(found, t.module(strings.TrimRight(m[1], "."), m[2])...)
	}
	for i := range found {
		found[i] = d.name + ": " + found[i]
	}
	return found
}

// leadsNowhere reports whether a link of a document names a file or a heading that does not exist.
func (t tree) leadsNowhere(document, link string) bool {
	if strings.Contains(link, "://") {
		return false
	}
	target, anchor, _ := strings.Cut(link, "#")
	full := document
	if target != "" {
		full = path.Join(path.Dir(document), target)
	}
	return !t.files[full] || anchor != "" && !t.anchors[full][anchor]
}

// headings returns the anchors of a document's headings, as GitHub makes them.
func (d document) headings() map[string]bool {
	made := map[string]bool{}
	for _, m := range headings.FindAllStringSubmatch(d.text, -1) {
		text := strings.ToLower(strings.TrimSpace(m[1]))
		made[strings.ReplaceAll(notInAnchors.ReplaceAllString(text, ""), " ", "-")] = true
	}
	return made
}

// paths lists the paths in a piece of code that do not exist.
func (t tree) paths(code string) []string {
	var found []string
	for _, word := range strings.Fields(code) {
		if missing := t.lacks(strings.TrimRight(word, ".,;:")); missing != "" {
			found = append(found, fmt.Sprintf("path %s does not exist", missing))
		}
	}
	return found
}

// makes lists the targets in a call of make that do not exist.
func (t tree) makes(code string) []string {
	var found []string
	m := makes.FindStringSubmatch(code)
	if m == nil {
		return nil
	}
	for _, target := range strings.Fields(m[1]) {
		if !t.targets[target] {
			found = append(found, fmt.Sprintf("make has no target %s", target))
		}
	}
	return found
}

// options lists the flags and output formats that no command has.
func (t tree) options(command string) []string {
	var found []string
	for _, m := range flags.FindAllStringSubmatch(command, -1) {
		if !t.flags[m[1]] {
			found = append(found, fmt.Sprintf("no command has the flag --%s", m[1]))
		}
	}
	for _, m := range outputs.FindAllStringSubmatch(command, -1) {
		for _, format := range strings.Split(m[1], "|") {
			if !t.outputs[format] {
				found = append(found, fmt.Sprintf("no command writes -o %s", format))
			}
		}
	}
	return found
}

// code returns the document's code: spans, and the lines of code blocks.
func (d document) code() []string {
	var code []string
	fenced := false
	for _, line := range strings.Split(d.text, "\n") {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case fenced, strings.HasPrefix(line, "    "):
			code = append(code, strings.TrimSpace(line))
		case strings.HasPrefix(line, "Source: "):
			// Names files of other projects.
		default:
			for _, m := range spans.FindAllStringSubmatch(line, -1) {
				code = append(code, m[1])
			}
		}
	}
	return code
}

// lacks returns the part of a path that is not in the tree, or nothing. Words
// that are no paths of the repository are nobody's concern.
func (t tree) lacks(word string) string {
	if packages.MatchString(word) {
		word = word[:strings.LastIndexByte(word, '.')]
	}
	if !roots.MatchString(word) {
		return ""
	}
	for _, one := range expand(strings.TrimPrefix(word, "./")) {
		one = strings.TrimSuffix(strings.TrimSuffix(one, "/..."), "/")
		if strings.ContainsRune(one, '*') {
			if !t.matches(one) {
				return one
			}
			continue
		}
		if !t.files[one] {
			return one
		}
	}
	return ""
}

func (t tree) matches(pattern string) bool {
	for file := range t.files {
		if ok, _ := path.Match(pattern, file); ok {
			return true
		}
	}
	return false
}

// expand replaces {a,b} by its alternatives.
func expand(word string) []string {
	open, rest, ok := strings.Cut(word, "{")
	if !ok {
		return []string{word}
	}
	inside, end, ok := strings.Cut(rest, "}")
	if !ok {
		return []string{word}
	}
	var all []string
	for _, one := range strings.Split(inside, ",") {
		all = append(all, expand(open+one+end)...)
	}
	return all
}

// module checks that a module is required, in the version that is named.
func (t tree) module(name, version string) []string {
	if name == ownModule {
		return nil
	}
	for at := name; at != "."; at = path.Dir(at) {
		required, ok := t.modules[at]
		if !ok {
			continue
		}
		for _, one := range required {
			if version == "" || version == one {
				return nil
			}
		}
		return []string{fmt.Sprintf("module %s is required as %s, not %s", name, required, version)}
	}
	return []string{fmt.Sprintf("no go.mod requires %s", name)}
}

// The bounds of a page of the design.
const (
	longestPage      = 200 // lines
	longestParagraph = 120 // words
	firstWords       = "After this page you can decide"
)

// shape lists where a page of the design is longer than its bounds, or does not
// begin with what its reader can decide.
func shape(d document) []string {
	var found []string
	if lines := strings.Count(d.text, "\n"); lines > longestPage {
		found = append(found, fmt.Sprintf("%s: %d lines, at most %d", d.name, lines, longestPage))
	}
	paragraphs := strings.Split(d.text, "\n\n")
	if len(paragraphs) < 2 || !strings.HasPrefix(paragraphs[1], firstWords) {
		found = append(found, fmt.Sprintf("%s: the first paragraph does not begin with %q", d.name, firstWords))
	}
	for _, paragraph := range paragraphs {
		if strings.HasPrefix(paragraph, "|") || strings.HasPrefix(paragraph, "    ") || strings.HasPrefix(paragraph, "<!--") {
			continue
		}
		for _, item := range items.Split("\n"+paragraph, -1) {
			if words := len(strings.Fields(item)); words > longestParagraph {
				found = append(found, fmt.Sprintf("%s: a paragraph of %d words, at most %d: %.60s…", d.name, words, longestParagraph, item))
			}
		}
	}
	return found
}
