package abi

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// An Interface is the description of one library of the driver.
type Interface struct {
	Reasons    []Reason
	Handles    []Handle
	Values     []Value
	Structures []Structure
	Functions  []Function
}

// A Reason says why a call is not simply made from another machine.
type Reason struct {
	Name    string `json:"name"`
	Result  string `json:"result"`  // what the client answers; empty where the call is not refused
	Because string `json:"because"` // a sentence
	line    int
}

// A Handle is a kind of handles.
type Handle struct {
	Name    string `json:"name"`    // in C
	Unknown string `json:"unknown"` // the result for a number that names none
	Fixed   int    `json:"fixed"`   // numbers up to it stand for themselves
	Also    string `json:"also"`    // a kind that is taken in its place
	Own     bool   `json:"own"`     // the driver's value is the number
	line    int
}

// A Value is some types, none of them an address, that travel as they are.
type Value struct {
	Size  int      `json:"size"` // bytes
	Types []string `json:"types"`
	line  int
}

// A Structure is one that calls point to.
type Structure struct {
	Name   string   `json:"name"`
	Size   int      `json:"size"`   // bytes; the most, where the structure says its own
	Unseen bool     `json:"unseen"` // whether lib/abi leaves it incomplete
	Holds  []string `json:"holds"`  // fields with handles and addresses, see Hold
	holds  []Hold
	line   int
}

// sectionNames are the sections of a description, in their order.
var sectionNames = []string{"reasons", "handles", "values", "structures", "functions"}

// parseInterface reads a description line by line, because each entry is one line. So it knows the line of every fault.
func parseInterface(file string, text []byte, returns string) (Interface, error) {
	p := interfaceParser{file: file, returns: returns}
	for i, line := range bytes.Split(text, []byte("\n")) {
		p.line(i+1, string(line))
	}
	if len(p.d.Functions) == 0 && len(p.faults) == 0 {
		p.fault(1, "no functions")
	}
	p.follow()
	return p.d, errors.Join(p.faults...)
}

type interfaceParser struct {
	file, returns string
	section       string
	d             Interface
	faults        []error
}

func (p *interfaceParser) fault(line int, format string, args ...any) {
	p.faults = append(p.faults, fmt.Errorf("%s:%d: %s", p.file, line, fmt.Sprintf(format, args...)))
}

func (p *interfaceParser) line(n int, text string) {
	trimmed := strings.TrimSpace(text)
	name, isKey := strings.CutSuffix(text, ":")
	switch {
	case trimmed == "" || strings.HasPrefix(trimmed, "#"):
		return
	case isKey && slices.Index(sectionNames, name) > slices.Index(sectionNames, p.section):
		p.section = name
		return
	case p.section == "":
		p.fault(n, "want \"functions:\" before %q", trimmed)
		return
	case !strings.HasPrefix(text, "  - {") || !strings.HasSuffix(text, "}"):
		p.fault(n, "want one entry \"  - {name: ..., ...}\" on this line, have %q", trimmed)
		return
	}
	entryText := []byte(strings.TrimPrefix(text, "  - "))
	switch p.section {
	case "reasons":
		p.d.Reasons = appendEntry(p, n, p.d.Reasons, entryText, func(r *Reason) { r.line = n })
	case "handles":
		p.d.Handles = appendEntry(p, n, p.d.Handles, entryText, func(h *Handle) { h.line = n })
	case "values":
		p.d.Values = appendEntry(p, n, p.d.Values, entryText, func(v *Value) { v.line = n })
	case "structures":
		p.d.Structures = appendEntry(p, n, p.d.Structures, entryText, func(s *Structure) { s.line = n })
	case "functions":
		p.function(n, entryText)
	}
}

func appendEntry[T any](p *interfaceParser, n int, to []T, text []byte, mark func(*T)) []T {
	var e T
	if err := yaml.UnmarshalStrict(text, &e); err != nil {
		p.fault(n, "read entry: %v", err)
		return to
	}
	mark(&e)
	return append(to, e)
}

func (p *interfaceParser) function(n int, text []byte) {
	e := entry{Function: Function{Returns: p.returns}}
	if err := yaml.UnmarshalStrict(text, &e); err != nil {
		p.fault(n, "read entry: %v", err)
		return
	}
	f := e.Function
	for i, t := range f.Takes {
		parameter, err := parseParameter(t)
		if err != nil {
			p.fault(n, "%s: a%d: %v", f.Name, i, err)
			return
		}
		f.Parameters = append(f.Parameters, parameter)
		f.Takes[i] = parameter.Type
	}
	fault := f.fault()
	if fault == "" {
		f.Remote, fault = parseRemote(e.Remote, e.Front, e.Back)
	}
	if fault == "" && e.Blocks {
		f.Remote, fault = f.Remote.blocking()
	}
	if fault != "" {
		p.fault(n, "%s: %s", f.Name, fault)
		return
	}
	if last := len(p.d.Functions) - 1; last >= 0 && p.d.Functions[last].Name >= f.Name {
		p.fault(n, "%s: must be after %s: names are sorted and appear once", f.Name, p.d.Functions[last].Name)
		return
	}
	f.line = n
	p.d.Functions = append(p.d.Functions, f)
}

// follow gives each stream variant the manner and the words of the name without its suffix.
func (p *interfaceParser) follow() {
	at := map[string]int{}
	for i, f := range p.d.Functions {
		at[f.Name] = i
	}
	for i := range p.d.Functions {
		f := &p.d.Functions[i]
		base, isVariant := f.VariantOf()
		if !isVariant {
			continue
		}
		own := f.Remote != Remote{}
		for _, a := range f.Parameters {
			own = own || a.String() != a.Type
		}
		if own {
			p.fault(f.line, "%s: it is called as %s is; take out what this line says of it", f.Name, base)
			continue
		}
		if b, ok := at[base]; ok {
			if strings.Join(f.Takes, ",") != strings.Join(p.d.Functions[b].Takes, ",") {
				p.fault(f.line, "%s: it takes other parameters than %s", f.Name, base)
				continue
			}
			f.Remote, f.Parameters = p.d.Functions[b].Remote, p.d.Functions[b].Parameters
		}
	}
}
