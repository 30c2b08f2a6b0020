package abi

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

	Parameters []Parameter `json:"-"` // the same with what else is said of them
	Remote     Remote      `json:"-"` // how it is called from another machine
	line       int
}

// An entry is a function as its line writes it.
type entry struct {
	Function
	Remote string `json:"remote"`
	Front  string `json:"front"`
	Back   string `json:"back"`
	Blocks bool   `json:"blocks"`
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

// VariantOf is the name without a stream variant's suffix, and whether it has one.
func (f Function) VariantOf() (string, bool) {
	v := f.Variant()
	return strings.TrimSuffix(f.Name, "_"+v), v != "none"
}

// ParseFunctions reads the functions of a description. Every fault is reported
// with file and line; the result is sorted by name. An absent "returns" means
// the given type.
func ParseFunctions(file string, text []byte, returns string) ([]Function, error) {
	d, err := parseInterface(file, text, returns)
	return d.Functions, err
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
	if !ctypePattern.MatchString(f.Returns) {
		return fmt.Sprintf("%q is not a C type in the form \"const T *\"", f.Returns)
	}
	return f.hookFault()
}
