package docs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Translations of README.md say the same: they have its blocks, its code, its links and its figures.
func TestTranslations(t *testing.T) {
	original, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "README.*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no translations: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range untranslated(string(original), string(text)) {
			t.Errorf("%s: %s", filepath.Base(file), finding)
		}
	}
}

func TestUntranslated(t *testing.T) {
	const original = "# A\n\n[x](README.zh.md) The 3 things of `a b`, [c](d.md).\n\n    $ run 5\n    5 ran\n\n## B\n\nText[^e].\n\n[^e]: Source, 2026.\n"
	const right = "# 甲\n\n[y](README.md) `a b` 的 3 件事，[丙](d.md)。\n\n    $ run 5\n    5 ran\n\n## 乙\n\n文字[^e]。\n\n[^e]: 出处，2026。\n"
	for name, c := range map[string]struct{ old, becomes, want string }{
		"right":            {"", "", ""},
		"another figure":   {"3 件", "4 件", `figures: "3" is missing, "4" is added`},
		"another output":   {"5 ran", "6 ran", `lines of blocks: "5 ran" is missing, "6 ran" is added`},
		"a link less":      {"[丙](d.md)", "丙", `links: "d.md" is missing`},
		"other code":       {"`a b`", "`a c`", "code: \"`a b`\" is missing, \"`a c`\" is added"},
		"a section less":   {"## 乙\n", "", `headings: "##" is missing`},
		"a source not had": {"[^e]。", "。", `sources: "[^e]" is missing`},
	} {
		got := strings.Join(untranslated(original, strings.Replace(right, c.old, c.becomes, 1)), "; ")
		if got != c.want {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
	}
}

var (
	codeSpans   = regexp.MustCompile("`[^`\n]+`")
	readmes     = regexp.MustCompile(`\[[^\]]*\]\(README[.\w-]*\.md\)`)
	figures     = regexp.MustCompile(`\d+(?:[.-]\d+)*`)
	references  = regexp.MustCompile(`\[\^[\w-]+\]`)
	headingMark = regexp.MustCompile(`(?m)^#+`)
	blockLines  = regexp.MustCompile(`(?m)^    .*$`)
)

// untranslated lists what only one of two texts has.
func untranslated(original, translation string) []string {
	var found []string
	want, got := partsOf(original), partsOf(translation)
	for _, kind := range slices.Sorted(maps.Keys(want)) {
		if said := apart(want[kind], got[kind]); said != "" {
			found = append(found, kind+": "+said)
		}
	}
	return found
}

// partsOf are the parts of a text that do not depend on its language, by kind.
func partsOf(text string) map[string][]string {
	parts := map[string][]string{}
	text = readmes.ReplaceAllString(text, "")
	take := func(kind string, p *regexp.Regexp) {
		for _, m := range p.FindAllString(text, -1) {
			parts[kind] = append(parts[kind], strings.TrimSpace(m))
		}
		text = p.ReplaceAllString(text, " ")
	}
	parts["figures"] = nil
	take("lines of blocks", blockLines)
	take("code", codeSpans)
	take("sources", references)
	take("headings", headingMark)
	for _, m := range links.FindAllStringSubmatch(text, -1) {
		parts["links"] = append(parts["links"], m[1])
	}
	text = links.ReplaceAllString(text, " ")
	take("figures", figures)
	return parts
}

// apart says what is in only one of two lists, in whatever order.
func apart(want, got []string) string {
	count := map[string]int{}
	for _, one := range want {
		count[one]++
	}
	for _, one := range got {
		count[one]--
	}
	var said []string
	for _, way := range []struct {
		sign int
		word string
	}{{1, "missing"}, {-1, "added"}} {
		for _, one := range slices.Sorted(maps.Keys(count)) {
			if count[one]*way.sign > 0 {
				said = append(said, fmt.Sprintf("%q is %s", one, way.word))
			}
		}
	}
	return strings.Join(said, ", ")
}
