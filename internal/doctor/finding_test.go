package doctor

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/test/docs"
)

var update = flag.Bool("update", false, "rewrite the table of docs/doctor.md")

// The manual has every finding.
func TestPage(t *testing.T) {
	docs.Generated(t, "../../docs/doctor.md", "internal/doctor/finding.go", Table(), *update)
}

// Every check has an id that the manual knows, and every id of the manual is used.
func TestIDs(t *testing.T) {
	known := map[ID]bool{}
	for _, f := range Findings {
		if known[f.ID] || f.Means == "" || f.Do == "" {
			t.Errorf("%s is there twice, or says nothing", f.ID)
		}
		known[f.ID] = false
	}
	var files []string
	for _, pattern := range []string{"*.go", "cluster/*.go", "../cli/doctor*.go", "../cli/cluster/doctor*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, slices.DeleteFunc(found, func(name string) bool {
			return strings.HasSuffix(name, "_test.go") || name == "finding.go"
		})...)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					if _, there := known[ID(text)]; there {
						known[ID(text)] = true
					}
				}
			case *ast.CompositeLit:
				checkLiteral(t, name, n, known)
			}
			return true
		})
	}
	for id, used := range known {
		if !used {
			t.Errorf("no check has the id %s", id)
		}
	}
}

// checkLiteral looks at a literal of a check, which may stand in a list without its type.
func checkLiteral(t *testing.T, name string, n *ast.CompositeLit, known map[ID]bool) {
	t.Helper()
	fields := map[string]ast.Expr{}
	for _, e := range n.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				fields[key.Name] = pair.Value
			}
		}
	}
	if fields["Name"] == nil || fields["Status"] == nil {
		return
	}
	id := fields["ID"]
	if id == nil {
		t.Errorf("%s: a check has no id", name)
		return
	}
	if literal, ok := id.(*ast.BasicLit); ok {
		text, _ := strconv.Unquote(literal.Value)
		if _, there := known[ID(text)]; !there {
			t.Errorf("%s: the manual does not know the id %s", name, text)
		}
	}
}
