package abi

import (
	"os"
	"strings"
	"testing"
)

const goodFunctions = `# two names
functions:
  - {name: cuMemAlloc, since: 2000, kind: allocate, takes: [CUdeviceptr_v1 *, unsigned int]}
  - {name: cuMemAlloc_v2, since: 3020, kind: allocate, takes: [CUdeviceptr *, size_t]}
  - {name: cuMemPrefetchAsync, since: 8000, kind: copy, reason: "it moves nothing", takes: [CUdeviceptr, CUstream]}
  - {name: cuMemcpyHtoD_v2_ptds, since: 7000, kind: copy, hook: "copies within(a2)", takes: [CUdeviceptr, const void *, size_t]}
  - {name: cuStreamBeginCapture_v2_ptsz, since: 10010, kind: capture, hook: captures, takes: [CUstream, CUstreamCaptureMode]}
  - {name: cuStreamGetId, since: 12000, kind: pass, takes: [CUstream, unsigned long long *]}
`

func TestParseFunctions(t *testing.T) {
	functions, err := ParseFunctions("f.yaml", []byte(goodFunctions), "CUresult")
	if err != nil {
		t.Fatal(err)
	}
	if len(functions) != 6 {
		t.Fatalf("have %d functions, want 6", len(functions))
	}
	f := functions[4]
	if f.Base() != "cuStreamBeginCapture" || f.Version() != 2 || f.Variant() != "ptsz" || f.Returns != "CUresult" {
		t.Errorf("have base %s, version %d, variant %s, returns %s", f.Base(), f.Version(), f.Variant(), f.Returns)
	}
	f = functions[0]
	if f.Base() != "cuMemAlloc" || f.Version() != 1 || f.Variant() != "none" || f.Takes[0] != "CUdeviceptr_v1 *" {
		t.Errorf("have base %s, version %d, variant %s, takes %q", f.Base(), f.Version(), f.Variant(), f.Takes)
	}
}

func TestParseFunctionsFaults(t *testing.T) {
	entry := func(fields string) string { return "functions:\n  - {" + fields + "}\n" }
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "f.yaml:1: no functions"},
		{"no head", "  - {name: cuInit}\n", `f.yaml:1: want "functions:"`},
		{"other key", "functions:\nmore: 1\n", "f.yaml:2: want one entry"},
		{"two lines", "functions:\n  - {name: cuInit,\n     since: 2000}\n", "f.yaml:2: want one entry"},
		{"bad YAML", entry("name: [cuInit"), "f.yaml:2: read entry"},
		{"unknown field", entry("name: cuInit, since: 2000, kind: context, takes: [], more: 1"), `f.yaml:2: read entry`},
		{"repeated field", entry("name: cuInit, name: cuInit, since: 2000, kind: context, takes: []"), "f.yaml:2: read entry"},
		{"foreign name", entry("name: malloc, since: 2000, kind: pass, takes: []"), `f.yaml:2: malloc: name "malloc"`},
		{"unknown suffix", entry("name: cuInit_x2, since: 2000, kind: pass, takes: []"), "with known suffixes"},
		{"unknown kind", entry("name: cuInit, since: 2000, kind: alloc, takes: []"), `unknown kind "alloc"`},
		{"no kind", entry("name: cuInit, since: 2000, takes: []"), `unknown kind ""`},
		{"no since", entry("name: cuInit, kind: context, takes: []"), "since 0 is not a CUDA version"},
		{"no takes", entry("name: cuInit, since: 2000, kind: context"), "takes is missing"},
		{"parameter name", entry("name: cuInit, since: 2000, kind: context, takes: [unsigned int flags]"), "is not a C type"},
		{"injected code", entry("name: cuInit, since: 2000, kind: context, takes: [\"int); int x(int\"]"), "is not a C type"},
		{"hook without shape", entry("name: cuInit, since: 2000, kind: sync, hook: Follows, takes: []"), `hook "Follows" is not a shape`},
		{"code as hook", entry("name: cuInit, since: 2000, kind: sync, hook: \"copies within(a0); exit(1)\", takes: []"), "is not a shape"},
		{"hook and reason", entry("name: cuInit, since: 2000, kind: sync, hook: waits, reason: none, takes: []"), "exclude each other"},
		{"needless reason", entry("name: cuInit, since: 2000, kind: pass, reason: none, takes: []"), "kind pass needs no hook"},
		{"reason without words", entry("name: cuInit, since: 2000, kind: sync, reason: \"-\", takes: []"), `f.yaml:2: cuInit: reason "-" is no sentence`},
		{"reason of two words", entry("name: cuInit, since: 2000, kind: sync, reason: \"- not - needed -\", takes: []"), "at least three words"},
		{"bad result", entry("name: cuInit, since: 2000, kind: context, returns: \"\", takes: []"), `"" is not a C type`},
		{
			"repeated name",
			goodFunctions + "  - {name: cuStreamGetId, since: 12000, kind: pass, takes: []}\n",
			"f.yaml:9: cuStreamGetId: must be after cuStreamGetId",
		},
		{
			"unsorted", goodFunctions + "  - {name: cuInit, since: 2000, kind: context, takes: []}\n",
			"f.yaml:9: cuInit: must be after",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseFunctions("f.yaml", []byte(c.text), "CUresult")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("have %v, want %q", err, c.want)
			}
		})
	}
}

func TestHooksFitTheirFunctions(t *testing.T) {
	for _, c := range []struct{ kind, hook, takes, want string }{
		{"sync", "grabs", "CUstream", `hook "grabs": no shape is called so; there are asks, captures,`},
		{"allocate", "follows", "CUdeviceptr *, size_t, CUstream", `hook "follows" is for kind copy or sync or pass, not for allocate`},
		{"launch", "follows", "CUfunction, CUstream", "not for launch"},
		{"free", "copies within(a0)", "size_t", "is for kind copy, not for free"},
		{"copy", "waits", "CUstream", "is for kind sync, not for copy"},
		{"sync", "follows", "CUevent", `hook "follows" needs a parameter CUstream`},
		{"sync", "follows", "CUstream *", `hook "follows" needs a parameter CUstream`},
		{"pass", "follows", "CUstream, CUstream", "of 2 parameters CUstream it is not clear"},
		{"capture", "captures", "CUgraph", "needs a parameter CUstream"},
		{"capture", "ends", "CUgraph", "needs a parameter CUstream"},
		{"sync", "waits", "CUstream, int", `hook "waits" needs the parameters [CUstream] alone`},
		{"sync", "asks", "", "needs the parameters [CUstream] alone"},
		{"pass", "destroys", "CUevent", "needs the parameters [CUstream] alone"},
		{"graph", "changes", "CUgraph", "needs the parameters [CUgraphExec] first"},
		{"graph", "instantiates", "CUgraph, CUgraphExec *", "needs the parameters [CUgraphExec *, CUgraph] first"},
		{"launch", "launches", "CUfunction, CUstream", "needs one of these after its shape: cost_kernel"},
		{"launch", "launches cost_kernel(a0)", "CUfunction, CUstream", "cost_kernel takes 8 arguments, not 1"},
		{"launch", "launches within(a0)", "size_t, CUstream", "needs one of these after its shape: cost_kernel"},
		{"copy", "copies", "size_t", "needs one of these after its shape: between,"},
		{"copy", "copies takes(a0)", "size_t", "needs one of these after its shape: between,"},
		{"copy", "follows within(a0)", "size_t, CUstream", "takes nothing after its shape"},
		{"copy", "copies within(a7)", "CUdeviceptr, size_t", "there is no a7 among 2 parameters"},
		{"copy", "copies within(a0)", "CUdeviceptr, size_t", `within cannot take a0, which is "CUdeviceptr", for argument 1`},
		{"copy", "copies within(1)", "CUdeviceptr, size_t", "within cannot take 1"},
		{"copy", "copies within()", "CUdeviceptr, size_t", "within takes 1 arguments, not 0"},
		{"copy", "copies crossing(a1)", "CUdeviceptr, size_t", "crossing takes 0 arguments, not 1"},
		{"copy", "copies described(a0)", "CUDA_MEMCPY2D *", "described cannot take a0"},
		{"copy", "copies within(a1)", "CUdeviceptr, size_t", ""},
		{"copy", "copies filling(a1, a2, 1)", "CUdeviceptr, unsigned short, size_t", ""},
		{"sync", "follows", "CUstream", ""},
	} {
		text := "functions:\n  - {name: cuOne, since: 2000, kind: " + c.kind + ", hook: \"" + c.hook + "\", takes: [" + c.takes + "]}\n"
		_, err := ParseFunctions("f.yaml", []byte(text), "CUresult")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "f.yaml:2: cuOne: ")) {
			t.Errorf("%s, %s of [%s]: have %v, want %q", c.kind, c.hook, c.takes, err, c.want)
		}
	}
}

func TestHooked(t *testing.T) {
	functions, err := ParseFunctions("f.yaml", []byte(goodFunctions), "CUresult")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"must", "must", "never", "must", "must", "may"} {
		if have := functions[i].Hooked(); have != want {
			t.Errorf("%s %s be hooked, want %s", functions[i].Name, have, want)
		}
	}
}

func TestParseFunctionsReportsEveryFault(t *testing.T) {
	_, err := ParseFunctions("f.yaml", []byte("functions:\nx\n  - {name: y}\n"), "CUresult")
	if err == nil || strings.Count(err.Error(), "f.yaml:") != 2 {
		t.Errorf("have %v, want the faults of lines 2 and 3", err)
	}
}

// TestDescribedFunctions holds the descriptions to facts of the documented
// interfaces on which other parts rely.
func TestDescribedFunctions(t *testing.T) {
	cuda := described(t, CUDA)
	for _, c := range []struct {
		name  string
		since int
		kind  Kind
		takes string
	}{
		{"cuMemAlloc", 2000, Allocate, "CUdeviceptr_v1 *, unsigned int"},
		{"cuMemAlloc_v2", 3020, Allocate, "CUdeviceptr *, size_t"},
		{"cuMemFree", 2000, Free, "CUdeviceptr_v1"},
		{"cuMemCreate", 10020, Allocate, "CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long"},
		{"cuMemAllocAsync_ptsz", 11020, Allocate, "CUdeviceptr *, size_t, CUstream"},
		{"cuMemcpyHtoD_v2_ptds", 7000, Copy, "CUdeviceptr, const void *, size_t"},
		{"cuCtxCreate", 2000, Context, "CUcontext *, unsigned int, CUdevice"},
		{"cuCtxCreate_v2", 3020, Context, "CUcontext *, unsigned int, CUdevice"},
		{"cuCtxCreate_v4", 12050, Context, "CUcontext *, CUctxCreateParams *, unsigned int, CUdevice"},
		{"cuGetProcAddress", 11030, Lookup, "const char *, void **, int, cuuint64_t"},
		{"cuGetProcAddress_v2", 12000, Lookup, "const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *"},
		{"cuLaunchKernelEx_ptsz", 11060, Launch, "const CUlaunchConfig *, CUfunction, void **, void **"},
		{"cuGraphLaunch", 10000, Launch, "CUgraphExec, CUstream"},
		{"cuDeviceGetUuid_v2", 11040, Information, "CUuuid *, CUdevice"},
		{"cuStreamBeginCapture", 10000, Capture, "CUstream"},
		{"cuLaunchHostFunc", 10000, Pass, "CUstream, CUhostFn, void *"},
	} {
		f, ok := cuda[c.name]
		if !ok {
			t.Errorf("%s is missing", c.name)
			continue
		}
		if f.Since != c.since || f.Kind != c.kind || strings.Join(f.Takes, ", ") != c.takes {
			t.Errorf("%s: have %d %s (%s), want %d %s (%s)",
				c.name, f.Since, f.Kind, strings.Join(f.Takes, ", "), c.since, c.kind, c.takes)
		}
	}
	nvml := described(t, NVML)
	for _, name := range []string{
		"nvmlInit", "nvmlInit_v2", "nvmlInternalGetExportTable", "nvmlDeviceGetMemoryInfo_v2",
		"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v3",
	} {
		if _, ok := nvml[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	if f := nvml["nvmlErrorString"]; f.Returns != "const char *" {
		t.Errorf("nvmlErrorString returns %q", f.Returns)
	}
}

// TestVersionsRise checks what cuGetProcAddress relies on: among the names of
// one base and variant, a higher suffix is never older.
func TestVersionsRise(t *testing.T) {
	newest := map[string]Function{}
	for _, f := range parsed(t, CUDA) {
		key := f.Base() + " " + f.Variant()
		if g, ok := newest[key]; ok && (g.Version() >= f.Version() || g.Since > f.Since) {
			t.Errorf("%s (%d) follows %s (%d)", f.Name, f.Since, g.Name, g.Since)
		}
		newest[key] = f
	}
}

func parsed(t *testing.T, l Library) []Function {
	t.Helper()
	functions, err := ParseFunctions(l.Source, descriptionOf(t, l), l.Returns)
	if err != nil {
		t.Fatal(err)
	}
	return functions
}

func descriptionOf(t *testing.T, l Library) []byte {
	t.Helper()
	text, err := os.ReadFile("../" + l.Source)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func described(t *testing.T, l Library) map[string]Function {
	t.Helper()
	byName := map[string]Function{}
	for _, f := range parsed(t, l) {
		byName[f.Name] = f
	}
	return byName
}

func FuzzParseFunctions(f *testing.F) {
	f.Add([]byte(goodFunctions))
	f.Add([]byte("functions:\n  - {name: [}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		functions, err := ParseFunctions("f.yaml", text, "CUresult")
		if err != nil {
			return
		}
		for i, g := range functions {
			if i > 0 && functions[i-1].Name >= g.Name {
				t.Errorf("%s and %s are out of order", functions[i-1].Name, g.Name)
			}
			if g.Base() == "" || g.Version() < 1 || strings.ContainsAny(strings.Join(g.Takes, ""), "(){};#\n\\") {
				t.Errorf("accepted %+v", g)
			}
		}
	})
}
