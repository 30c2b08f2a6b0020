package abi

import (
	"fmt"
	"slices"
	"strings"
)

// A call is a generated call with the places of its parameters in a record.
type call struct {
	Function
	number int
	words  int   // how many a record of it has
	word   []int // the first word of each parameter, -1 for none
}

// A remoteLibrary is a library as client and worker see it.
type remoteLibrary struct {
	Library
	d     Interface
	kinds map[string]bool // kinds of handles
	types checker         // what each type is
	calls []call          // the generated ones

	driver []Function // what a worker may call, also by hand
}

// nvmlNumbers is where the numbers of NVML's calls and kinds of handles begin; C has it as REMOTE_NVML.
const nvmlNumbers = 0x4000

func newRemoteLibrary(l Library, d Interface) remoteLibrary {
	r := remoteLibrary{Library: l, d: d, kinds: map[string]bool{}}
	r.types = checker{d: &r.d, handles: map[string]Handle{}, values: map[string]int{}, structures: map[string]*Structure{}, reasons: map[string]Reason{}}
	r.types.sections()
	for _, h := range d.Handles {
		r.kinds[h.Name] = true
	}
	number := r.first()
	for _, f := range d.Functions {
		if !f.Remote.Served() {
			continue
		}
		r.driver = append(r.driver, f)
		if f.Remote.Manner == Local {
			continue
		}
		if f.Remote.Generated() {
			r.calls = append(r.calls, newCall(f, number))
		}
		number++
	}
	return r
}

// first is the number of the library's first served call.
func (r remoteLibrary) first() int {
	if r.Prefix == NVML.Prefix {
		return nvmlNumbers
	}
	return 1
}

func newCall(f Function, number int) call {
	c := call{Function: f, number: number}
	for _, p := range f.Parameters {
		n := wordsOf(p)
		at := -1
		if n > 0 {
			at = c.words
		}
		c.word = append(c.word, at)
		c.words += n
	}
	return c
}

// wordsOf is how many words a parameter has in a record.
func wordsOf(p Parameter) int {
	switch {
	case p.Role == Image:
		return 2
	case !p.Pointer(), p.Role == Makes, p.Role == Count, p.Role == Address, p.Role == Text && p.Const(), p.Length.Versioned:
		return 1
	}
	return 0
}

// signed says whether values of a type can be negative.
func signed(ctype string) bool { return ctype == "int" }

// size is the size of what a parameter points to, as C spells it.
func (r remoteLibrary) size(p Parameter) string {
	return fmt.Sprint(r.types.elementBytes(p))
}

// length is how many elements a parameter has, as C computes it; less is the function that subtracts.
func (c call) length(p Parameter, less string) string {
	l := p.Length
	switch {
	case l.Number > 0:
		return fmt.Sprint(l.Number)
	case l.Of == 0:
		return "1"
	}
	by := fmt.Sprintf("a%d", l.Of-1)
	length := "(uint64_t)" + by
	if signed(c.Parameters[l.Of-1].Type) {
		length = fmt.Sprintf("(uint64_t)(%s > 0 ? %s : 0)", by, by)
	}
	if l.Less > 0 {
		return fmt.Sprintf("%s(%s, %d)", less, length, l.Less)
	}
	return length
}

// roomFor says whether a parameter of this number says how much room there is for text.
func (c call) roomFor(at int) bool {
	return slices.ContainsFunc(c.Parameters, func(p Parameter) bool { return p.Role == Text && p.Length.Of == at+1 })
}

// declare is a C declaration.
func declare(ctype, name string) string {
	if strings.HasSuffix(ctype, "*") {
		return ctype + name
	}
	return ctype + " " + name
}

// prototype is the parameter list of a function, with the names a0, a1, ...
func (f Function) prototype() string {
	if len(f.Takes) == 0 {
		return "void"
	}
	list := make([]string, len(f.Takes))
	for i, t := range f.Takes {
		list[i] = declare(t, fmt.Sprintf("a%d", i))
	}
	return strings.Join(list, ", ")
}

// kind is the C name of a kind of handles.
func kind(name string) string { return "REMOTE_KIND_" + name }

// number is the C name of a call's number.
func number(name string) string { return "REMOTE_" + name }

func boolean(b bool) string {
	if b {
		return "true"
	}
	return "false"
}
