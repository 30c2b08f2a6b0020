package abi

import (
	"fmt"
	"strings"
)

// A Library is one library of the driver, and how its names appear in C.
type Library struct {
	Source  string // description file
	Prefix  string // of the X-macro, and in lower case of the files
	Returns string // result type when an entry names none
}

// The libraries of the driver that Divvy stands in front of.
var (
	CUDA = Library{Source: "abi/cuda.yaml", Prefix: "CUDA", Returns: "CUresult"}
	NVML = Library{Source: "abi/nvml.yaml", Prefix: "NVML", Returns: "nvmlReturn_t"}
)

func (l Library) lower() string { return strings.ToLower(l.Prefix) }

func (l Library) banner() string {
	return fmt.Sprintf("/* Written by go run ./abi/gen from %s; do not edit. */\n", l.Source)
}

// Prototypes is the C header that declares every name with default
// visibility, so that a definition that follows is exported.
func (l Library) Prototypes(functions []Function) string {
	var b strings.Builder
	guard := "DIVVY_ABI_" + l.Prefix + "_FUNCTIONS_H"
	fmt.Fprintf(&b, "%s#ifndef %s\n#define %s\n\n#include \"%s_types.h\"\n\n", l.banner(), guard, guard, l.lower())
	fmt.Fprintf(&b, "#define %s_FN_COUNT %d\n\n#pragma GCC visibility push(default)\n", l.Prefix, len(functions))
	for _, f := range functions {
		takes := strings.Join(f.Takes, ", ")
		if takes == "" {
			takes = "void"
		}
		returns := f.Returns
		if !strings.HasSuffix(returns, "*") {
			returns += " "
		}
		fmt.Fprintf(&b, "%s%s(%s);\n", returns, f.Name, takes)
	}
	b.WriteString("#pragma GCC visibility pop\n\n#endif\n")
	return b.String()
}

// Names is the list of X-macro lines, one per name.
func (l Library) Names(functions []Function) string {
	var b strings.Builder
	b.WriteString(l.banner())
	for _, f := range functions {
		if l.Prefix == CUDA.Prefix {
			fmt.Fprintf(&b, "CUDA_FN(%s, %s, %d, %s, %s)\n", f.Name, f.Base(), f.Since, f.Variant(), f.Kind)
		} else {
			fmt.Fprintf(&b, "%s_FN(%s, %s, %d, %s)\n", l.Prefix, f.Name, f.Base(), f.Version(), f.Kind)
		}
	}
	return b.String()
}

// Exports is the plain list of names, one a line, sorted.
func (l Library) Exports(functions []Function) string {
	var b strings.Builder
	for _, f := range functions {
		b.WriteString(f.Name + "\n")
	}
	return b.String()
}
