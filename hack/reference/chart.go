package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

const chartFolder = "deploy/chart"

// errValue is the error of a value of the chart without a comment.
var errValue = errors.New("a value of the chart has no comment")

// ofPods are values that Kubernetes itself explains.
var ofPods = map[string]bool{
	"nodeSelector": true, "affinity": true, "tolerations": true, "priorityClassName": true, "resources": true, "env": true,
	"podAnnotations": true, "podLabels": true, "hostNetwork": true,
}

// longestDefault is the longest text of a default, in letters, that a table has room for.
const longestDefault = 120

// schema is what is used of the schema of values.
type schema struct {
	Type             any
	Enum             []any
	Minimum, Maximum *int
	Pattern          string
	MinLength        int
	Properties       map[string]*schema
	Ref              string `json:"$ref"`
	AnyOf            []*schema
	Defs             map[string]*schema `json:"$defs"`
}

// chartValues writes the values of the chart: defaults and comments of its values.yaml, types and bounds of its schema.
func chartValues(b *strings.Builder, root string) error {
	text, err := os.ReadFile(filepath.Join(root, chartFolder, "values.yaml"))
	if err != nil {
		return fmt.Errorf("read the chart's values: %w", err)
	}
	var values yaml.Node
	if err := yaml.Unmarshal(text, &values); err != nil {
		return fmt.Errorf("read the chart's values: %w", err)
	}
	text, err = os.ReadFile(filepath.Join(root, chartFolder, "values.schema.json"))
	if err != nil {
		return fmt.Errorf("read the schema of the chart's values: %w", err)
	}
	var of schema
	if err := json.Unmarshal(text, &of); err != nil {
		return fmt.Errorf("read the schema of the chart's values: %w", err)
	}
	b.WriteString("\n## The chart's values\n\nUnknown values are refused. What `--set` and values files may have, with the defaults:\n\n" +
		strings.Replace(fieldsHead, "field", "value", 1))
	return chartRows(b, values.Content[0], &of, of.Defs, "", false)
}

// chartRows writes a mapping's values, and those of the mappings below it. Where the mapping itself was told of, what it has may
// go without a comment.
func chartRows(b *strings.Builder, node *yaml.Node, of *schema, defs map[string]*schema, path string, told bool) error {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		is := of.Properties[key.Value]
		if is == nil {
			return fmt.Errorf("%w: the schema has no %s", errValue, path+key.Value)
		}
		if is.Ref != "" {
			is = defs[strings.TrimPrefix(is.Ref, "#/$defs/")]
		}
		divided := value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 && !ofPods[key.Value]
		meaning := strings.TrimSuffix(strings.Join(strings.Fields(strings.ReplaceAll(key.HeadComment, "#", " ")), " "), ".")
		if meaning == "" && ofPods[key.Value] {
			meaning = "of its pods, as Kubernetes has it"
		}
		if meaning == "" && !divided && !told {
			return fmt.Errorf("%w: %s", errValue, path+key.Value)
		}
		if meaning != "" || !divided {
			fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", path+key.Value, is.kind(), usual(value, divided), cell(is.bounds()), cell(meaning))
		}
		if divided {
			if err := chartRows(b, value, is, defs, path+key.Value+".", meaning != ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// kind is the type of a value in words.
func (s *schema) kind() string {
	words := map[string]string{"string": "text", "integer": "whole number", "boolean": "true or false", "array": "list", "object": "mapping"}
	var all []string
	add := func(name any) {
		if text, ok := name.(string); ok && words[text] != "" {
			all = append(all, words[text])
		}
	}
	for _, one := range append([]*schema{s}, s.AnyOf...) {
		if several, ok := one.Type.([]any); ok {
			for _, name := range several {
				add(name)
			}
		}
		add(one.Type)
		if len(one.Enum) > 0 {
			all = append(all, "word")
		}
	}
	return strings.Join(all, " or ")
}

// bounds are the values that the schema lets through, empty for all of the type.
func (s *schema) bounds() string {
	var all []string
	for _, one := range append([]*schema{s}, s.AnyOf...) {
		var words []string
		for _, word := range one.Enum {
			if text := fmt.Sprint(word); text != "" {
				words = append(words, "`"+text+"`")
			} else {
				words = append(words, "empty")
			}
		}
		switch {
		case len(words) > 0:
			all = append(all, strings.Join(words, ", "))
		case one.Minimum != nil && one.Maximum != nil:
			all = append(all, fmt.Sprintf("%d to %d", *one.Minimum, *one.Maximum))
		case one.Minimum != nil:
			all = append(all, fmt.Sprintf("from %d", *one.Minimum))
		case one.Pattern != "":
			all = append(all, "`"+one.Pattern+"`")
		case one.MinLength > 0:
			all = append(all, "not empty")
		}
	}
	return strings.Join(all, "; ")
}

// usual is a default on one line; of a value that is divided its parts have theirs.
func usual(value *yaml.Node, divided bool) string {
	if divided {
		return ""
	}
	if value.Kind == yaml.ScalarNode {
		if value.Value == "" {
			return "empty"
		}
		return code(value.Value)
	}
	var plain any
	if err := value.Decode(&plain); err != nil {
		return ""
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return ""
	}
	if len(text) > longestDefault {
		return "as in [values.yaml](../../" + chartFolder + "/values.yaml)"
	}
	return code(string(text))
}
