package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The tables of a comparison: one for each property, with a row for each way to share a GPU.
var (
	properties = []string{
		"Kind of partition", "Most partitions", "SM isolation", "Memory protection", "Bandwidth isolation", "Fault isolation",
		"Communication between partitions", "Reconfiguration", "Telemetry", "Licence", "When to use it", "In Divvy",
	}
	ways = []string{"CUDA streams", "library", "time slices", "MPS", "MIG", "vGPU", "passthrough", "remote"}
)

var (
	namedTests = regexp.MustCompile("`((?:internal|test|api|cmd|lib)/[\\w/]+\\.Test\\w+|lib/[\\w/]+/test/test_\\w+\\.c)`")
	citations  = regexp.MustCompile(`\[\^([\w-]+)\]`)
	entries    = regexp.MustCompile(`(?m)^\[\^([\w-]+)\]: (.*)$`)
	dated      = regexp.MustCompile(`\]\(https://[^)\s]+\), read 20\d\d-\d\d-\d\d\. \S`)
	rows       = regexp.MustCompile(`(?m)^\| .*$`)
	within     = regexp.MustCompile(`\]\([^)\s:]+\)`)
)

// uncompared lists where a comparison lacks a table or a row, where an answer is not shown by a test that exists
// or by a source, and sources that nobody can follow or that nothing cites.
func uncompared(d document, exists func(test string) bool) []string {
	found, sources := []string{}, map[string]string{}
	for _, m := range entries.FindAllStringSubmatch(d.text, -1) {
		sources[m[1]] = m[2]
	}
	body := entries.ReplaceAllString(d.text, "")
	for _, property := range properties {
		table, ok := section(body, property)
		if !ok {
			found = append(found, fmt.Sprintf("the table %q is missing", property))
			continue
		}
		for _, finding := range unshown(table, sources, exists) {
			found = append(found, property+": "+finding)
		}
	}
	return append(found, unsourced(body, sources)...)
}

// section returns the text below a heading, up to the next one.
func section(text, heading string) (string, bool) {
	_, rest, ok := strings.Cut(text, "\n## "+heading+"\n")
	below, _, _ := strings.Cut(rest, "\n## ")
	return below, ok
}

// unshown lists the faults of one table.
func unshown(table string, sources map[string]string, exists func(string) bool) []string {
	var found, listed []string
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || cells[0] == "way" {
			continue
		}
		listed = append(listed, cells[0])
		if len(cells) != 3 || cells[1] == "" {
			found = append(found, fmt.Sprintf("%s: a row has a way, an answer and what shows it", cells[0]))
			continue
		}
		tests, cited := namedTests.FindAllStringSubmatch(cells[2], -1), citations.FindAllStringSubmatch(cells[2], -1)
		if len(tests)+len(cited) == 0 {
			found = append(found, fmt.Sprintf("%s: neither a test nor a source", cells[0]))
		}
		for _, m := range tests {
			if !exists(m[1]) {
				found = append(found, fmt.Sprintf("%s: the test %s does not exist", cells[0], m[1]))
			}
		}
		for _, m := range cited {
			if sources[m[1]] == "" {
				found = append(found, fmt.Sprintf("%s: the source %s has no entry", cells[0], m[1]))
			}
		}
	}
	for _, way := range ways {
		if !slices.Contains(listed, way) {
			found = append(found, fmt.Sprintf("the row %q is missing", way))
		}
	}
	if len(found) == 0 && !slices.Equal(listed, ways) {
		found = append(found, fmt.Sprintf("the rows are %q, want %q", listed, ways))
	}
	return found
}

// unsourced lists sources that nothing above their list cites, those without an address and the day on which it was
// read, and citations outside of tables that have no source. A file of the repository needs no day.
func unsourced(body string, sources map[string]string) []string {
	var found []string
	above, _, _ := strings.Cut(body, "\n## Sources\n")
	cited := map[string]bool{}
	for _, m := range citations.FindAllStringSubmatch(above, -1) {
		cited[m[1]] = true
	}
	for name, entry := range sources {
		if !cited[name] {
			found = append(found, fmt.Sprintf("the source %s is not cited", name))
		}
		if !dated.MatchString(entry) && !within.MatchString(entry) {
			found = append(found, fmt.Sprintf("the source %s has no address, day or content", name))
		}
	}
	for _, m := range citations.FindAllStringSubmatch(rows.ReplaceAllString(body, ""), -1) {
		if sources[m[1]] == "" {
			found = append(found, fmt.Sprintf("the source %s has no entry", m[1]))
		}
	}
	slices.Sort(found)
	return found
}
