package strictyaml

import (
	"errors"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestDocument(t *testing.T) {
	for content, want := range map[string]Fault{
		"":                              {Problem: "the file is empty"},
		"# nothing\n":                   {Problem: "the file is empty"},
		"a: 1\n---\nb: 2\n":             {Problem: "more than one document: a file holds one configuration"},
		"a: [\n":                        {Line: 1, Problem: "did not find expected node content"},
		"a:\n\tb: 1\n":                  {Line: 2, Problem: "a tab in the indentation: YAML takes only spaces there"},
		strings.Repeat("#", MaxBytes+1): {Problem: "larger than 1048576 bytes"},
		"a: *unknown\n":                 {Problem: "unknown anchor 'unknown' referenced"},
	} {
		node, fault := Document([]byte(content))
		if node != nil || fault == nil || *fault != want {
			t.Errorf("%.40q: %+v, want %+v", content, fault, want)
		}
	}
	node, fault := Document([]byte("a: 1\n"))
	if fault != nil || node.Kind != yaml.MappingNode || len(node.Content) != 2 {
		t.Errorf("%+v, %v", node, fault)
	}
}

func TestFault(t *testing.T) {
	kind := errors.New("invalid")
	for want, f := range map[string]Fault{
		"f: is empty":         {File: "f", Problem: "is empty"},
		"f:3: is odd":         {File: "f", Line: 3, Problem: "is odd"},
		"f:3: a.b[0]: is odd": {File: "f", Line: 3, Field: "a.b[0]", Problem: "is odd", Kind: kind},
	} {
		if got := f.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if errors.Is(&f, kind) != (f.Kind != nil) {
			t.Errorf("%q: is invalid %v", want, errors.Is(&f, kind))
		}
	}
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte("a: {b: [1, 2]}\n"))
	f.Add([]byte("a:\n\t- 1\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		node, fault := Document(content)
		if (node == nil) == (fault == nil) {
			t.Errorf("%v, %v", node, fault)
		}
	})
}
