package abi

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Kind says what a call does, so far as Divvy treats calls alike.
type Kind string

// The kinds. They appear in C as bare identifiers for token pasting.
const (
	Allocate    Kind = "allocate"    // takes GPU memory
	Free        Kind = "free"        // gives it back
	Launch      Kind = "launch"      // puts kernels or graphs on the GPU
	Copy        Kind = "copy"        // copies, sets or moves memory
	Map         Kind = "map"         // addresses and access of memory that exists
	Pool        Kind = "pool"        // memory pools
	IPC         Kind = "ipc"         // hands memory or events to another process or takes them
	Context     Kind = "context"     // contexts, and what makes or ends them
	Module      Kind = "module"      // code: modules, libraries, functions, the linker
	Graph       Kind = "graph"       // builds, changes or instantiates graphs
	Capture     Kind = "capture"     // turns a stream into a graph
	Sync        Kind = "sync"        // waits or asks for completion
	Information Kind = "information" // tells about GPUs, memory or processes
	Lookup      Kind = "lookup"      // finds GPUs or functions by name or number
	Configure   Kind = "configure"   // changes a GPU for everybody
	Session     Kind = "session"     // starts and ends the use of the library
	Pass        Kind = "pass"        // of no concern to a share
)

var kinds = []Kind{
	Allocate, Free, Launch, Copy, Map, Pool, IPC, Context, Module, Graph, Capture, Sync,
	Information, Lookup, Configure, Session, Pass,
}

// A Function is one exported name of the driver.
type Function struct {
	Name    string   `json:"name"`
	Since   int      `json:"since"`   // first CUDA version with the name, 12040 for 12.4
	Kind    Kind     `json:"kind"`    // what the call does
	Hook    string   `json:"hook"`    // shape of the hook that is written from the description, if any
	Reason  string   `json:"reason"`  // why there is no hook, where the kind needs one
	Returns string   `json:"returns"` // C type of the result
	Takes   []string `json:"takes"`   // C types of the parameters
}

var (
	namePattern   = regexp.MustCompile(`^(cu|nvml)[A-Z][A-Za-z0-9]*(_v[1-9])?(_pt[sd][sz])?$`)
	suffixPattern = regexp.MustCompile(`(_v([1-9]))?(_(pt[sd][sz]))?$`)
	ctypePattern  = regexp.MustCompile(`^(const )?[A-Za-z_][A-Za-z0-9_]*( (int|char|long|short))*( \*+(const)?)?$`)
)

// Base is the name without suffixes, under which cuGetProcAddress knows the
// function.
func (f Function) Base() string {
	return suffixPattern.ReplaceAllString(f.Name, "")
}

// Version is the number of the _v suffix, 1 without one.
func (f Function) Version() int {
	m := suffixPattern.FindStringSubmatch(f.Name)
	if m[2] == "" {
		return 1
	}
	v, err := strconv.Atoi(m[2])
	if err != nil {
		return 0
	}
	return v
}

// Variant is the stream that a NULL handle means: "ptsz" or "ptds" for the
// thread's own, "none" for the one all threads share.
func (f Function) Variant() string {
	if v := suffixPattern.FindStringSubmatch(f.Name)[4]; v != "" {
		return v
	}
	return "none"
}

// ParseFunctions reads a description of functions. Every fault is reported
// with file and line; the result is sorted by name. An absent "returns" means
// the given type.
func ParseFunctions(file string, text []byte, returns string) ([]Function, error) {
	p := functionParser{file: file, returns: returns}
	for i, line := range bytes.Split(text, []byte("\n")) {
		p.line(i+1, string(line))
	}
	if len(p.functions) == 0 && len(p.faults) == 0 {
		p.fault(1, "no functions")
	}
	return p.functions, errors.Join(p.faults...)
}

// functionParser reads line by line, because each entry is one line. So it knows
// the line of every fault.
type functionParser struct {
	file, returns string
	started       bool
	functions     []Function
	faults        []error
}

func (p *functionParser) fault(line int, format string, args ...any) {
	p.faults = append(p.faults, fmt.Errorf("%s:%d: %s", p.file, line, fmt.Sprintf(format, args...)))
}

func (p *functionParser) line(n int, text string) {
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "" || strings.HasPrefix(trimmed, "#"):
		return
	case text == "functions:" && !p.started:
		p.started = true
		return
	case !p.started:
		p.fault(n, "want \"functions:\" before %q", trimmed)
		return
	case !strings.HasPrefix(text, "  - {") || !strings.HasSuffix(text, "}"):
		p.fault(n, "want one entry \"  - {name: ..., ...}\" on this line, have %q", trimmed)
		return
	}
	f := Function{Returns: p.returns}
	if err := yaml.UnmarshalStrict([]byte(strings.TrimPrefix(text, "  - ")), &f); err != nil {
		p.fault(n, "read entry: %v", err)
		return
	}
	if fault := f.fault(); fault != "" {
		p.fault(n, "%s: %s", f.Name, fault)
		return
	}
	if last := len(p.functions) - 1; last >= 0 && p.functions[last].Name >= f.Name {
		p.fault(n, "%s: must be after %s: names are sorted and appear once", f.Name, p.functions[last].Name)
		return
	}
	p.functions = append(p.functions, f)
}

func (f Function) fault() string {
	if !namePattern.MatchString(f.Name) {
		return fmt.Sprintf("name %q is not cu... or nvml... with known suffixes", f.Name)
	}
	if !slices.Contains(kinds, f.Kind) {
		return fmt.Sprintf("unknown kind %q", f.Kind)
	}
	if f.Since < 2000 || f.Since > 99990 {
		return fmt.Sprintf("since %d is not a CUDA version such as 12040", f.Since)
	}
	if f.Takes == nil {
		return "takes is missing; write [] for no parameters"
	}
	if fault := f.hookFault(); fault != "" {
		return fault
	}
	for _, t := range append([]string{f.Returns}, f.Takes...) {
		if !ctypePattern.MatchString(t) {
			return fmt.Sprintf("%q is not a C type in the form \"const T *\"", t)
		}
	}
	return ""
}
