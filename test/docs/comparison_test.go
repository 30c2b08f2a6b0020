package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every cell of the comparison names a test or a source.
func TestWaysToShareAreCompared(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/forms.md"))
	if err != nil {
		t.Fatal(err)
	}
	tree := readTree(t)
	exists := func(test string) bool {
		if tree.files[test] {
			return true
		}
		folder, name, _ := strings.Cut(test, ".")
		for file := range tree.files {
			if path.Dir(file) == folder && strings.HasSuffix(file, "_test.go") && declares(t, file, name) {
				return true
			}
		}
		return false
	}
	for _, finding := range uncompared(document{"docs/forms.md", string(text)}, exists) {
		t.Error("docs/forms.md: " + finding)
	}
}

func declares(t *testing.T, file, test string) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^func ` + test + `\(`).Match(text)
}

// A comparison that is right, and each way in which it can be wrong.
func TestUncompared(t *testing.T) {
	var right strings.Builder
	for _, property := range properties {
		right.WriteString("\n## " + property + "\n\n| way | answer | shown by |\n|---|---|---|\n")
		for _, way := range ways {
			right.WriteString("| " + way + " | yes | [^page], `internal/a.TestA`, `lib/a/test/test_a.c` |\n")
		}
	}
	right.WriteString("\nSee[^file].\n\n## Sources\n\nAll but [^file] are pages.\n\n" +
		"[^page]: [A page](https://example.org/page), read 2026-11-23. It says so.\n[^file]: [A file](file.md).\n")
	row := "| MIG | yes | [^page], `internal/a.TestA`, `lib/a/test/test_a.c` |\n"
	for name, c := range map[string]struct{ old, becomes, want string }{
		"right":                  {"", "", ""},
		"a table less":           {"\n## Telemetry\n", "\n## Telemetrics\n", `the table "Telemetry" is missing`},
		"a row less":             {row, "", `Kind of partition: the row "MIG" is missing`},
		"a row twice":            {row, row + row, "Kind of partition: the rows are "},
		"an unknown way":         {row, row + "| MIGs | yes | [^page] |\n", "Kind of partition: the rows are "},
		"no answer":              {row, "| MIG |  | [^page] |\n", "Kind of partition: MIG: a row has"},
		"nothing that shows":     {row, "| MIG | yes | `internal/a` |\n", "Kind of partition: MIG: neither a test nor a source"},
		"an unknown Go test":     {row, "| MIG | yes | [^page], `internal/a.TestB` |\n", "Kind of partition: MIG: the test internal/a.TestB does not exist"},
		"an unknown C test":      {row, "| MIG | yes | `lib/a/test/test_b.c` |\n", "Kind of partition: MIG: the test lib/a/test/test_b.c does not exist"},
		"an unknown source":      {row, "| MIG | yes | [^pages] |\n", "Kind of partition: MIG: the source pages has no entry"},
		"a source less":          {"[^page]: ", "", "Kind of partition: CUDA streams: the source page has no entry"},
		"a source not cited":     {"See[^file].", "", "the source file is not cited"},
		"no source for a text":   {"See[^file].", "See[^file] and [^more].", "the source more has no entry"},
		"a source without day":   {", read 2026-11-23.", ".", "the source page has no address, day or content"},
		"a source with no words": {" It says so.", "", "the source page has no address, day or content"},
	} {
		exists := func(test string) bool {
			return slices.Contains([]string{"internal/a.TestA", "lib/a/test/test_a.c"}, test)
		}
		text := strings.Replace(right.String(), c.old, c.becomes, 1)
		got := uncompared(document{"page.md", text}, exists)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) == 0 || !strings.HasPrefix(got[0], c.want)) {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
	}
}
