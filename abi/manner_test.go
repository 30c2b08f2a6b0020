package abi

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// sections is what a description needs before its functions, in a test.
const sections = `reasons:
  - {name: graphics, result: CUDA_ERROR_NOT_SUPPORTED, because: "the display is elsewhere"}
  - {name: bytes, because: "bytes go beside the record"}
handles:
  - {name: CUgraph, unknown: CUDA_ERROR_INVALID_VALUE}
  - {name: CUstream, unknown: CUDA_ERROR_INVALID_HANDLE, fixed: 2}
  - {name: CUtexObject, unknown: CUDA_ERROR_INVALID_VALUE, own: true}
values:
  - {size: 1, types: [char]}
  - {size: 4, types: [int, unsigned int, float]}
  - {size: 8, types: [size_t]}
structures:
  - {name: CUprop, size: 32, holds: [stream CUstream 8, meta nothing 16]}
functions:
  - {name: cuA, since: 2000, kind: pass, remote: hand bytes, takes: [void *]}
  - {name: cuB, since: 2000, kind: pass, remote: refused graphics, takes: [CUother *]}
  - {name: cuC, since: 2000, kind: pass, remote: posted, takes: [CUgraph ends, CUstream, CUtexObject, char, int, unsigned int, float, size_t, const CUprop * in]}
`

// withFunction is that description with one more function.
func withFunction(fields, takes string) string {
	return sections + "  - {name: cuD, since: 2000, kind: pass, " + fields + "takes: [" + takes + "]}\n"
}

func TestParametersAreJudged(t *testing.T) {
	for _, c := range []struct{ takes, want string }{
		{"CUgraph * makes, CUprop * inout", ""},
		{"CUgraph * out upto a1, size_t * count", ""},
		{"CUgraph * out upto a1, unsigned int * count, int * out upto a1", ""},
		{"const CUgraph * in a1, size_t", ""},
		{"char * text a1, int", ""},
		{"char * text 80", ""},
		{"const char * text", ""},
		{"const void * image", ""},
		{"void * address, int * out always", ""},
		{"void * in bytes a1, size_t", ""},
		{"const int * in a1-2, size_t", ""},
		{"CUprop * inout versioned", ""},
		{"CUtexObject * out, CUtexObject", ""},
		{"int *", `f.yaml:18: cuD: a0: "int *" is a pointer, and nothing says which way`},
		{"CUgraph * *", `"CUgraph * *" is not a C type`},
		{"void ** out", `a0: "void **" is the address of an address`},
		{"CUother", "a0: nothing says what CUother is"},
		{"CUother * out", "a0: nothing says what CUother is"},
		{"CUprop", "a0: CUprop by value is not served"},
		{"int in", `a0: "in" is said of a value`},
		{"int ends", "a0: int is no kind of handles, so none ends"},
		{"CUgraph * ends", "a0: a handle ends that is passed by value"},
		{"const int * out", `a0: "const int *" is const, so it cannot be out`},
		{"const CUgraph * makes", "is const, so it cannot be makes"},
		{"int * in always", "a0: always is for what the callee writes"},
		{"int * makes", `a0: "int * makes": what is made is one handle`},
		{"CUtexObject * makes", "the client cannot number what has the driver's value"},
		{"CUgraph * makes a1, int", "what is made is one handle"},
		{"int * text a1, int", "text is of char"},
		{"char * text", "text that is written has room"},
		{"const char * text a1, int", "text that is read has no length but its end"},
		{"char * text upto a1, int * count", "room for text is a number or a parameter"},
		{"const int * image", "an image is a void pointer without a length"},
		{"void * address 8", "nobody follows an address"},
		{"char * count", "a count is one number of 4 or 8 bytes"},
		{"void * out", `a0: "void * out": nothing says how many bytes these are`},
		{"CUgraph * inout a1, int", "a handle is either read or written"},
		{"int * inout versioned", "what says its own size is a structure, read and written"},
		{"CUprop * out versioned", "what says its own size is a structure, read and written"},
		{"const int * in upto a1, int * count", "upto is for arrays that the callee fills"},
		{"const CUgraph * in 2", "handles are counted by a parameter"},
		{"const void * in 200000", "these are more than 131072 bytes"},
		{"int * out a1", "there is no a1 among 1 parameters"},
		{"int * out a1, CUgraph", `a1 is "CUgraph", no number`},
		{"int * out a1, float", `a1 is "float", no number`},
		{"int * out a1, char", `a1 is "char", no number`},
		{"int * out a1, int * out", `a1 is "int * out", no number`},
		{"int * out upto a1, int", `a1 is "int", no count`},
		{"int * count", `a0: it counts, but nothing is "upto a0"`},
		{"int * out of a1, int", `"of a1" is no length`},
		{"int * out a20", `"a20" is no length`},
		{"int * out upto", `"upto" is no length`},
		{"int * out versioned upto a1", "is no length"},
		{"int * out 0", `"0" is no length`},
		{"int * out quickly", `"quickly" is no length`},
		{"int flags", `a0: "int flags" is not a C type`},
		{strings.Repeat("int, ", 16) + "int", "it has more than 16 parameters"},
		{strings.Repeat("const void * in a15, ", 15) + "size_t", "its record can have 1966"},
	} {
		_, err := ParseInterface("f.yaml", []byte(withFunction("remote: waiting, ", c.takes)), "CUresult")
		judge(t, "["+c.takes+"]", err, c.want)
	}
}

func judge(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: have %v, want %q", what, err, want)
	}
}

func TestMannersAreJudged(t *testing.T) {
	for _, c := range []struct{ fields, takes, want string }{
		{"remote: waiting, front: bytes, back: bytes, ", "int", ""},
		{"remote: posted, front: bytes, ", "int", ""},
		{"remote: local bytes, ", "CUanything *", ""},
		{"remote: refused graphics, front: bytes, ", "int", ""},
		{"", "int", "cuD: nothing says how it is called from another machine"},
		{"front: bytes, ", "int", "f.yaml:18: cuD: front and back need remote"},
		{"remote: posted, blocks: true, ", "int", ""},
		{"remote: hand bytes, blocks: true, ", "int", ""},
		{"remote: local bytes, blocks: true, ", "int", "cuD: blocks is for calls that a worker makes"},
		{"remote: refused graphics, blocks: true, ", "int", "cuD: blocks is for calls that a worker makes"},
		{"remote: waiting, back: bytes, blocks: true, ", "int", "cuD: blocks is for calls without back"},
		{"remote: quick, ", "int", `remote "quick" is none of waiting, posted, hand, local and refused`},
		{"remote: waiting bytes, ", "int", `remote "waiting bytes": waiting needs no reason`},
		{"remote: hand, ", "int", `remote "hand": hand needs the name of a reason`},
		{"remote: refused, ", "int", "refused needs the name of a reason"},
		{"remote: hand bytes, front: bytes, ", "int", "front and back stand around what is generated, and hand is not"},
		{"remote: refused graphics, back: bytes, ", "int", "front and back stand around what is generated, and refused is not"},
		{"remote: posted, back: bytes, ", "int", "back is for calls that wait"},
		{"remote: posted, ", "int * out", "a0: a posted call answers nothing"},
		{"remote: posted, ", "CUgraph * makes", "a0: a posted call answers nothing"},
		{"remote: waiting, back: bytes, ", "CUgraph * makes", "can neither make nor count"},
		{"remote: hand other, ", "int", `no reason is called "other"; there are bytes, graphics`},
		{"remote: refused bytes, ", "int", "reason bytes has no result, which a refused call needs"},
		{"remote: hand graphics, ", "int", "reason graphics has the result CUDA_ERROR_NOT_SUPPORTED, and is for refused calls"},
		{"remote: hand bytes, ", "int * out", `a0: "int * out" is said of a parameter, but hand is not generated`},
	} {
		_, err := ParseInterface("f.yaml", []byte(withFunction(c.fields, c.takes)), "CUresult")
		judge(t, c.fields+"["+c.takes+"]", err, c.want)
	}
}

func TestSectionsAreJudged(t *testing.T) {
	for _, c := range []struct{ old, with, want string }{
		{"reasons:\n", "handles:\n", "read entry"},
		{"values:\n", "reasons:\n", `want one entry`},
		{"name: bytes, because", "name: graphics, because", "f.yaml:3: graphics: a reason has one name of small letters, once"},
		{"bytes go beside the record", "bytes", `f.yaml:3: bytes: because "bytes" is no sentence`},
		{"CUDA_ERROR_NOT_SUPPORTED", "code", `"code" is no result of a driver`},
		{"unknown: CUDA_ERROR_INVALID_HANDLE", "unknown: 400", "is no result of a driver"},
		{"fixed: 2", "fixed: 20", "20 is no number up to 15"},
		{"fixed: 2", "also: CUstream", `"CUstream", which is to be taken in its place, is no other kind`},
		{"fixed: 2", "also: int", "is no other kind"},
		{"size: 8", "size: 3", "f.yaml:11: size_t: size 3 is not 1, 2, 4 or 8"},
		{"[char]", "[char, int]", "f.yaml:10: int: line 9 says already what it is"},
		{"[char]", "[char, \"int)\"]", "int): this is no name of a type in C"},
		{"[char]", "[char, long]", "long: no generated call has this type"},
		{"size: 32", "size: 2", "f.yaml:13: CUprop: size 2 is not between 4"},
		{"size: 32", "size: 20", "meta: 8 bytes at 16 are not aligned within 20"},
		{"stream CUstream 8", "stream CUstream 4", "stream: 8 bytes at 4 are not aligned"},
		{"stream CUstream 8", "stream CUother 8", "stream: CUother is no kind of handles"},
		{"stream CUstream 8", "stream CUstream", `"stream CUstream" is not a field, its kind, its offset`},
		{"stream CUstream 8", "stream CUstream 8 when 30 is 1", "the word at 30 is not aligned within 32 bytes"},
		{"stream CUstream 8", "a.b CUstream 8 out when 0 is 1", ""},
		{"const CUprop * in", "int", "CUprop: no generated call has this structure"},
		{"remote: hand bytes, takes: [void *]", "remote: waiting, takes: []", "f.yaml:3: bytes: no function has this reason"},
	} {
		if !strings.Contains(sections, c.old) {
			t.Fatalf("the description has no %q", c.old)
		}
		_, err := ParseInterface("f.yaml", []byte(strings.Replace(sections, c.old, c.with, 1)), "CUresult")
		judge(t, c.old+" becomes "+c.with, err, c.want)
	}
}

func TestStreamVariantsFollow(t *testing.T) {
	variant := func(fields, takes string) string {
		return withFunction("remote: waiting, ", "CUstream, int * out") +
			"  - {name: cuD_ptsz, since: 7000, kind: pass, " + fields + "takes: [" + takes + "]}\n"
	}
	d, err := ParseInterface("f.yaml", []byte(variant("", "CUstream, int *")), "CUresult")
	if err != nil {
		t.Fatal(err)
	}
	f := d.Functions[len(d.Functions)-1]
	if f.Remote.Manner != Waiting || f.Parameters[1].String() != "int * out" || f.Takes[1] != "int *" {
		t.Errorf("have %+v, want what cuD has", f)
	}
	for _, c := range []struct{ text, want string }{
		{variant("remote: waiting, ", "CUstream, int *"), "f.yaml:19: cuD_ptsz: it is called as cuD is; take out what this line says of it"},
		{variant("", "CUstream, int * out"), "take out what this line says of it"},
		{variant("", "CUstream, unsigned int *"), "it takes other parameters than cuD"},
		{sections + "  - {name: cuE_ptsz, since: 7000, kind: pass, takes: []}\n", "cuE_ptsz: nothing says how it is called"},
	} {
		_, err := ParseInterface("f.yaml", []byte(c.text), "CUresult")
		judge(t, c.want, err, c.want)
	}
}

// TestParametersReadAsWritten reads what String writes, for every described parameter and for drawn ones.
func TestParametersReadAsWritten(t *testing.T) {
	again := func(p Parameter) {
		have, err := parseParameter(p.String())
		if err != nil || have != p {
			t.Errorf("%q is read as %+v (%v), want %+v", p, have, err, p)
		}
	}
	for _, l := range []Library{CUDA, NVML} {
		for _, f := range parsedInterface(t, l).Functions {
			for _, p := range f.Parameters {
				again(p)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	types := []string{"int", "unsigned long long *", "const void *", "CUgraph *", "const CUprop *"}
	for range 2000 {
		p := Parameter{Type: types[r.IntN(len(types))], Role: roles[r.IntN(len(roles))], Always: r.IntN(2) == 0}
		switch r.IntN(4) {
		case 0:
			p.Length = Length{Of: 1 + r.IntN(16), Less: r.IntN(3), UpTo: r.IntN(2) == 0, Bytes: r.IntN(2) == 0}
		case 1:
			p.Length = Length{Number: 1 + r.IntN(1000), Bytes: r.IntN(2) == 0}
		case 2:
			p.Length = Length{Versioned: true}
		}
		again(p)
	}
}

func parsedInterface(t *testing.T, l Library) Interface {
	t.Helper()
	d, err := ParseInterface(l.Source, descriptionOf(t, l), l.Returns)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestEnoughIsServed holds the descriptions to what programs need.
func TestEnoughIsServed(t *testing.T) {
	for _, c := range []struct {
		library           Library
		served, generated int
	}{{CUDA, 500, 360}, {NVML, 250, 240}} {
		served, generated := 0, 0
		for _, f := range parsedInterface(t, c.library).Functions {
			if f.Remote.Served() {
				served++
			}
			if f.Remote.Generated() {
				generated++
			}
		}
		if served < c.served || generated < c.generated {
			t.Errorf("%s: %d served, %d of them generated, want %d and %d", c.library.Prefix, served, generated, c.served, c.generated)
		}
	}
	nvml := map[string]Remote{}
	for _, f := range parsedInterface(t, NVML).Functions {
		nvml[f.Name] = f.Remote
	}
	// What nvitop calls through nvidia-ml-py.
	for _, name := range strings.Fields(nvitop) {
		if !nvml[name].Served() {
			t.Errorf("%s is not served: %+v", name, nvml[name])
		}
	}
}

const nvitop = `nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetClockInfo nvmlDeviceGetComputeInstanceId nvmlDeviceGetComputeMode
	nvmlDeviceGetComputeRunningProcesses nvmlDeviceGetComputeRunningProcesses_v2 nvmlDeviceGetComputeRunningProcesses_v3
	nvmlDeviceGetConfComputeMemSizeInfo nvmlDeviceGetCount nvmlDeviceGetCount_v2 nvmlDeviceGetCudaComputeCapability
	nvmlDeviceGetDecoderUtilization nvmlDeviceGetDeviceHandleFromMigDeviceHandle nvmlDeviceGetDisplayActive
	nvmlDeviceGetDisplayMode nvmlDeviceGetDriverModel nvmlDeviceGetDriverModel_v2 nvmlDeviceGetEncoderUtilization
	nvmlDeviceGetFanSpeed nvmlDeviceGetFieldValues nvmlDeviceGetGpuInstanceId nvmlDeviceGetGraphicsRunningProcesses
	nvmlDeviceGetHandleByIndex_v2 nvmlDeviceGetHandleByPciBusId_v2 nvmlDeviceGetHandleByUUID nvmlDeviceGetIndex
	nvmlDeviceGetMPSComputeRunningProcesses nvmlDeviceGetMaxClockInfo nvmlDeviceGetMaxMigDeviceCount
	nvmlDeviceGetMemoryInfo nvmlDeviceGetMemoryInfo_v2 nvmlDeviceGetMigDeviceHandleByIndex nvmlDeviceGetMigMode
	nvmlDeviceGetName nvmlDeviceGetPciInfo nvmlDeviceGetPciInfo_v3 nvmlDeviceGetPcieThroughput
	nvmlDeviceGetPerformanceState nvmlDeviceGetPersistenceMode nvmlDeviceGetPowerManagementLimit
	nvmlDeviceGetPowerUsage nvmlDeviceGetProcessUtilization nvmlDeviceGetRunningProcessDetailList nvmlDeviceGetSerial
	nvmlDeviceGetTemperature nvmlDeviceGetTemperatureV nvmlDeviceGetTotalEccErrors nvmlDeviceGetUUID
	nvmlDeviceGetUtilizationRates nvmlDeviceIsMigDeviceHandle nvmlErrorString nvmlInit_v2 nvmlInitWithFlags nvmlShutdown
	nvmlSystemGetCudaDriverVersion nvmlSystemGetDriverVersion`

// TestRecordsAreBounded holds each call's longest record to the bound, and its described one to its own length.
func TestRecordsAreBounded(t *testing.T) {
	for _, l := range []Library{CUDA, NVML} {
		r := newRemoteLibrary(l, parsedInterface(t, l))
		for _, c := range r.calls {
			most := r.types.fixedBytes(c.Function)
			record := r.record(c)
			if most > RecordBytes || len(record) > most || len(record)%8 != 0 {
				t.Errorf("%s: a record has %d bytes, the longest %d, the bound is %d", c.Name, len(record), most, RecordBytes)
			}
			if c.words > 32 {
				t.Errorf("%s: a record has %d words, more than C has room for", c.Name, c.words)
			}
		}
	}
}

// TestProtocol checks that the protocol's digest changes with the description, and with nothing else.
func TestProtocol(t *testing.T) {
	digest := func(text string) uint64 {
		d, err := ParseInterface("f.yaml", []byte(text), "CUresult")
		if err != nil {
			t.Fatal(err)
		}
		return remoteInterface{newRemoteLibrary(CUDA, d)}.protocol(nil)
	}
	base := digest(withFunction("remote: waiting, ", "int * out"))
	if again := digest("# more\n" + withFunction("remote: waiting, ", "int * out")); again != base {
		t.Error("a comment changes the protocol")
	}
	seen := []uint64{base}
	for _, takes := range []string{"int * inout", "int * out always", "unsigned int * out", "int * out a1, int"} {
		d := digest(withFunction("remote: waiting, ", takes))
		if slices.Contains(seen, d) {
			t.Errorf("[%s] has a protocol that another has", takes)
		}
		seen = append(seen, d)
	}
	if slices.Contains(seen, digest(strings.Replace(withFunction("remote: waiting, ", "int * out"), "CUstream 8", "CUstream 0", 1))) {
		t.Error("a field's offset does not change the protocol")
	}
}

func FuzzParseInterface(f *testing.F) {
	f.Add([]byte(sections))
	f.Add([]byte(withFunction("remote: waiting, ", "CUgraph * out upto a1, size_t * count")))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := ParseInterface("f.yaml", text, "CUresult")
		if err != nil {
			return
		}
		r := newRemoteLibrary(CUDA, d)
		for _, c := range r.calls {
			if record := r.record(c); len(record) > RecordBytes || len(record)%8 != 0 {
				t.Errorf("%s: a record has %d bytes", c.Name, len(record))
			}
		}
		if out := fmt.Sprint(r.stubs(), r.decoders(), r.exercises()); strings.Contains(out, "%!") {
			t.Error("something was not formatted")
		}
	})
}
