package simgpu

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

// maxFileBytes bounds a machine file; the largest embedded one has 4 KiB.
const maxFileBytes = 1 << 20

// Fault is one thing wrong with a machine.
type Fault struct {
	// File and Line say where; Line is 0 for what an override gave and for
	// a machine that was not read from a file.
	File string
	Line int
	// Field is the path of the field, such as gpus[1].pci; empty for faults
	// of the YAML itself.
	Field   string
	Problem string
}

// Error implements error: "lab.yaml:12: gpus[1].pci: …".
func (f *Fault) Error() string {
	var text strings.Builder
	if f.File != "" {
		text.WriteString(f.File)
		if f.Line > 0 {
			text.WriteString(":" + strconv.Itoa(f.Line))
		}
		text.WriteString(": ")
	}
	if f.Field != "" {
		text.WriteString(f.Field + ": ")
	}
	return text.String() + f.Problem
}

// Parse reads a machine file; file names it in errors. The overrides, each
// FIELD=VALUE such as gpu.memory=1Gi or gpus[0].numaNode=1, are set before the
// machine is checked. The error joins all faults, each a [*Fault].
func Parse(file string, content []byte, overrides ...string) (*Machine, error) {
	root, err := parseTree(file, content)
	if err != nil {
		return nil, err
	}
	for _, override := range overrides {
		if err := setField(root, override); err != nil {
			return nil, fmt.Errorf("set %s: %w", override, err)
		}
	}
	machine := new(Machine)
	faults := decodeStrict(file, root, machine)
	if faults == nil {
		faults = located(file, root, machine.Validate())
	}
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	return machine, nil
}

func parseTree(file string, content []byte) (*yaml.Node, error) {
	if len(content) > maxFileBytes {
		return nil, &Fault{File: file, Problem: fmt.Sprintf("larger than %d bytes", maxFileBytes)}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	document := new(yaml.Node)
	if err := decoder.Decode(document); errors.Is(err, io.EOF) {
		return nil, &Fault{File: file, Problem: "the file is empty"}
	} else if err != nil {
		return nil, yamlFault(file, err.Error())
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, &Fault{File: file, Problem: "more than one document; a file describes one machine"}
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, &Fault{File: file, Line: root.Line, Problem: "a machine file is a mapping of fields"}
	}
	return root, nil
}

// decodeStrict fills the machine from the tree. The YAML library refuses
// unknown fields only while it reads text, when the overrides are not in yet;
// so that is looked at first.
func decodeStrict(file string, root *yaml.Node, machine *Machine) []error {
	if faults := unknownFields(file, root); faults != nil {
		return faults
	}
	err := root.Decode(machine)
	var typeError *yaml.TypeError
	if errors.As(err, &typeError) {
		faults := make([]error, 0, len(typeError.Errors))
		for _, text := range typeError.Errors {
			faults = append(faults, yamlFault(file, text))
		}
		return faults
	}
	if err != nil {
		return []error{yamlFault(file, err.Error())}
	}
	return nil
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)

// yamlFault turns "yaml: line 4: …" into a fault at that line.
func yamlFault(file, text string) *Fault {
	match := yamlLine.FindStringSubmatch(text)
	if match == nil {
		return &Fault{File: file, Problem: strings.TrimPrefix(text, "yaml: ")}
	}
	line, err := strconv.Atoi(match[1])
	if err != nil {
		line = 0
	}
	return &Fault{File: file, Line: line, Problem: match[2]}
}
