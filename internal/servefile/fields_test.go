package servefile

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// The manual has the fields that are read, and no other.
func TestFields(t *testing.T) {
	told := map[string]bool{}
	for _, f := range Fields() {
		if told[f.Path] || f.Type == "" || f.Meaning == "" {
			t.Errorf("%+v", f)
		}
		told[f.Path] = true
	}
	read := map[string]bool{"clients.NAME": true}
	for _, c := range []struct{ text, above string }{{head + "x: 1\n", ""}, {head + "clients: {a: {x: 1}}\n", "clients.NAME."}} {
		_, err := Parse("f", []byte(c.text), nil)
		if err == nil {
			t.Fatalf("%s is taken", c.text)
		}
		_, known, _ := strings.Cut(err.Error(), "known here: ")
		for name := range strings.SplitSeq(known, ", ") {
			if c.above+name != "clients" {
				read[c.above+name] = true
			}
		}
	}
	if !maps.Equal(told, read) {
		t.Errorf("told %v, read %v", slices.Sorted(maps.Keys(told)), slices.Sorted(maps.Keys(read)))
	}
}
