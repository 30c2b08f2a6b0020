package main

import (
	"slices"
	"strings"
	"testing"
)

const reading = "lib/cuda/time/reading.c"

func find(t *testing.T, r report, want string) {
	t.Helper()
	for _, fault := range r.faults {
		if strings.Contains(fault, want) {
			return
		}
	}
	t.Errorf("no fault says %q; there are: %q", want, r.faults)
}

func TestIncludesBetweenFolders(t *testing.T) {
	sources := map[string]string{
		"lib/share/share.h":     "",
		"lib/cuda/attach.h":     "#include \"share/share.h\"\n",
		"lib/cuda/time/gate.c":  "#include \"cuda/attach.h\"\n#include <time.h>\n",
		"lib/cuda/test/gate.c":  "#include \"cuda/attach.h\"\n",
		"lib/cuda/time/notes.h": "",
	}
	r := judge(includes(sources), nil)
	if len(r.faults) != 0 || r.between != 0 {
		t.Errorf("faults in folders that depend one way: %q", r.faults)
	}
	want := "lib/cuda -> lib/share;lib/cuda/test -> lib/cuda;lib/cuda/time -> lib/cuda"
	if got := strings.Join(r.drawing(), ";"); got != want {
		t.Errorf("drawing is %q, want %q", got, want)
	}
	sources["lib/cuda/attach.h"] += "#include \"cuda/time/notes.h\"\n"
	r = judge(includes(sources), nil)
	find(t, r, "circle: lib/cuda lib/cuda/time\n    lib/cuda -> lib/cuda/time: lib/cuda/attach.h includes cuda/time/notes.h")
	if r.between != 1 {
		t.Errorf("%d circles between folders, want 1", r.between)
	}
}

func TestSymbolsBetweenFolders(t *testing.T) {
	symbols := parseSymbols("lib/cuda/context.c", "                 U overhead_appeared\n0000000000000010 T context_find\n                 U malloc\n")
	symbols = append(symbols, parseSymbols("lib/cuda/memory/overhead.c", "0000000000000000 T overhead_appeared\n                 U context_find\n")...)
	find(t, judge(taken(symbols), nil), "lib/cuda/context.c takes overhead_appeared")
}

// A look-up table takes every name of the driver. The hooks that replace some of
// them are above it, and it must not count as depending on them.
func TestWeakNamesBelongToTheirTable(t *testing.T) {
	symbols := []symbol{
		{"lib/cuda/names.c", "cuMemAlloc_v2", 'W'},
		{"lib/cuda/lookup.c", "cuMemAlloc_v2", 'U'},
		{"lib/cuda/lookup.c", "lock_take", 'T'},
		{"lib/cuda/memory/hooks_linear.c", "cuMemAlloc_v2", 'T'},
		{"lib/cuda/memory/hooks_linear.c", "lock_take", 'U'},
		{"lib/simgpu/cuda/memory.c", "cuMemAlloc_v2", 'T'},
	}
	if r := judge(taken(symbols), nil); len(r.faults) != 0 {
		t.Errorf("faults: %q", r.faults)
	}
}

func TestNamesWithoutAJumpBelongToTheirTable(t *testing.T) {
	symbols := []symbol{
		{"lib/cuda/lookup.c", "cuMemAlloc", 'U'},
		{"lib/cuda/names.c", "dv_forward_cuMemAlloc", 'D'},
		{"lib/cuda/memory/hooks_linear.c", "cuMemAlloc", 'T'},
		{"lib/cuda/memory/hooks_linear.c", "dv_depth", 'U'},
		{"lib/cuda/names.c", "dv_depth", 'B'},
	}
	if r := judge(taken(symbols), nil); len(r.faults) != 0 {
		t.Errorf("faults: %q", r.faults)
	}
	without := judge(taken(slices.Delete(slices.Clone(symbols), 1, 2)), nil)
	find(t, without, "folders depend on each other in a circle")
}

func TestSameNamesInOtherLibraries(t *testing.T) {
	symbols := []symbol{
		{"lib/nvml/init.c", "find", 'U'},
		{"lib/nvml/gpus.c", "find", 'T'},
		{"lib/cuda/device.c", "find", 'T'},
	}
	edges := taken(symbols)
	if len(edges) != 1 || edges[0].to != "lib/nvml/gpus.c" {
		t.Errorf("taken from %v, want lib/nvml/gpus.c", edges)
	}
}

func TestCirclesInsideAFolder(t *testing.T) {
	edges := []edge{
		{reading, "lib/cuda/time/gate.c", "takes"},
		{"lib/cuda/time/gate.c", "lib/cuda/time/flight.c", "takes"},
		{"lib/cuda/time/flight.c", reading, "takes"},
		{"lib/cuda/time/flight.c", "lib/cuda/time/flight.h", "includes"},
		{"lib/cuda/time/launch.c", "lib/cuda/time/gate.c", "takes"},
	}
	named := []circle{{folder: "lib/cuda/time", files: []string{"reading.c", "gate.c", "flight.c"}}}
	if r := judge(edges, named); len(r.faults) != 0 || r.inside != 1 {
		t.Errorf("faults in a named circle: %q; inside %d, want 1", r.faults, r.inside)
	}
	find(t, judge(edges, nil), "not named: flight.c gate.c reading.c")

	larger := append(edges, edge{"lib/cuda/time/gate.c", "lib/cuda/time/launch.c", "takes"})
	r := judge(larger, named)
	find(t, r, "not named: flight.c gate.c launch.c reading.c")
	find(t, r, "lib/cuda/time: flight.c gate.c reading.c: this circle is named and is not there any more")

	second := append(edges, edge{"lib/cuda/time/now.h", "lib/cuda/time/notes.h", "includes"},
		edge{"lib/cuda/time/notes.h", "lib/cuda/time/now.h", "includes"})
	find(t, judge(second, named), "2 circles, one is the most")
}
