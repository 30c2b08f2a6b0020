package simgpu

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds a machine file; the largest embedded one has 4 KiB.
const maxFileBytes = 1 << 20

// Fault is one thing wrong with a machine.
type Fault struct {
	// File and Line say where. File is "--set" and Line 0 for what an
	// override gave; both are empty for a machine that was not read.
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
	for i, override := range overrides {
		if err := setField(root, override, overrideLine(i)); err != nil {
			return nil, fmt.Errorf("set %s: %w", override, err)
		}
	}
	machine := new(Machine)
	found := append(unknownFields(root), decode(root, machine)...)
	if !slices.ContainsFunc(found, func(f *Fault) bool { return f.Field == "" }) {
		found = append(found, locate(root, machine.Validate())...)
	}
	return machine, joined(file, overrides, found)
}

// overrideLine marks a value that an override set: no line of a file is below 0.
func overrideLine(override int) int {
	return -1 - override
}

// joined names the file, or the override, of each fault.
func joined(file string, overrides []string, found []*Fault) error {
	errs := make([]error, 0, len(found))
	for _, fault := range found {
		fault.File = file
		if override := -1 - fault.Line; override >= 0 && override < len(overrides) {
			fault.File, fault.Line = "--set", 0
			fault.Field, _, _ = strings.Cut(overrides[override], "=")
		}
		errs = append(errs, fault)
	}
	return errors.Join(errs...)
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
		fault := yamlFault(err.Error())
		fault.File = file
		return nil, fault
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

// decode fills the machine from the tree. The faults it returns have no field.
func decode(root *yaml.Node, machine *Machine) []*Fault {
	err := root.Decode(machine)
	if err == nil {
		return nil
	}
	texts := []string{err.Error()}
	var typeError *yaml.TypeError
	if errors.As(err, &typeError) {
		texts = typeError.Errors
	}
	var found []*Fault
	for _, text := range texts {
		found = append(found, yamlFault(text))
	}
	return found
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (-?\d+): (.*)$`)

// yamlFault turns "yaml: line 4: …" into a fault at that line.
func yamlFault(text string) *Fault {
	match := yamlLine.FindStringSubmatch(text)
	if match == nil {
		return &Fault{Problem: plainly(strings.TrimPrefix(text, "yaml: "))}
	}
	line, err := strconv.Atoi(match[1])
	if err != nil {
		line = 0
	}
	return &Fault{Line: line, Problem: plainly(match[2])}
}

var yamlType = regexp.MustCompile("^cannot unmarshal !!\\w+ (?:`(.*)` )?into (.*)$")

// plainly says in words of the file what the YAML library says in types of Go.
func plainly(problem string) string {
	match := yamlType.FindStringSubmatch(problem)
	if match == nil {
		return problem
	}
	wanted := "text"
	switch {
	case strings.HasPrefix(match[2], "uint"), match[2] == "int":
		wanted = "a whole number of at least 0"
	case match[2] == "bool":
		wanted = "true or false"
	case match[2] == "time.Duration":
		wanted = "a duration such as 100us"
	case strings.HasPrefix(match[2], "[]"):
		wanted = "a list"
	case strings.HasPrefix(match[2], "simgpu."):
		wanted = "a mapping of fields"
	}
	if match[1] == "" {
		return "must be " + wanted
	}
	return fmt.Sprintf("%q is not %s", match[1], wanted)
}
