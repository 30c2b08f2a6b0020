package session

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const example = `# A page

    $ divvy ls  # a remark
    GPU  PIDS
    0    12

    $ divvy run -- sh -c 'echo "  # no remark"' &
    apiVersion: its output

Text.

    apiVersion: v1
    divvy: no command

~~~
` + "```" + `
root# cat >file <<END
> one
>
> END
ada$ divvy run \
    --memory 8Gi
divvy: said
` + "```" + `
* an item

      $ divvy stop a
      …
`

func TestRead(t *testing.T) {
	all, err := Read("docs/page.md", example)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i].indent, all[i].begins = "", 0
	}
	want := []Command{
		{Page: "docs/page.md", Line: 3, Text: "divvy ls", Output: "GPU  PIDS\n0    12\n"},
		{Page: "docs/page.md", Line: 7, Text: `divvy run -- sh -c 'echo "  # no remark"' &`, Output: "apiVersion: its output\n"},
		{Page: "docs/page.md", Line: 17, Text: "cat >file <<END\none\n\nEND", User: "root"},
		{Page: "docs/page.md", Line: 21, Text: "divvy run \\\n    --memory 8Gi", Output: "divvy: said\n", User: "ada"},
		{Page: "docs/page.md", Line: 27, Text: "divvy stop a", Output: "…\n"},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("read\n%q, want\n%q", all, want)
	}
}

func TestCommandWithoutPrompt(t *testing.T) {
	for text, faulty := range map[string]bool{
		"    divvy ls\n":                        true,
		"    sudo dpkg -i x.deb\n":              true,
		"```sh\nkind: Pod\nA=b divvy ls\n```\n": true,
		"    divvy run ─► agent\n":              false,
		"    divvy: said this\n":                false,
		"    # a remark\n    kind: Pod\n":       false,
		"    kind: Pod\n":                       false,
		"divvy ls\n":                            false,
	} {
		if _, err := Read("page", text); (err != nil) != faulty {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestPrints(t *testing.T) {
	book, err := Parse([]byte("varies: ['\\bpid \\d+', ' (\\d+)  +active', 'GPU-[0-9a-f]+']\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"a\n", "a\n", true},
		{"a\n", "b\n", false},
		{"a\n", "a\nb\n", false},
		{"", "a\n", false},
		{"", "\n", true},
		{"a\n", "", false},
		{"a  \n", "a\n\n", true},
		{"agent (pid 7)\n", "agent (pid 4711)\n", true},
		{"agent (pid 7)\n", "agents (pid 4711)\n", false},
		{"train  7     active\n", "train  4711  active\n", true},
		{"train  7     active\n", "train  4711  idle\n", false},
		{"A   B  PIDS\n", "A    B   PIDS\n", true},
		{"a   b  pids\n", "a    b   pids\n", false},
		{"a … c\n", "a b c\n", true},
		{"a … c\n", "a b d\n", false},
		{"…\nb\n…\n", "1\n2\nb\n3\n", true},
		{"…\nb\n", "1\nb\n3\n", false},
		{"…\n", "", true},
		{"done\n", "1%\r2%\rdone\r\n", true},
		{"a  GPU-…\n", "a      GPU-0ab1\n", true},
		{"pid 7 of …\n", "pid 8 of ada\n", true},
	} {
		if same := book.Prints(Command{Output: c.want}, c.got); same != c.same {
			t.Errorf("%q is like the page's %q: %v", c.got, c.want, same)
		}
	}
}

func TestRewrite(t *testing.T) {
	all, err := Read("docs/page.md", example)
	if err != nil {
		t.Fatal(err)
	}
	made := Rewrite(example, all, map[int]string{3: "GPU\n", 17: "one\n\ntwo\n", 27: ""})
	again, err := Read("docs/page.md", made)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"GPU\n", "apiVersion: its output\n", "one\n\ntwo\n", "divvy: said\n", ""} {
		if again[i].Output != want || again[i].Text != all[i].Text {
			t.Errorf("%v prints %q, want %q", again[i], again[i].Output, want)
		}
	}
	if !strings.Contains(made, "    GPU\n\n    $ divvy run") {
		t.Errorf("the page is now\n%s", made)
	}
}

// A book is refused that names commands, tests or pages that are not there, or says no reason.
func TestCheck(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "test/some"), 0o755); err != nil {
		t.Fatal(err)
	}
	source := "package some\n\nimport \"divvy/test/docs/session\"\n\nfunc TestPage(t *testing.T) { read(\"docs/a.md\") }\n"
	if err := os.WriteFile(filepath.Join(root, "test/some/some_test.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	other := "package some\n\nimport \"divvy/test/e2e/desk\"\n\nfunc TestCluster(t *testing.T) { desk.Open(\"docs/b.md\") }\n"
	if err := os.WriteFile(filepath.Join(root, "test/some/other_test.go"), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	commands := []Command{{Page: "docs/a.md", Text: "one"}, {Page: "docs/a.md", Text: "two"}, {Page: "docs/b.md", Text: "one"}}
	for text, want := range map[string]string{
		"elsewhere: [{page: docs/a.md, test: test/some.TestPage}]":                    "",
		"elsewhere: [{page: docs/b.md, test: test/some.TestCluster}]":                 "",
		"elsewhere: [{page: docs/a.md, test: test/some.TestCluster}]":                 "there is no test test/some.TestCluster that reads docs/a.md",
		"elsewhere: [{page: docs/a.md, test: test/some.TestOther}]":                   "there is no test test/some.TestOther that reads docs/a.md",
		"elsewhere: [{page: docs/b.md, test: test/some.TestPage}]":                    "there is no test test/some.TestPage that reads docs/b.md",
		"elsewhere: [{page: docs/a.md, test: test/some.TestPage, commands: [three]}]": `docs/a.md has no command "three"`,
		"elsewhere: [{page: docs/c.md, test: test/some.TestPage}]":                    "docs/c.md has no command for",
		"unrun: [{reason: it ends the machine, commands: {docs/a.md: [one]}}]":        "",
		"unrun: [{reason: it ends the machine, commands: {docs/a.md: [gone]}}]":       `docs/a.md has no command "gone"`,
		"unrun: [{reason: later, commands: {docs/a.md: [one]}}]":                      `"later" is no reason`,
		"machines: {docs/c.md: a30}":                                                  "docs/c.md has no command for a machine",
		"repeated: [one]":                                                             "",
	} {
		book, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		fault := errors.Join(book.Check(root, commands)...)
		if want == "" && fault != nil || want != "" && (fault == nil || !strings.Contains(fault.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, fault, want)
		}
	}
	for _, text := range []string{"unrum: []", "varies: ['(']", "repeated: ['[']"} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// What the book does not name is run by test/docs.
func TestOf(t *testing.T) {
	book, err := Parse([]byte(`{elsewhere: [{page: a, test: t.T, commands: [one]}, {page: b, test: t.T}], unrun: [{reason: r, commands: {b: [two]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	all := []Command{{Page: "a", Text: "one"}, {Page: "a", Text: "two"}, {Page: "b", Text: "one"}, {Page: "b", Text: "two"}}
	if got := book.Of("", all); !reflect.DeepEqual(got, all[1:2]) {
		t.Errorf("test/docs runs %v", got)
	}
	if got := book.Of("t.T", all); !reflect.DeepEqual(got, []Command{all[0], all[2]}) {
		t.Errorf("t.T runs %v", got)
	}
}
