package simgpu

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// locate gives each fault of Validate the line of its field, or of the nearest
// field around it that the file has.
func locate(root *yaml.Node, found []*Fault) []*Fault {
	for _, fault := range found {
		fault.Line = lineOf(root, fault.Field)
	}
	return found
}

var fieldStep = regexp.MustCompile(`([A-Za-z][A-Za-z0-9]*)|\[(\d+)\]`)

func lineOf(node *yaml.Node, field string) int {
	line := node.Line
	for _, step := range fieldStep.FindAllStringSubmatch(field, -1) {
		if node = childOf(node, step[1], step[2]); node == nil {
			break
		}
		line = node.Line
	}
	return line
}

func childOf(node *yaml.Node, key, index string) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if key != "" && node.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				return node.Content[i+1]
			}
		}
	}
	if place, err := strconv.Atoi(index); err == nil && node.Kind == yaml.SequenceNode && place < len(node.Content) {
		return node.Content[place]
	}
	return nil
}

var overrideForm = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9]*(?:\[\d+\])?(?:\.[A-Za-z][A-Za-z0-9]*(?:\[\d+\])?)*)=(.+)$`)

// setField sets one field of the tree to a value of one word, which gets the
// line. Mappings on the way are made, list elements must be there.
func setField(root *yaml.Node, override string, line int) error {
	match := overrideForm.FindStringSubmatch(override)
	if match == nil {
		return fmt.Errorf("write FIELD=VALUE, such as gpu.memory=1Gi or gpus[0].numaNode=1")
	}
	steps := fieldStep.FindAllStringSubmatch(match[1], -1)
	node := root
	for _, step := range steps {
		child := childOf(node, step[1], step[2])
		switch {
		case child != nil && child.Kind == yaml.AliasNode:
			// Setting through an alias would change every place that uses it.
			*child = *child.Alias
			child.Anchor = ""
		case child != nil:
		case step[1] == "":
			return fmt.Errorf("the machine has no element %s there", step[0])
		case node.Kind != yaml.MappingNode:
			return fmt.Errorf("%s is below a field that has no fields", step[1])
		default:
			child = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: line}
			key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: step[1], Line: line}
			node.Content = append(node.Content, key, child)
		}
		node = child
	}
	*node = yaml.Node{Kind: yaml.ScalarNode, Value: match[2], Line: line}
	return nil
}

// unknownFields lists the fields of the tree that a machine does not have, and
// those given twice. The YAML library does the same only while it reads text,
// when overrides are not in it yet.
func unknownFields(root *yaml.Node) []*Fault {
	var found []*Fault
	walkFields(root, reflect.TypeFor[Machine](), "", 0, func(fault *Fault) { found = append(found, fault) })
	return found
}

// maxNesting is more than a machine's deepest field; an alias inside its own
// anchor would otherwise be walked for ever.
const maxNesting = 8

func walkFields(node *yaml.Node, kind reflect.Type, path string, depth int, report func(*Fault)) {
	if depth > maxNesting {
		report(&Fault{Line: node.Line, Field: path, Problem: "nested too deeply"})
		return
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch {
	case kind.Kind() == reflect.Slice && node.Kind == yaml.SequenceNode:
		for i, element := range node.Content {
			walkFields(element, kind.Elem(), fmt.Sprintf("%s[%d]", path, i), depth+1, report)
		}
	case kind.Kind() == reflect.Struct && node.Kind == yaml.MappingNode:
		walkMapping(node, kind, path, depth, report)
	}
}

func walkMapping(node *yaml.Node, kind reflect.Type, path string, depth int, report func(*Fault)) {
	known := fieldTypes(kind)
	var seen []string
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		field := strings.TrimPrefix(path+"."+key.Value, ".")
		fieldType, ok := known[key.Value]
		switch {
		case !ok:
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			slices.Sort(names)
			report(&Fault{Line: key.Line, Field: field, Problem: "unknown field; known here: " + strings.Join(names, ", ")})
		case slices.Contains(seen, key.Value):
			report(&Fault{Line: key.Line, Field: field, Problem: "given twice"})
		default:
			walkFields(value, fieldType, field, depth+1, report)
		}
		seen = append(seen, key.Value)
	}
}

func fieldTypes(kind reflect.Type) map[string]reflect.Type {
	types := make(map[string]reflect.Type, kind.NumField())
	for i := range kind.NumField() {
		field := kind.Field(i)
		types[field.Tag.Get("yaml")] = field.Type
	}
	return types
}
