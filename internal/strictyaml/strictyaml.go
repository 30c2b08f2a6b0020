// Package strictyaml reads YAML files whose every field is known. A fault names the file, the line and the field.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxBytes bounds a file, as Kubernetes bounds a ConfigMap.
const MaxBytes = 1 << 20

// Fault is one thing wrong with a file.
type Fault struct {
	File string
	// Line counts from 1; it is 0 for a fault of the whole file.
	Line int
	// Field is the path of the field, such as users.ada.memory; it is empty for faults of the YAML itself.
	Field   string
	Problem string
	// Kind is what the fault is for [errors.Is], such as an invalid configuration.
	Kind error
}

// Error implements error: "/etc/divvy/agent.yaml:12: users.ada.memory: …".
func (f *Fault) Error() string {
	text := f.File + ": "
	if f.Line > 0 {
		text = fmt.Sprintf("%s:%d: ", f.File, f.Line)
	}
	if f.Field != "" {
		text += f.Field + ": "
	}
	return text + f.Problem
}

// Is makes every fault one of its kind.
func (f *Fault) Is(target error) bool { return f.Kind != nil && target == f.Kind }

// Document reads the one document of a file. The fault has no file and no kind.
func Document(content []byte) (*yaml.Node, *Fault) {
	if len(content) > MaxBytes {
		return nil, &Fault{Problem: fmt.Sprintf("larger than %d bytes", MaxBytes)}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	document := new(yaml.Node)
	if err := decoder.Decode(document); errors.Is(err, io.EOF) {
		return nil, &Fault{Problem: "the file is empty"}
	} else if err != nil {
		return nil, syntaxFault(content, err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, &Fault{Problem: "more than one document: a file holds one configuration"}
	}
	return document.Content[0], nil
}

// yamlLine is how the YAML library begins an error.
var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)$`)

// syntaxFault is an error of the YAML library as a fault at its line. It names a tab, which looks like the spaces that
// YAML wants.
func syntaxFault(content []byte, err error) *Fault {
	if line := tabbed(content); line > 0 {
		return &Fault{Line: line, Problem: "a tab in the indentation: YAML takes only spaces there"}
	}
	match := yamlLine.FindStringSubmatch(err.Error())
	if match == nil {
		return &Fault{Problem: strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	line, _ := strconv.Atoi(match[1]) // the pattern admits digits alone
	return &Fault{Line: line, Problem: match[2]}
}

// tabbed is the first line that is indented by a tab, 0 if none is.
func tabbed(content []byte) int {
	n := 0
	for line := range bytes.Lines(content) {
		n++
		if indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]; bytes.ContainsRune(indent, '\t') {
			return n
		}
	}
	return 0
}
