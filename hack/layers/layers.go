package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// module is the path of the module that the packages are in.
const module = "github.com/divvy-gpu/divvy"

// errList marks faults of the list of layers.
var errList = errors.New("hack/layers/layers.yaml")

// layer is some packages that stand on all layers before it.
type layer struct {
	Name     string   `json:"name"`
	About    string   `json:"about"`
	Pure     bool     `json:"pure,omitempty"`
	Packages []string `json:"packages"`
}

func read(path string) ([]layer, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the list of layers: %w", err)
	}
	var layers []layer
	if err := yaml.UnmarshalStrict(text, &layers); err != nil {
		return nil, fmt.Errorf("%w: %w", errList, err)
	}
	return layers, nil
}

// packages lists the module's packages that the layers divide: the folders with Go files that are no tests. Of test those
// count that others import, which are neither programs nor tests with a page about them.
func packages(root string) ([]string, error) {
	var found []string
	for _, top := range []string{"api", "cmd", "internal", "test"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			if _, statErr := os.Stat(filepath.Join(path, "go.mod")); statErr == nil {
				return filepath.SkipDir // a module of its own
			}
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			if top == "test" && !imported(path) {
				return nil
			}
			folder, err := filepath.Rel(root, filepath.Dir(path))
			if err == nil && !slices.Contains(found, folder) {
				found = append(found, folder)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("find the packages: %w", err)
		}
	}
	return found, nil
}

// imported reports whether the file is of a package that others can use.
func imported(path string) bool {
	if filepath.Base(path) == "doc.go" {
		return false
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly)
	return err == nil && file.Name.Name != "main"
}

// complete returns an error unless every package stands in the list exactly once, and nothing else does.
func complete(layers []layer, found []string) error {
	var faults []error
	in := make(map[string]string)
	for _, l := range layers {
		for _, p := range l.Packages {
			if other, twice := in[p]; twice {
				faults = append(faults, fmt.Errorf("%w: package %s stands in two layers, %s and %s", errList, p, other, l.Name))
			}
			in[p] = l.Name
			if !slices.Contains(found, p) {
				faults = append(faults, fmt.Errorf("%w: there is no package %s", errList, p))
			}
		}
	}
	for _, p := range found {
		if in[p] == "" {
			faults = append(faults, fmt.Errorf("%w: package %s stands in no layer: add it to one", errList, p))
		}
	}
	return errors.Join(faults...)
}

// impure are the packages that a pure layer may not import, each with its reason.
var impure = []struct{ path, reason string }{
	{"github.com/NVIDIA/go-nvml", "a pure package knows no driver"},
	{"golang.org/x/sys", "a pure package calls no kernel"},
	{"k8s.io/client-go", "a pure package knows no cluster"},
	{"net$", "a pure package opens no sockets"},
	{"net/http", "a pure package opens no sockets"},
	{"os$", "a pure package reads no files"},
	{"os/exec", "a pure package starts no programs"},
	{"syscall", "a pure package calls no kernel"},
}

// rules writes one rule of depguard for each layer: it may import nothing of the layers above it. A "$" ends a path
// that stands for one package without those below it.
func rules(layers []layer) string {
	var b strings.Builder
	for i, l := range layers {
		var denied []string
		if l.Pure {
			for _, p := range impure {
				denied = append(denied, fmt.Sprintf("{pkg: %s, desc: %s}", p.path, p.reason))
			}
		}
		for _, above := range layers[i+1:] {
			for _, p := range above.Packages {
				denied = append(denied, fmt.Sprintf("{pkg: %s/%s$, desc: %s stands on %s}", module, p, above.Name, l.Name))
			}
		}
		if len(denied) == 0 {
			continue
		}
		var files []string
		for _, p := range l.Packages {
			files = append(files, fmt.Sprintf("%q", "**/"+p+"/*.go"))
		}
		fmt.Fprintf(&b, "        layer-%s:\n          files: [%s, \"!$test\"]\n          deny:\n", l.Name, strings.Join(files, ", "))
		for _, d := range denied {
			fmt.Fprintf(&b, "            - %s\n", d)
		}
	}
	return b.String()
}

// drawing writes the layers as the design shows them, the highest first.
func drawing(layers []layer) string {
	var b strings.Builder
	for _, l := range slices.Backward(layers) {
		about := l.About
		if l.Pure {
			about += " (pure)"
		}
		fmt.Fprintf(&b, "    %s: %s\n", l.Name, about)
		line := "       "
		for _, p := range l.Packages {
			if len(line)+len(p) > 110 {
				b.WriteString(line + "\n")
				line = "       "
			}
			line += " " + p
		}
		b.WriteString(line + "\n")
		if l.Name != layers[0].Name {
			b.WriteString("          ↓\n")
		}
	}
	return b.String()
}

// The generated part of a file begins below a line that contains the first, and ends above one that contains the second.
const (
	begins = "generated from hack/layers/layers.yaml"
	ends   = "end of what is generated"
)

// between replaces what stands in a text between the marks.
func between(text []byte, with string) ([]byte, error) {
	lines := bytes.SplitAfter(text, []byte("\n"))
	has := func(mark string) func([]byte) bool {
		return func(line []byte) bool { return bytes.Contains(line, []byte(mark)) }
	}
	first, last := slices.IndexFunc(lines, has(begins)), slices.IndexFunc(lines, has(ends))
	if first < 0 || last < first {
		return nil, fmt.Errorf("it has no part between %q and %q", begins, ends)
	}
	head, tail := bytes.Join(lines[:first+1], nil), bytes.Join(lines[last:], nil)
	return slices.Concat(head, []byte(with), tail), nil
}
