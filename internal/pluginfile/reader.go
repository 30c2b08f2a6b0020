package pluginfile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/internal/strictyaml"
)

// Parse reads a file; name is for errors. The error joins all faults, each a [*Fault]. A key that is refused is no
// fault: [Config.Err] has those.
func Parse(name string, content []byte) (*Config, error) {
	root, fault := parseTree(content)
	if fault != nil {
		fault.File, fault.Kind = name, ErrFile
		return nil, fault
	}
	r := &reader{file: name, config: &Config{Strategy: StrategyNone}, sharing: map[string]*sharing{}}
	r.mapping(root, "", "")
	r.settle()
	if len(r.faults) > 0 {
		slices.SortStableFunc(r.faults, func(a, b *Fault) int { return a.Line - b.Line })
		all := make([]error, len(r.faults))
		for i, f := range r.faults {
			all[i] = f
		}
		return nil, errors.Join(all...)
	}
	slices.SortStableFunc(r.config.Notes, func(a, b Note) int { return a.Line - b.Line })
	return r.config, nil
}

func parseTree(content []byte) (*yaml.Node, *Fault) {
	root, fault := strictyaml.Document(content)
	if fault == nil && root.Kind != yaml.MappingNode {
		fault = &Fault{Line: root.Line, Problem: "a configuration is a mapping of keys"}
	}
	return root, fault
}

// reader fills a configuration from a tree of YAML and collects faults.
type reader struct {
	file   string
	config *Config
	faults []*Fault
	// sharing is by the key's path, entries are in the order of the file.
	sharing map[string]*sharing
	entries []*entry
	devRoot *Note
	// later are judgements that need the whole file.
	later []func()
}

func (r *reader) fault(at *yaml.Node, field, format string, args ...any) {
	r.faults = append(r.faults, &Fault{Kind: ErrFile, File: r.file, Line: at.Line, Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (r *reader) note(at *yaml.Node, field string, outcome Outcome, format string, args ...any) {
	r.config.Notes = append(r.config.Notes, Note{Line: at.Line, Field: field, Value: oneLine(at), Outcome: outcome, Text: fmt.Sprintf(format, args...)})
}

// oneLine writes a value on one line.
func oneLine(node *yaml.Node) string {
	var parts []string
	switch node.Kind {
	case yaml.SequenceNode:
		for _, one := range node.Content {
			parts = append(parts, oneLine(one))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			parts = append(parts, node.Content[i].Value+": "+oneLine(node.Content[i+1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	if strings.ContainsAny(node.Value, "\r\n") || node.Value == "" && node.Tag == "!!str" {
		return strconv.Quote(node.Value)
	}
	return node.Value
}

// mapping reads the keys of a mapping. Path is the one of the table of keys, at the one of the file.
func (r *reader) mapping(node *yaml.Node, path, at string) {
	if node.Kind != yaml.MappingNode {
		r.fault(node, at, "must be a mapping of keys")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		field := strings.TrimPrefix(at+"."+name.Value, ".")
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		k, ok := byPath[strings.TrimPrefix(path+"."+name.Value, ".")]
		switch {
		case name.Kind != yaml.ScalarNode || name.Tag == "!!merge":
			r.fault(name, at, "a key's name is one word")
		case seen[name.Value]:
			r.fault(name, field, "given twice")
		case !ok:
			r.fault(name, field, "%s", unknown(name.Value, path))
		case value.Tag == "!!null":
			r.note(name, field, NoEffect, "it is empty")
		default:
			r.value(k, value, field)
		}
		seen[name.Value] = true
	}
}

// value reads what a key has.
func (r *reader) value(k *key, node *yaml.Node, field string) {
	switch {
	case k.read != nil:
		k.read(r, node, field)
	case k.list:
		if node.Kind != yaml.SequenceNode {
			r.fault(node, field, "must be a list")
			return
		}
		for i, one := range node.Content {
			if one.Kind == yaml.AliasNode {
				one = one.Alias
			}
			item := fmt.Sprintf("%s[%d]", field, i)
			k.below(r, one, k.path+"[]", item)
		}
	default:
		k.below(r, node, k.path, field)
	}
}

// unknown says of a key that the table has not there where it belongs, or what is known there.
func unknown(name, path string) string {
	var places, here []string
	for _, k := range keys {
		parent, last := k.parent(), k.name()
		if parent == path {
			here = append(here, last)
		}
		if strings.EqualFold(last, name) {
			places = append(places, k.path)
		}
	}
	// Of several places the one below, or above, where the key stands is meant.
	if near := slices.DeleteFunc(slices.Clone(places), func(p string) bool { return !related(p, path) }); len(near) > 0 {
		places = near
	}
	slices.Sort(here)
	switch {
	case slices.ContainsFunc(here, func(h string) bool { return strings.EqualFold(h, name) }):
		i := slices.IndexFunc(here, func(h string) bool { return strings.EqualFold(h, name) })
		return fmt.Sprintf("unknown key: it is written %s", here[i])
	case len(places) > 0:
		return "this key does not belong here: its place is " + strings.Join(places, " or ")
	case len(here) == 0:
		return "unknown key"
	}
	return "unknown key; known here: " + strings.Join(here, ", ")
}

// related reports whether the parent of a key's place lies on the way to a path, other than the root, or below it.
func related(place, path string) bool {
	parent := (&key{path: place}).parent()
	return parent != "" && path != "" && (strings.HasPrefix(path+".", parent+".") || strings.HasPrefix(path, parent+"[") || strings.HasPrefix(parent, path+"."))
}
