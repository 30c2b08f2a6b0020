package agentconfig

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// The manual has each field that is read, and no other: a mapping that has an unknown one is answered with those it could have.
func TestFieldsAreThoseThatAreRead(t *testing.T) {
	read := map[string]bool{}
	for path, text := range map[string]string{
		"": "%", "overcommit": "overcommit: {%}", "idle": "idle: {%}", "metrics": "metrics: {%}", "history": "history: {%}", "web": "web: {%}",
		"nicShares": "nicShares: {%}", "workers": "workers: {%}",
		"backends": "backends: {%}", "backends.slice": "backends: {slice: {%}}", "backends.timeslice": "backends: {timeslice: {%}}",
		"backends.mps": "backends: {mps: {%}}", "backends.mig": "backends: {mig: {%}}",
		"backends.passthrough": "backends: {passthrough: {%}}", "backends.vf": "backends: {vf: {%}}", "backends.vgpu": "backends: {vgpu: {%}}",
		"users.NAME": "users: {ada: {%}}", "groups.NAME": "groups: {students: {%}}", "others": "others: {%}",
	} {
		_, err := Parse("agent.yaml", []byte(head+strings.Replace(text, "%", "no: 1", 1)), lab{})
		if err == nil {
			t.Fatalf("%s has no fault", text)
		}
		_, known, _ := strings.Cut(err.Error(), "known here: ")
		known, _, _ = strings.Cut(known, "\n")
		for _, name := range strings.Split(known, ", ") {
			read[strings.TrimPrefix(path+"."+name, ".")] = true
		}
	}
	told := map[string]bool{}
	for _, f := range Fields() {
		switch {
		case f.Meaning == "" || f.Type == "":
			t.Errorf("%s has no type or no meaning", f.Path)
		case f.Type == typeTheLimit:
			for _, l := range LimitFields() {
				told[f.Path+"."+l.Path] = true
			}
		case strings.Contains(f.Path, "BACKEND"):
			for _, b := range formBackends {
				if f.Path != "backends.BACKEND.replicas" || b != "mig" {
					told[strings.Replace(f.Path, "BACKEND", string(b), 1)] = true
				}
			}
		case strings.Contains(f.Path, "FORM"):
			for _, b := range machineBackends {
				told[strings.Replace(f.Path, "FORM", string(b), 1)] = true
			}
		default:
			told[f.Path] = true
		}
	}
	// Mappings are told of by their fields.
	for _, mapping := range []string{"overcommit", "idle", "metrics", "history", "web", "nicShares", "workers", "backends", "users", "groups", "others"} {
		delete(read, mapping)
	}
	if want, got := slices.Sorted(maps.Keys(read)), slices.Sorted(maps.Keys(told)); !slices.Equal(want, got) {
		t.Errorf("the file has\n%s\nand the manual\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
}

// Values outside the bounds that the manual names are refused, and those at the bounds are not.
func TestFieldsHaveTheirBounds(t *testing.T) {
	bounds := map[string]string{}
	for _, f := range slices.Concat(Fields(), LimitFields()) {
		bounds[f.Path] = f.Bounds
	}
	for _, c := range []struct{ field, says, in, out string }{
		{"idle.after", "from 5s", "idle: {after: 5s}", "idle: {after: 4s}"},
		{"history.days", "1 to 3660", "history: {days: 3660}", "history: {days: 3661}"},
		{"history.size", "from 1Mi", "history: {size: 1Mi}", "history: {size: 1023Ki}"},
		{"backends.BACKEND.replicas", "1 to 1024; not for `mig`", "backends: {mps: {gpus: all, replicas: 1024}}", "backends: {mps: {gpus: all, replicas: 1025}}"},
		{"nicShares.slots", "1 to 1024", "nicShares: {slots: 1024}", "nicShares: {slots: 1025}"},
		{"nicShares.handles", "1 to 1000000", "nicShares: {handles: 1000000}", "nicShares: {handles: 1000001}"},
		{"nicShares.objects", "1 to 1000000000", "nicShares: {objects: 1000000000}", "nicShares: {objects: 1000000001}"},
		{"workers.firstUID", "1000 to 2147483646", "workers: {firstUID: 2147483646, count: 1}", "workers: {firstUID: 2147483647, count: 1}"},
		{"workers.count", "1 to 65536", "workers: {firstUID: 70000, count: 65536}", "workers: {firstUID: 70000, count: 65537}"},
		{"time", "from 1s", "others: {time: 1s}", "others: {time: 999ms}"},
		{"weight", "1 to 1000", "others: {weight: 1000}", "others: {weight: 1001}"},
	} {
		if bounds[c.field] != c.says {
			t.Errorf("%s: the manual says %q, want %q", c.field, bounds[c.field], c.says)
		}
		if _, err := Parse("agent.yaml", []byte(head+c.in), lab{}); err != nil {
			t.Errorf("%s is refused: %v", c.in, err)
		}
		if _, err := Parse("agent.yaml", []byte(head+c.out), lab{}); err == nil {
			t.Errorf("%s is taken", c.out)
		}
	}
}
