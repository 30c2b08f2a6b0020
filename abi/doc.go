// Package abi describes the binary interfaces that Divvy's parts share with
// the NVIDIA driver and with each other, and writes C and Go from them.
//
// The descriptions are facts (names, types, versions, layouts) in strict YAML.
// Everything derived is written by "go run ./abi/gen"; with -check it writes
// nothing and fails when a written file is out of date.
//
// # Functions: cuda.yaml, nvml.yaml
//
// One line per exported name, sorted by name:
//
//	functions:
//	  - {name: cuMemAlloc_v2, since: 3020, kind: allocate, takes: [CUdeviceptr *, size_t]}
//
// Base name, version suffix and stream variant are part of the name. The
// written files are, for each of CUDA and NVML,
//
//	lib/abi/generated/cuda_functions.h  a prototype for every name
//	lib/abi/generated/cuda_names.inc    CUDA_FN(name, base, since, variant, kind, hooked)
//	lib/abi/generated/nvml_names.inc    NVML_FN(name, base, version, kind)
//	lib/abi/generated/cuda_exports.txt  the names alone, for symbol comparisons
//	internal/simgpu/cuda_since_generated.go  the version of CUDA with which each name came
//
//	lib/abi/generated/cuda_hooks.inc    CUDA_HOOK_<SHAPE>(...), see Library.Hooks
//
// where variant is none, ptsz or ptds, version the number of the _v suffix
// (1 without one), kind a Kind, and hooked what Function.Hooked answers.
//
// A name whose kind is allocate, free, launch, copy or sync is one that our
// libcuda.so.1 must stand in front of: it is not linked without a function of
// ours. Two fields of an entry serve that:
//
//	hook: follows              # or "copies within(a2)": the function is written from this line
//	reason: "it asks nothing"  # there is no function of ours, and why, in three words or more
//
// The shapes, the kinds of functions that each is for, and the parameters that it needs stand in shapes.go. A shape that
// does not fit is refused.
//
// # Calls from another machine
//
// Each entry also says how a program on another machine calls the function:
//
//	remote: waiting            # or posted, which does not wait; both are generated
//	remote: hand bytes         # or local current, or refused graphics: not generated, with a reason
//	front: addresses           # the client's function is written by hand, around what is generated
//	back: wait                 # the worker's function is
//	blocks: true               # the driver may hold whoever calls, for the GPU or while it loads code
//
// A posted call that blocks waits for its answer in programs of several threads, so that the worker need hold up none of them.
// A refused call may have a front too, around the refusal: such as one that says what to do instead.
//
// The reasons, the kinds of handles, the types of values and the structures that generated calls take stand before the
// functions, in sections of their own. A name with _ptsz or _ptds follows the one without and says nothing itself.
//
// Values and handles by value need no words. What a parameter points to needs words after its type:
//
//	const CUprop * in          # the callee reads it
//	CUdeviceptr * out          # it writes it, when the call succeeds; "out always" also when it fails
//	CUprop * inout             # both
//	CUstream * makes           # a handle that the call makes, which the client numbers
//	CUstream ends              # by value: a handle that is none afterwards
//	const char * text          # up to a NUL
//	char * text a1             # a buffer for so much text
//	const void * image         # code, as long as its own header proves
//	void * address             # a pointer of the worker's, which nobody follows
//	size_t * count             # how many there is room for, and afterwards how many there are
//
// in, out and inout are of one element if no length follows:
//
//	const CUgraphNode * in a3  # as many as parameter 3 says, the first being 0; a3-1 is one less
//	int * out 8                # so many
//	CUgraphNode * out upto a2  # parameter 2 is a count
//	int * out bytes a1         # bytes, not elements
//	nvmlMemory_v2_t * inout versioned  # as the low 24 bits of its first word say
//
// From this are written lib/remote/generated/numbers, which has the numbers of calls and of kinds of handles and the protocol's
// digest, and in lib/remote/generated
//
//	cuda_stubs.c, nvml_stubs.c the client's functions, with what it refuses
//	cuda_decode.c, nvml_decode.c  the worker's, which believe nothing
//	cuda_by_hand.inc, nvml_by_hand.inc  CUDA_BY_HAND(name, hand|local|front|back, reason): what is not generated
//	seeds.txt                  a valid record of each call, for fuzzing
//
// and docs/remote-functions.md, and calls with drawn parameters in lib/remote/test/generated. lib/remote/record.h says what a record is.
//
// # Layouts: pages.yaml, simgpu.yaml
//
// Structures that several processes or both languages read, for 64-bit
// little-endian machines:
//
//	prefix: dv_page               # begins every C name; macros in capitals
//	go: Raw                       # optional: begins every Go name of a type or constant
//	constants:
//	  - {name: slots, type: u32, value: 64, doc: "Slots of a state page."}
//	  - {name: words, type: u32, value: (slots + 63) / 64, doc: "Computed from an earlier constant."}
//	structs:
//	  - name: slot
//	    doc: One process of a share.
//	    align: 64                 # optional: alignment of the struct, a power of two
//	    size: 128                 # optional: exact size; the tail is padded up to it
//	    fields:
//	      - {name: seq, type: u64, doc: "Number of the last operation."}
//	      - {name: uuid, type: "u8[16]"}
//	      - {name: word, type: u128, align: 64}   # optional: alignment of the field
//	  - name: state
//	    fields:
//	      - {name: slot, type: "slot[slots]"}     # an earlier struct, a constant
//	requires:
//	  - {that: size(state) < 1 << 32, because: "a header's size has 32 bits"}
//
// Types are u8 u16 u32 u64 u128 i8 i16 i32 i64 f64 char, an earlier struct, and
// arrays of these whose length is a number or an earlier constant. A doc is one
// line without the beginning or end of a C comment.
//
// A value is a decimal number, such as 512 or 1_000_000; a bit pattern, such as
// 0x8000, which stays hexadecimal; or an expression of numbers, earlier constants
// and bits(n), the number of bits that n needs, with the operators * / % + - <<
// and parentheses. It must be of its type's range in both languages: the least
// i32 and i64 have no literal in C.
//
// What one value demands of others is either computed or stands under requires:
// two expressions, in which size(struct) may appear too, with one of < <= == >= >
// between them. The generator refuses a description in which one does not hold.
//
// In C the example is "typedef struct dv_page_slot {...} dv_page_slot;" and
// DV_PAGE_SLOTS, in Go type RawSlot, const RawSlots, SizeOfRawSlot and
// OffsetOfRawSlotSeq. Names that either language could not tell apart are refused, as
// are fields named like a word of C.
// Padding is always written out and every offset asserted in both languages,
// so that no compiler decides anything. u128 is dv_page_u128 in C and two
// uint64, the low one first, in Go.
package abi
