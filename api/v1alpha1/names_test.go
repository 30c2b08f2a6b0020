package v1alpha1_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	root = "../.."
	own  = "api/v1alpha1"
	// resourceAPI is imported by every file that can speak of a device's capacities and attributes.
	resourceAPI = "k8s.io/api/resource/v1"
)

// named returns the values of the constants of names.go, by the constant.
func named(t *testing.T) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := new(types.Config).Check(own, files, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range p.Scope().Names() {
		if c, ok := p.Scope().Lookup(name).(*types.Const); ok && c.Val().Kind() == constant.String {
			all[name] = constant.StringVal(c.Val())
		}
	}
	if len(all) < 30 {
		t.Fatalf("names.go has only %d names", len(all))
	}
	return all
}

// ofDevices reports whether a constant names a capacity or an attribute. These are everyday words, so that only files
// that speak of devices are searched for them.
func ofDevices(constant string) bool {
	return strings.HasPrefix(constant, "Capacity") || strings.HasPrefix(constant, "Attribute")
}

// walk calls visit for each file of the repository's folders that has one of the endings, with its path from the root.
func walk(t *testing.T, folders, endings []string, visit func(path string)) {
	t.Helper()
	seen := 0
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !slices.Contains(endings, filepath.Ext(path)) {
				return err
			}
			seen++
			path, err = filepath.Rel(root, path)
			if err == nil && filepath.Dir(path) != own {
				visit(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 10 {
		t.Fatalf("only %d files in %v", seen, folders)
	}
}

// TestNamesStandOnce finds names of the cluster's objects that a program writes out instead of using the constant. A
// test may have them within a longer text, such as a pod in YAML: that is how users write them.
func TestNamesStandOnce(t *testing.T) {
	names := named(t)
	walk(t, []string{"cmd", "internal", "test", "hack"}, []string{".go"}, func(path string) {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		devices := false
		for _, i := range file.Imports {
			devices = devices || i.Path.Value == strconv.Quote(resourceAPI)
		}
		program := !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "test/")
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			at := func() string { return path + ":" + strconv.Itoa(files.Position(literal.Pos()).Line) }
			if program && strings.Contains(text, v1alpha1.Domain) {
				t.Errorf("%s: %s has a name of %s in it: use the constants of %s", at(), literal.Value, v1alpha1.Domain, own)
			}
			for name, value := range names {
				if text == value && (strings.Contains(value, v1alpha1.Domain) || program && devices && ofDevices(name)) {
					t.Errorf("%s: %s is v1alpha1.%s", at(), literal.Value, name)
				}
			}
			return true
		})
	})
}

// onlyInChart are names that the chart alone uses: of its webhooks, whose names it also puts together, of the kind Queue, and of the
// annotation that makes pods anew when their configuration changes.
var onlyInChart = []string{
	"pods." + v1alpha1.Domain, "annotations." + v1alpha1.Domain, "claims." + v1alpha1.Domain, "templates." + v1alpha1.Domain, "containers." + v1alpha1.Domain,
	"slots." + v1alpha1.Domain, "bindings." + v1alpha1.Domain, "other-bindings." + v1alpha1.Domain,
	v1alpha1.QueueResources + "." + v1alpha1.Domain,
	"." + v1alpha1.Domain, v1alpha1.Domain + "/config",
}

var (
	domainName = regexp.MustCompile(`[a-z-]*\.?` + regexp.QuoteMeta(v1alpha1.Domain) + `(/[A-Za-z0-9.-]*[A-Za-z0-9])?`)
	deviceName = regexp.MustCompile(`(attributes|capacity)\["` + regexp.QuoteMeta(v1alpha1.Domain) + `"\]\.(\w+)`)
)

// TestManifestsUseTheNames compares what Helm and kubectl install, and what the examples ask, with the constants.
func TestManifestsUseTheNames(t *testing.T) {
	names := named(t)
	known := map[string]bool{}
	devices := map[string]map[string]bool{"attributes": {}, "capacity": {}}
	for name, value := range names {
		known[value] = true
		if word, ok := strings.CutPrefix(name, "Attribute"); ok && word != "" {
			devices["attributes"][value] = true
		} else if ofDevices(name) {
			devices["capacity"][value] = true
		}
	}
	for _, name := range onlyInChart {
		known[name] = true
	}
	found := map[string]bool{}
	walk(t, []string{"deploy", "examples"}, []string{".yaml", ".tpl", ".txt"}, func(path string) {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range domainName.FindAllString(string(text), -1) {
			found[name] = true
			if !known[name] {
				t.Errorf("%s: %s is no name of %s", path, name, own)
			}
		}
		for _, m := range deviceName.FindAllStringSubmatch(string(text), -1) {
			if !devices[m[1]][m[2]] {
				t.Errorf("%s: a device has no %s among its %s", path, m[2], m[1])
			}
		}
	})
	for _, name := range []string{v1alpha1.ClassShare, v1alpha1.ClassWhole, v1alpha1.SlotResource, v1alpha1.GPUsAnnotation, v1alpha1.NodeLabel} {
		if !found[name] {
			t.Errorf("no manifest has %s", name)
		}
	}
}
