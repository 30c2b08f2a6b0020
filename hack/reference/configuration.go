package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/exposition"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/history/store"
	"github.com/divvy-gpu/divvy/internal/pluginfile"
	"github.com/divvy-gpu/divvy/internal/queuefile"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// configuration describes every file in which something is set, and the chart's values.
func configuration(root string) (string, error) {
	var b strings.Builder
	b.WriteString("# Configuration\n\n" + made)
	b.WriteString("Every field of [agent.yaml](#agentyaml), of [serve.yaml](#serveyaml), of [queues](#queues), of [the device plugin's configuration](#the-device-plugins-configuration)\n" +
		"and of [the chart's values](#the-charts-values). An empty default means that nothing counts, or that the field cannot be left out.\n")
	agentFields(&b)
	serveFields(&b)
	for _, part := range []func(*strings.Builder, string) error{queueFields, pluginKeys, chartValues} {
		if err := part(&b, root); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// code is a value as a cell, empty for none.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}

const fieldsHead = "| field | type | default | bounds | meaning |\n|---|---|---|---|---|\n"

// agentFields writes those of agent.yaml. Two defaults belong to packages that the one that reads the file does not know.
func agentFields(b *strings.Builder) {
	defaults := map[string]string{
		"metrics.address": exposition.DefaultAddress,
		"history.days":    fmt.Sprint(store.Usual.Days),
		"history.size":    v1alpha1.FormatBytes(uint64(store.Usual.Bytes)),
	}
	write := func(fields []agentconfig.Field) {
		b.WriteString(fieldsHead)
		for _, f := range fields {
			if of, ok := defaults[f.Path]; ok {
				f.Default = of
			}
			fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", f.Path, f.Type, code(f.Default), cell(f.Bounds), cell(f.Meaning))
		}
	}
	b.WriteString("\n## agent.yaml\n\n[../agent-config.md](../agent-config.md) says what they are for. An amount is memory such as `48Gi`, a time such as `90m`.\n\n")
	write(agentconfig.Fields())
	b.WriteString("\nLimits have these fields. One that is left out limits nothing.\n\n")
	write(agentconfig.LimitFields())
}

// serveFields writes those of serve.yaml.
func serveFields(b *strings.Builder) {
	b.WriteString("\n## serve.yaml\n\n[../remote-hosts.md](../remote-hosts.md) says what they are for.\n\n" + fieldsHead)
	for _, f := range servefile.Fields() {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", f.Path, f.Type, code(f.Default), cell(f.Bounds), cell(f.Meaning))
	}
}

// queuesFile declares what a queue has, each field with a comment that says what it is.
const queuesFile = "api/v1alpha1/queue.go"

// errField is the error of a field without a comment that begins with its name.
var errField = errors.New("a field has no comment that begins with its name and says what it is")

// queueFields writes those of a queue's spec, by their comments.
func queueFields(b *strings.Builder, root string) error {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, queuesFile), nil, parser.ParseComments)
	if err != nil {
		return fmt.Errorf("read the fields of queues: %w", err)
	}
	fmt.Fprintf(b, "\n## Queues\n\nThe fields of `spec` of a `%s` of `%s`, in a cluster or in a file of `divvy replay --queues`, which has at most %d MiB\n"+
		"and %d queues. [../queues.md](../queues.md#write-a-queue) explains them.\n\n| field | type | meaning |\n|---|---|---|\n",
		v1alpha1.KindQueue, v1alpha1.APIVersion, queuefile.MaxBytes>>20, queuefile.MaxQueues)
	return structFields(b, file, "QueueSpec", "")
}

// kinds are the types of the fields of queues in a user's words.
var kinds = map[string]string{
	"string": "text", "int64": "whole number", "Duration": "time", "Amount": "amount", "QueueUnit": "word", "[]string": "list of names",
}

// structFields writes the fields of a type of a file, and below a list those of what it lists.
func structFields(b *strings.Builder, file *ast.File, name, path string) error {
	object := file.Scope.Lookup(name) //nolint:staticcheck // the types of one file are enough
	spec, _ := object.Decl.(*ast.TypeSpec)
	of, _ := spec.Type.(*ast.StructType)
	for _, f := range of.Fields.List {
		tag, _, _ := strings.Cut(strings.TrimPrefix(strings.Trim(f.Tag.Value, "`"), `json:"`), ",")
		meaning, told := strings.CutPrefix(strings.Join(strings.Fields(f.Doc.Text()), " "), f.Names[0].Name+" ")
		if !told {
			return fmt.Errorf("%w: %s of %s", errField, f.Names[0].Name, name)
		}
		kind, listed := f.Type, false
		switch t := f.Type.(type) {
		case *ast.StarExpr:
			kind = t.X
		case *ast.ArrayType:
			kind, listed = t.Elt, true
		}
		ident, _ := kind.(*ast.Ident)
		what, below := kinds[ident.Name], ""
		if listed {
			if what = kinds["[]"+ident.Name]; what == "" {
				what, below = "list", ident.Name
			}
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", path+tag, what, cell(strings.TrimSuffix(inWords(strings.TrimPrefix(strings.TrimPrefix(meaning, "is "), "are ")), ".")))
		if below != "" {
			if err := structFields(b, file, below, path+tag+"[]."); err != nil {
				return err
			}
		}
	}
	return nil
}

// linked is a name of the code in a comment.
var linked = regexp.MustCompile(`\[(\w+)\]`)

// inWords puts the values of constants for their names.
func inWords(text string) string {
	values := map[string]string{
		"MaxQueueWeight": fmt.Sprint(v1alpha1.MaxQueueWeight), "DefaultGrace": v1alpha1.DefaultGrace.String(),
		"OtherNamespaces": "`'" + v1alpha1.OtherNamespaces + "'`", "GPUModels": "a GPU's label",
	}
	return linked.ReplaceAllStringFunc(text, func(name string) string { return values[strings.Trim(name, "[]")] })
}

// pluginFile has a value of each key of the device plugin's configuration.
const pluginFile = "hack/reference/device-plugin.yaml"

// inList is the place of an item in a list.
var inList = regexp.MustCompile(`\[\d+\]`)

// errKey is the error of a key of which nothing is told.
var errKey = errors.New("the example has no such key")

// pluginKeys writes what becomes of each key, as `divvy convert` tells of the example.
func pluginKeys(b *strings.Builder, root string) error {
	text, err := os.ReadFile(filepath.Join(root, pluginFile))
	if err != nil {
		return fmt.Errorf("read the example: %w", err)
	}
	config, err := pluginfile.Parse(pluginFile, text)
	if err != nil {
		return fmt.Errorf("read the example: %w", err)
	}
	notes := map[string]pluginfile.Note{}
	for _, n := range config.Notes {
		notes[inList.ReplaceAllString(n.Field, "[]")] = n
	}
	b.WriteString("\n## The device plugin's configuration\n\nWhat becomes of each key of NVIDIA's device plugin, for the value that is shown; since which of its versions there is such a key. " +
		"For\nyour own file `divvy convert` says it ([../coming-from.md](../coming-from.md)).\n\n| key | since | such as | outcome | why |\n|---|---|---|---|---|\n")
	for _, k := range pluginfile.Keys() {
		n, ok := notes[k.Path]
		if !ok {
			return fmt.Errorf("%w: %s", errKey, k.Path)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", k.Path, k.Since, code(n.Value), n.Outcome, cell(n.Text))
	}
	return nil
}
