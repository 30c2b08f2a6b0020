package strictyaml

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var errKind = errors.New("invalid")

func TestReader(t *testing.T) {
	const head = "apiVersion: v1\nkind: K\n"
	for content, want := range map[string][]string{
		head + "name: a\n":                 nil,
		"- a\n":                            {"f:1: a file is a mapping of fields"},
		"kind: K\nname: a\n":               {"f:1: apiVersion: missing: write v1"},
		"apiVersion: v2\nkind: L\n":        {`f:1: apiVersion: "v2" is not what this version of Divvy reads, which is v1`, `f:2: kind: "L" is not what this version of Divvy reads, which is K`},
		head + "nane: a\n":                 {"f:3: nane: unknown field: did you mean name?; known here: apiVersion, kind, name, under"},
		head + "name: a\nname: b\n":        {"f:4: name: given twice"},
		head + "under: {x: 1, other: 1}\n": {"f:3: under.other: unknown field; known here: x"},
		head + "under: 1\n":                {"f:3: under: must be a mapping of fields"},
		head + "under: {[a]: 1}\n":         {"f:3: under: a field's name is one word"},
		head + "name: &n a\nunder: *n\n":   {"f:4: under: YAML aliases are not read: write the value"},
	} {
		root, fault := Document([]byte(content))
		if fault != nil {
			t.Fatal(fault)
		}
		r := &Reader{File: "f", Kind: errKind}
		nothing := func(*yaml.Node, string) {}
		if r.Version(root, "a file", "v1", "K"); len(r.Faults) == 0 {
			r.Fields(root, "", Known{"apiVersion": nothing, "kind": nothing, "name": nothing, "under": func(n *yaml.Node, field string) {
				r.Fields(n, field, Known{"x": nothing})
			}})
		}
		var got []string
		for _, err := range r.Faults {
			if got = append(got, err.Error()); !errors.Is(err, errKind) {
				t.Errorf("%v is of no kind", err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", content, strings.Join(got, "; "), strings.Join(want, "; "))
		}
	}
}
