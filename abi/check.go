package abi

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The bounds of what goes over the wire. C has them as REMOTE_..._BYTES.
const (
	RecordBytes    = 1 << 20 // a record or an answer, with its head
	ArrayBytes     = 1 << 17 // one array or text
	HeadBytes      = 32      // the head of a record
	AnswerBytes    = 32      // the head of an answer
	mostParameters = 16
)

// ParseInterface reads a description and checks that every call of it can be made from another machine, or says why not.
func ParseInterface(file string, text []byte, returns string) (Interface, error) {
	d, err := parseInterface(file, text, returns)
	if err != nil {
		return d, err
	}
	c := checker{d: &d, file: file, handles: map[string]Handle{}, values: map[string]int{}, structures: map[string]*Structure{}, reasons: map[string]Reason{}}
	c.sections()
	if len(c.faults) == 0 {
		for _, f := range d.Functions {
			c.function(f)
		}
		c.unused()
	}
	return d, errors.Join(c.faults...)
}

type checker struct {
	d          *Interface
	file       string
	handles    map[string]Handle
	values     map[string]int
	structures map[string]*Structure
	reasons    map[string]Reason
	used       map[string]bool
	faults     []error
}

func (c *checker) fault(line int, name, format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("%s:%d: %s: %s", c.file, line, name, fmt.Sprintf(format, args...)))
}

func (c *checker) of(f Function, format string, args ...any) {
	c.fault(f.line, f.Name, format, args...)
}

var (
	resultPattern = regexp.MustCompile(`^(CUDA|NVML)_[A-Z][A-Z0-9_]*$`)
	describedType = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*( (int|char|long|short))*$`)
)

// sections checks what stands before the functions.
func (c *checker) sections() {
	known := map[string]int{"void": 1}
	name := func(line int, name string) {
		if !describedType.MatchString(name) {
			c.fault(line, name, "this is no name of a type in C")
		}
		if at, ok := known[name]; ok {
			c.fault(line, name, "line %d says already what it is", at)
		}
		known[name] = line
	}
	for _, r := range c.d.Reasons {
		c.reasonEntry(r)
	}
	for _, v := range c.d.Values {
		if !slices.Contains([]int{1, 2, 4, 8}, v.Size) {
			c.fault(v.line, strings.Join(v.Types, ", "), "size %d is not 1, 2, 4 or 8", v.Size)
		}
		for _, t := range v.Types {
			name(v.line, t)
			c.values[t] = v.Size
		}
	}
	for _, h := range c.d.Handles {
		name(h.line, h.Name)
		c.handles[h.Name] = h
	}
	for _, h := range c.d.Handles {
		c.handleEntry(h)
	}
	for i := range c.d.Structures {
		c.structure(&c.d.Structures[i], name)
	}
}

func (c *checker) reasonEntry(r Reason) {
	_, twice := c.reasons[r.Name]
	switch {
	case !identifier.MatchString(r.Name) || twice:
		c.fault(r.line, r.Name, "a reason has one name of small letters, once")
	case len(wordPattern.FindAllString(r.Because, 3)) < 3 || !commentable(r.Because):
		c.fault(r.line, r.Name, "because %q is no sentence of at least three words", r.Because)
	case r.Result != "" && !resultPattern.MatchString(r.Result):
		c.fault(r.line, r.Name, "%q is no result of a driver", r.Result)
	}
	c.reasons[r.Name] = r
}

func (c *checker) handleEntry(h Handle) {
	_, ok := c.handles[h.Also]
	switch {
	case h.Also != "" && (!ok || h.Also == h.Name):
		c.fault(h.line, h.Name, "%q, which is to be taken in its place, is no other kind of handles", h.Also)
	case !resultPattern.MatchString(h.Unknown):
		c.fault(h.line, h.Name, "%q is no result of a driver", h.Unknown)
	case h.Fixed < 0 || h.Fixed > 15:
		c.fault(h.line, h.Name, "%d is no number up to 15 of fixed handles", h.Fixed)
	}
}

func (c *checker) structure(s *Structure, name func(int, string)) {
	name(s.line, s.Name)
	c.structures[s.Name], s.holds = s, nil
	if s.Size < 4 || s.Size > ArrayBytes {
		c.fault(s.line, s.Name, "size %d is not between 4 and %d", s.Size, ArrayBytes)
	}
	for _, text := range s.Holds {
		h, err := parseHold(text)
		if err != nil {
			c.fault(s.line, s.Name, "%v", err)
			continue
		}
		if fault := h.fault(s.Size, func(kind string) bool { _, ok := c.handles[kind]; return ok }); fault != "" {
			c.fault(s.line, s.Name, "%s", fault)
		}
		s.holds = append(s.holds, h)
	}
}

// function checks one call.
func (c *checker) function(f Function) {
	r := f.Remote
	if r.Manner == "" {
		c.of(f, "nothing says how it is called from another machine; give it remote:")
		return
	}
	for _, reason := range []string{r.Reason, r.Front, r.Back} {
		c.reason(f, reason, reason == r.Reason && r.Manner == Refused)
	}
	if !r.Generated() {
		for i, p := range f.Parameters {
			if p.String() != p.Type {
				c.of(f, "a%d: %q is said of a parameter, but %s is not generated", i, p, f.Remote.Manner)
			}
		}
		return
	}
	if len(f.Parameters) > mostParameters {
		c.of(f, "it has more than %d parameters", mostParameters)
	}
	for i, p := range f.Parameters {
		if fault := c.parameter(f, p); fault != "" {
			c.of(f, "a%d: %s", i, fault)
		}
	}
	for i, p := range f.Parameters {
		counted := slices.ContainsFunc(f.Parameters, func(a Parameter) bool { return a.Length.UpTo && a.Length.Of == i+1 })
		if p.Role == Count && !counted {
			c.of(f, "a%d: it counts, but nothing is \"upto a%d\"", i, i)
		}
	}
	if size := c.fixedBytes(f); size > RecordBytes {
		c.of(f, "its record can have %d bytes, more than %d", size, RecordBytes)
	}
}

func (c *checker) reason(f Function, name string, refused bool) {
	if name == "" {
		return
	}
	if c.used == nil {
		c.used = map[string]bool{}
	}
	c.used[name] = true
	r, ok := c.reasons[name]
	switch {
	case !ok:
		c.of(f, "no reason is called %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(c.reasons)), ", "))
	case refused && r.Result == "":
		c.of(f, "reason %s has no result, which a refused call needs", name)
	case !refused && r.Result != "":
		c.of(f, "reason %s has the result %s, and is for refused calls", name, r.Result)
	}
}

// unused reports what no function needs.
func (c *checker) unused() {
	for _, r := range c.d.Reasons {
		if !c.used[r.Name] {
			c.fault(r.line, r.Name, "no function has this reason")
		}
	}
	types := map[string]bool{}
	for _, f := range c.d.Functions {
		if f.Remote.Generated() {
			for _, p := range f.Parameters {
				types[p.Element()] = true
			}
		}
	}
	for _, s := range c.d.Structures {
		if !types[s.Name] {
			c.fault(s.line, s.Name, "no generated call has this structure")
		}
	}
	for _, v := range c.d.Values {
		for _, t := range v.Types {
			if !types[t] {
				c.fault(v.line, t, "no generated call has this type")
			}
		}
	}
}
