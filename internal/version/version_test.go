package version

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

const root = "../.."

// TestOneVersion compares VERSION with every file that repeats it.
func TestOneVersion(t *testing.T) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9a-z.]+)?$`).MatchString(Number()) {
		t.Fatalf("VERSION holds %q: give a number such as 1.2.3", Number())
	}
	image := regexp.MustCompile(`ghcr\.io/divvy-gpu/[a-z]+:([0-9A-Za-z_.-]+)`)
	seen := 0
	for _, folder := range []string{"README.md", "docs", "deploy", "test", "hack"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range image.FindAllSubmatch(text, -1) {
				seen++
				if string(match[1]) != Number() {
					t.Errorf("%s names %s; VERSION is %s: run make generate", path, match[0], Number())
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen == 0 {
		t.Error("no image was found")
	}
	for path, pattern := range map[string]string{
		"deploy/chart/Chart.yaml":     `(?m)^(?:version|appVersion): (.*)$`,
		"deploy/manifests/divvy.yaml": `app\.kubernetes\.io/version: "(.*)"`,
		"CHANGELOG.md":                `\A# Changelog\n(?:[^#].*\n|\n)*## ([^ \n]+)`,
	} {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s names no version", path)
		}
		for _, match := range found {
			if match[1] != Number() {
				t.Errorf("%s has version %s; VERSION is %s", path, match[1], Number())
			}
		}
	}
}

func TestFull(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123"}
	for _, test := range []struct {
		want     string
		settings []debug.BuildSetting
	}{
		{"1.2.3", nil},
		{"1.2.3+0123456789ab", []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "false"}}},
		{"1.2.3+0123456789ab.modified", []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "true"}}},
	} {
		if got := full("1.2.3", test.settings); got != test.want {
			t.Errorf("full(%v) is %q; want %q", test.settings, got, test.want)
		}
	}
}

// The Go tool stamps test binaries with no commit: they know the number all the same.
func TestVersionWithoutStamp(t *testing.T) {
	if Full() != Number() {
		t.Errorf("Full() is %q; want %q", Full(), Number())
	}
}

func TestBuiltProgramsPrintTheVersion(t *testing.T) {
	tree := installtest.Tree(t)
	for _, program := range []string{filepath.Join(string(tree), "bin", "divvy"), tree.Program("divvy-cluster")} {
		out, err := exec.Command(program, "version").Output()
		rest, ok := strings.CutPrefix(string(out), "divvy "+Number())
		if err != nil || !ok || !strings.HasPrefix(rest, " (") && !strings.HasPrefix(rest, "+") {
			t.Errorf("%s version prints %q, %v; want version %s: run make build", program, out, err, Number())
		}
	}
}
