package abi

import (
	"flag"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, have string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if have != string(want) {
		t.Errorf("%s: %s (go test ./abi -update writes it anew)", path, firstDifference(string(want), have))
	}
}

func TestFunctionGoldens(t *testing.T) {
	cuda, err := ParseFunctions("f.yaml", []byte(goodFunctions), "CUresult")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "cuda_functions.h", CUDA.Prototypes(cuda))
	golden(t, "cuda_names.inc", CUDA.Names(cuda))
	golden(t, "cuda_exports.txt", CUDA.Exports(cuda))
	golden(t, "cuda_hooks.inc", CUDA.Hooks(cuda))
	nvml, err := ParseFunctions("f.yaml", []byte(`functions:
  - {name: nvmlErrorString, since: 10000, kind: session, returns: const char *, takes: [nvmlReturn_t]}
  - {name: nvmlInit_v2, since: 12040, kind: session, takes: []}
`), "nvmlReturn_t")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "nvml_functions.h", NVML.Prototypes(nvml))
	golden(t, "nvml_names.inc", NVML.Names(nvml))
	since, err := NVML.Since(nvml, "simgpu")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "nvml_since.go.txt", since)
}

func exampleLayout(t *testing.T) *Layout {
	t.Helper()
	text, err := os.ReadFile("testdata/layout.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l, err := ParseLayout("testdata/layout.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The C golden is compiled by lib/abi/test/headers.c, where its assertions hold
// it to the compiler's layout.
func TestLayoutGoldens(t *testing.T) {
	l := exampleLayout(t)
	golden(t, "example_layout.h", l.C("abi/testdata/layout.yaml"))
	view, err := l.Go("abi/testdata/layout.yaml", "example")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "layout.go.txt", view)
	test, err := l.GoTest("abi/testdata/layout.yaml", "example")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "layout_test.go.txt", test)
}

// TestGoLayout holds the written Go structures to the described offsets on both
// supported machines, whichever of them runs the test.
func TestGoLayout(t *testing.T) {
	l := exampleLayout(t)
	view, err := l.Go("abi/testdata/layout.yaml", "example")
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		sizes := types.SizesFor("gc", arch)
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "layout.go", view, 0)
		if err != nil {
			t.Fatal(err)
		}
		config := types.Config{Importer: importer.Default(), Sizes: sizes}
		pkg, err := config.Check("example", fset, []*ast.File{file}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range l.Structs {
			compareLayout(t, sizes, pkg, l, s)
		}
	}
}

func compareLayout(t *testing.T, sizes types.Sizes, pkg *types.Package, l *Layout, s Struct) {
	t.Helper()
	st := pkg.Scope().Lookup(l.goName(s.Name)).Type().Underlying().(*types.Struct)
	if have := sizes.Sizeof(st); have != int64(s.Size) {
		t.Errorf("%s: have size %d, want %d", s.Name, have, s.Size)
	}
	var fields []*types.Var
	for f := range st.Fields() {
		fields = append(fields, f)
	}
	offsets := map[string]int64{}
	for i, offset := range sizes.Offsetsof(fields) {
		offsets[fields[i].Name()] = offset
	}
	for _, f := range s.Fields {
		if have := offsets[goName(f.Name)]; have != int64(f.offset) {
			t.Errorf("%s.%s: have offset %d, want %d", s.Name, f.Name, have, f.offset)
		}
	}
}
