package docs

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const root = "../.."

// Flags of other programs that the documents name by themselves.
var foreignFlags = []string{"no-hooks", "admission-control-config-file", "gpu-reset", "query-gpu", "format", "nv", "contain", "containall"} // helm, kube-apiserver, nvidia-smi, apptainer

// Files that a command of the documents makes.
var madeLater = []string{"docs/measurements/cards/report.md"}

func TestDocumentsNameWhatExists(t *testing.T) {
	tree := readTree(t)
	for _, d := range readDocuments(t, tree) {
		for _, finding := range findings(d, tree) {
			t.Error(finding)
		}
	}
}

func TestPagesOfTheDesign(t *testing.T) {
	tree := readTree(t)
	for _, d := range readDocuments(t, tree) {
		if path.Dir(d.name) != "docs/design" {
			continue
		}
		for _, finding := range shape(d) {
			t.Error(finding)
		}
	}
}

// The manual and the design name every field that users can set.
func TestShareConfigIsDocumented(t *testing.T) {
	for _, name := range []string{"docs/design/kubernetes.md", "docs/dialects.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		fields := reflect.TypeOf(v1alpha1.ShareConfig{})
		for i := range fields.NumField() {
			tag, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
			if tag == "" || tag == "apiVersion" || tag == "kind" {
				continue
			}
			if !regexp.MustCompile(`\b` + tag + `\b`).Match(text) {
				t.Errorf("%s: the field %s of ShareConfig is missing", name, tag)
			}
		}
	}
}

// The design answers a newcomer's questions, each in one line with a path.
func TestQuestionsHaveAnswers(t *testing.T) {
	const fewest = 15
	text, err := os.ReadFile(filepath.Join(root, "docs/design/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	tree, answered := readTree(t), 0
	for _, line := range strings.Split(string(text), "\n") {
		question, answer, ok := strings.Cut(strings.TrimPrefix(line, "| "), "? | ")
		if !ok {
			continue
		}
		found := false
		for _, m := range spans.FindAllStringSubmatch(answer, -1) {
			found = found || tree.files[m[1]]
		}
		if !found {
			t.Errorf("the answer to %q names no path of the tree", question+"?")
		}
		answered++
	}
	if answered < fewest {
		t.Errorf("%d questions are answered, at least %d should be", answered, fewest)
	}
}

// The table of folders has every folder of the first two levels that holds sources.
func TestEveryFolderIsDescribed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/design/layout.md"))
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(text), "## Directions")
	described := map[string]bool{}
	for _, m := range spans.FindAllStringSubmatch(table, -1) {
		described[m[1]] = true
	}
	for file := range readTree(t).files {
		parts := strings.Split(file, "/")
		if len(parts) < 3 || parts[0] == "docs" || parts[1] == "testdata" {
			continue
		}
		if folder := path.Join(parts[0], parts[1]); !described[folder] && !described[parts[0]] {
			t.Errorf("the table of folders lacks %s", folder)
			described[folder] = true
		}
	}
}

// The table of contents has every page.
func TestContents(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for file := range readTree(t).files {
		if path.Dir(file) == "docs" && path.Ext(file) == ".md" && file != "docs/README.md" && !strings.Contains(string(text), "]("+path.Base(file)) {
			t.Errorf("docs/README.md does not lead to %s", file)
		}
	}
}

// Each kind of finding is found in a document that is wrong in all ways.
func TestFindings(t *testing.T) {
	text, err := os.ReadFile("testdata/wrong.md")
	if err != nil {
		t.Fatal(err)
	}
	got := findings(document{"docs/wrong.md", string(text)}, tree{
		files:   map[string]bool{"docs/right.md": true, "internal/agent": true, "internal/agent/agent.go": true},
		targets: map[string]bool{"test": true},
		flags:   map[string]bool{"memory": true},
		outputs: map[string]bool{"json": true},
		anchors: map[string]map[string]bool{"docs/right.md": {"here": true}},
		modules: map[string][]string{"github.com/spf13/cobra": {"v1.10.2"}},
	})
	want := []string{
		"docs/wrong.md: path internal/agnet does not exist",
		"docs/wrong.md: path internal/agent/agnet.go does not exist",
		"docs/wrong.md: path lib/*/build.mk does not exist",
		"docs/wrong.md: path internal/agnet does not exist",
		"docs/wrong.md: make has no target tset",
		"docs/wrong.md: no command has the flag --memroy",
		"docs/wrong.md: no command writes -o yaml",
		"docs/wrong.md: no command has the flag --in-a-block",
		"docs/wrong.md: link to wrnog.md leads nowhere",
		"docs/wrong.md: link to right.md#there leads nowhere",
		"docs/wrong.md: module github.com/spf13/cobra is required as [v1.10.2], not v1.9.0",
		"docs/wrong.md: no go.mod requires github.com/charmbracelet/bubbletea",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestShape(t *testing.T) {
	long := strings.Repeat("word ", longestParagraph+1)
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"as it should be":  {"# T\n\n" + firstWords + " much.\n\n* one\n* two\n", 0},
		"without its aim":  {"# T\n\nThis page is about much.\n", 1},
		"a long paragraph": {"# T\n\n" + firstWords + "\n\n" + long + "\n", 1},
		"a long item":      {"# T\n\n" + firstWords + "\n\n* short\n* " + long + "\n", 1},
		"a long table":     {"# T\n\n" + firstWords + "\n\n| " + long + "|\n", 0},
		"a long page":      {"# T\n\n" + firstWords + strings.Repeat("\n\n", longestPage), 1},
	} {
		if got := shape(document{"page.md", c.text}); len(got) != c.want {
			t.Errorf("%s: found %q, want %d", name, got, c.want)
		}
	}
}

func readTree(t *testing.T) tree {
	t.Helper()
	made := tree{
		files: map[string]bool{}, targets: map[string]bool{}, flags: map[string]bool{},
		outputs: map[string]bool{}, modules: map[string][]string{}, anchors: map[string]map[string]bool{},
	}
	listed, err := exec.Command("git", "-C", root, "ls-files", "-co", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("list the repository's files: %v", err)
	}
	for _, file := range strings.Fields(string(listed)) {
		for at := file; at != "."; at = path.Dir(at) {
			made.files[at] = true
		}
		text := func() string {
			content, err := os.ReadFile(filepath.Join(root, file))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			return string(content)
		}
		switch {
		case path.Base(file) == "Makefile", strings.HasSuffix(file, ".mk"):
			for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9 -]*):(?:[^=]|$)`).FindAllStringSubmatch(text(), -1) {
				for _, target := range strings.Fields(m[1]) {
					made.targets[target] = true
				}
			}
		case strings.HasSuffix(file, ".md"):
			made.anchors[file] = document{file, text()}.headings()
		case path.Base(file) == "go.mod":
			for _, m := range regexp.MustCompile(`(?m)^\s*(?:require )?([\w.-]+\.[a-z]+/\S+) (v\S+)`).FindAllStringSubmatch(text(), -1) {
				made.modules[m[1]] = append(made.modules[m[1]], m[2])
			}
		case file == "lib/remote/worker/main.c": // which has no help
			for _, m := range regexp.MustCompile(`"--([a-z]+)"`).FindAllStringSubmatch(text(), -1) {
				made.flags[m[1]] = true
			}
		case strings.Contains(file, "/testdata/help/"):
			help := text()
			for _, m := range regexp.MustCompile(`--([a-z][a-z0-9-]+)`).FindAllStringSubmatch(help, -1) {
				made.flags[m[1]] = true
			}
			for _, m := range regexp.MustCompile(`(?m)-o, --output \S+\s+(.*)$`).FindAllStringSubmatch(help, -1) {
				for _, word := range regexp.MustCompile(`[a-z-]+`).FindAllString(m[1], -1) {
					made.outputs[word] = true
				}
			}
		}
	}
	for _, file := range madeLater {
		made.files[file] = true
	}
	for _, flag := range foreignFlags {
		made.flags[flag] = true
	}
	return made
}

func readDocuments(t *testing.T, tree tree) []document {
	t.Helper()
	var all []document
	for file := range tree.files {
		if !strings.HasSuffix(file, ".md") || strings.Contains(file, "testdata/") || strings.HasPrefix(file, "docs/measurements/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, document{file, string(text)})
	}
	return all
}
