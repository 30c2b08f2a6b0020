package abi

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// hookPattern is a shape, such as "follows", and what it needs to know: a call of a C function with parameters, a0
// being the first, and numbers.
var hookPattern = regexp.MustCompile(`^([a-z]+)(?: ([a-z_]+\((?:(?:a[0-9]|[0-9])(?:, (?:a[0-9]|[0-9]))*)?\)))?$`)

var wordPattern = regexp.MustCompile(`[A-Za-z]+`)

// NeedsHook says whether a call of this kind takes or gives memory or GPU time, so that a name without a function of
// ours would be a way around a share's limits.
func (k Kind) NeedsHook() bool {
	return slices.Contains([]Kind{Allocate, Free, Launch, Copy, Sync}, k)
}

// Hooked says how a name of the driver is linked, as names.c spells it: "must" where the build fails without a function
// of ours, "never" where it fails with one, and "may" where there is one or not.
func (f Function) Hooked() string {
	switch {
	case f.Reason != "":
		return "never"
	case f.Hook != "" || f.Kind.NeedsHook():
		return "must"
	}
	return "may"
}

func (f Function) hookFault() string {
	switch {
	case f.Hook != "" && !hookPattern.MatchString(f.Hook):
		return fmt.Sprintf("hook %q is not a shape such as \"follows\" or \"copies within(a2)\"", f.Hook)
	case f.Hook != "" && f.Reason != "":
		return "hook and reason exclude each other: the reason says why there is no hook"
	case f.Reason != "" && !f.Kind.NeedsHook():
		return fmt.Sprintf("reason is given, but kind %s needs no hook", f.Kind)
	case f.Reason != "" && len(wordPattern.FindAllString(f.Reason, 3)) < 3:
		return fmt.Sprintf("reason %q is no sentence of at least three words that says why there is no hook", f.Reason)
	case f.Hook != "":
		return f.shapeFault()
	}
	return ""
}

// Hooks is the list of hooks by shape. A C file that defines CUDA_HOOK_<SHAPE> and includes it gets one line for each
// function of that shape:
//
//	CUDA_HOOK_COPIES(name, legacy|own, stream|NULL, true|false, within(a2), (CUdeviceptr a0, ...), (a0, ...))
//
// which are the meaning of stream NULL, the parameter that is the stream, whether there is one, what the shape needs to
// know, and the function's parameters as they are declared and as they are passed on.
func (l Library) Hooks(functions []Function) string {
	byShape := map[string][]Function{}
	for _, f := range functions {
		if f.Hook != "" {
			shape := hookPattern.FindStringSubmatch(f.Hook)[1]
			byShape[shape] = append(byShape[shape], f)
		}
	}
	names := make([]string, 0, len(byShape))
	for shape := range byShape {
		names = append(names, shape)
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString(l.banner())
	for _, shape := range names {
		macro := l.Prefix + "_HOOK_" + strings.ToUpper(shape)
		fmt.Fprintf(&b, "\n#ifdef %s\n", macro)
		for _, f := range byShape[shape] {
			fmt.Fprintf(&b, "%s(%s)\n", macro, strings.Join(f.hookArguments(), ", "))
		}
		fmt.Fprintf(&b, "#undef %s\n#endif\n", macro)
	}
	return b.String()
}

func (f Function) hookArguments() []string {
	null, stream := "legacy", "NULL"
	if f.Variant() != "none" {
		null = "own"
	}
	declared, passed := make([]string, len(f.Takes)), make([]string, len(f.Takes))
	for i, ctype := range f.Takes {
		passed[i] = fmt.Sprintf("a%d", i)
		declared[i] = ctype + " " + passed[i]
		if strings.HasSuffix(ctype, "*") {
			declared[i] = ctype + passed[i]
		}
		if ctype == "CUstream" {
			stream = passed[i]
		}
	}
	return []string{
		f.Name, null, stream, fmt.Sprint(stream != "NULL"), hookPattern.FindStringSubmatch(f.Hook)[2],
		"(" + strings.Join(declared, ", ") + ")", "(" + strings.Join(passed, ", ") + ")",
	}
}
