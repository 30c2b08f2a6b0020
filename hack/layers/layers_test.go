package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPackagesAreInOneLayer(t *testing.T) {
	layers := []layer{{Name: "low", Packages: []string{"a", "b"}}, {Name: "high", Packages: []string{"c"}}}
	if err := complete(layers, []string{"a", "b", "c"}); err != nil {
		t.Error(err)
	}
	for want, found := range map[string][]string{
		"package d stands in no layer": {"a", "b", "c", "d"},
		"there is no package c":        {"a", "b"},
	} {
		if err := complete(layers, found); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	layers[1].Packages = []string{"a", "c"}
	if err := complete(layers, []string{"a", "b", "c"}); err == nil || !strings.Contains(err.Error(), "package a stands in two layers, low and high") {
		t.Error(err)
	}
}

func TestLayersPointDown(t *testing.T) {
	got := rules([]layer{{Name: "low", Pure: true, Packages: []string{"a"}}, {Name: "high", Packages: []string{"c"}}})
	for _, want := range []string{"layer-low:", `files: ["**/a/*.go", "!$test"]`, "{pkg: os$, desc: a pure package reads no files}", "{pkg: " + module + "/c$, desc: high stands on low}"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "layer-high") {
		t.Errorf("the highest layer has a rule:\n%s", got)
	}
}

// TestGeneratedPartsAreCurrent fails for a package that no layer has, and for rules or a drawing of another list.
func TestGeneratedPartsAreCurrent(t *testing.T) {
	const root = "../.."
	layers, err := read(filepath.Join(root, "hack/layers/layers.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := packages(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := complete(layers, found); err != nil {
		t.Error(err)
	}
	for path, text := range map[string]string{".golangci.yml": rules(layers), "docs/design/layout.md": drawing(layers)} {
		is, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if want, err := between(is, text); err != nil || string(want) != string(is) {
			t.Errorf("%s is not what the list of layers says (%v): run make generate", path, err)
		}
	}
}
