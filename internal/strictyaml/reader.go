package strictyaml

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/internal/spelling"
)

// Reader reads a tree of YAML whose every field is known, and collects what is wrong with it.
type Reader struct {
	// File and Kind are those of each fault.
	File string
	Kind error
	// Faults are each a [*Fault].
	Faults []error
}

// Known are the fields of a mapping, each with what reads its value, which gets the field's path too.
type Known map[string]func(value *yaml.Node, field string)

// Fault notes what is wrong with a field.
func (r *Reader) Fault(at *yaml.Node, field, format string, args ...any) {
	r.Faults = append(r.Faults, &Fault{Kind: r.Kind, File: r.File, Line: at.Line, Field: field, Problem: fmt.Sprintf(format, args...)})
}

// Version checks what says how the rest of a file is to be read: its apiVersion and its kind. What is the file, as the subject of
// a sentence.
func (r *Reader) Version(root *yaml.Node, what, version, kind string) {
	if root.Kind != yaml.MappingNode {
		r.Fault(root, "", "%s is a mapping of fields", what)
		return
	}
	for _, want := range []struct{ field, value string }{{"apiVersion", version}, {"kind", kind}} {
		i := slices.IndexFunc(root.Content, func(n *yaml.Node) bool { return n.Value == want.field })
		switch {
		case i < 0 || i%2 != 0:
			r.Fault(root, want.field, "missing: write %s", want.value)
		case root.Content[i+1].Value != want.value:
			r.Fault(root.Content[i+1], want.field, "%q is not what this version of Divvy reads, which is %s", root.Content[i+1].Value, want.value)
		}
	}
}

// Fields reads a mapping whose fields are known.
func (r *Reader) Fields(node *yaml.Node, path string, of Known) {
	names := slices.Sorted(maps.Keys(of))
	r.Pairs(node, path, func(key, value *yaml.Node, field string) {
		read, ok := of[key.Value]
		if !ok {
			r.Fault(key, field, "unknown field%s; known here: %s", Meant(key.Value, names), strings.Join(names, ", "))
			return
		}
		read(value, field)
	})
}

// Meant asks whether another of the names is meant, if one is near.
func Meant(name string, names []string) string {
	if found := spelling.Nearest(name, names); found != "" {
		return ": did you mean " + found + "?"
	}
	return ""
}

// Pairs calls each with every key of a mapping, its value and its path.
func (r *Reader) Pairs(node *yaml.Node, path string, each func(key, value *yaml.Node, field string)) {
	if node.Kind != yaml.MappingNode {
		r.Fault(node, path, "must be a mapping of fields")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		field := strings.TrimPrefix(path+"."+key.Value, ".")
		switch {
		case key.Kind != yaml.ScalarNode:
			r.Fault(key, path, "a field's name is one word")
		case seen[key.Value]:
			r.Fault(key, field, "given twice")
		case value.Kind == yaml.AliasNode:
			r.Fault(value, field, "YAML aliases are not read: write the value")
		default:
			each(key, value, field)
		}
		seen[key.Value] = true
	}
}
