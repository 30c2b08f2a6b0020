package abi

import (
	"fmt"
	"slices"
	"strings"
)

// parameter says what is wrong with what is said of a parameter of a generated call, "" for nothing.
func (c *checker) parameter(f Function, p Parameter) string {
	for _, fault := range []func(Function, Parameter) string{c.typed, c.byValue, c.pointed, c.byRole, c.length, c.counted} {
		if text := fault(f, p); text != "" {
			return text
		}
	}
	return ""
}

func (c *checker) isHandle(ctype string) bool {
	_, ok := c.handles[ctype]
	return ok
}

func (c *checker) isStructure(ctype string) bool {
	_, ok := c.structures[ctype]
	return ok
}

// typed asks whether it is known what the type is.
func (c *checker) typed(_ Function, p Parameter) string {
	element := p.Element()
	if strings.HasSuffix(p.Type, "**") {
		return fmt.Sprintf("%q is the address of an address, of which nothing can be said: the call has to be made by hand", p.Type)
	}
	if !c.isHandle(element) && !c.isStructure(element) && c.values[element] == 0 && element != "void" {
		return fmt.Sprintf("nothing says what %s is; list it under handles, values or structures", element)
	}
	return ""
}

// byValue judges what is not pointed to.
func (c *checker) byValue(_ Function, p Parameter) string {
	switch {
	case p.Pointer():
		return ""
	case c.isStructure(p.Type) || p.Type == "void":
		return fmt.Sprintf("%s by value is not served", p.Type)
	case p.Role != "" && p.Role != Ends:
		return fmt.Sprintf("%q is said of a value", p.Role)
	case p.Role == Ends && !c.isHandle(p.Type):
		return fmt.Sprintf("%s is no kind of handles, so none ends", p.Type)
	case p.Length != Length{} || p.Always:
		return "a value has no length"
	}
	return ""
}

// pointed judges which way memory goes.
func (c *checker) pointed(f Function, p Parameter) string {
	switch {
	case !p.Pointer():
		return ""
	case p.Role == "":
		return fmt.Sprintf("%q is a pointer, and nothing says which way its memory goes: in, out, inout, makes, text, image, address or count", p.Type)
	case p.Role == Ends:
		return "a handle ends that is passed by value, not one that is pointed to"
	case p.Const() && p.Written():
		return fmt.Sprintf("%q is const, so it cannot be %s", p.Type, p.Role)
	case p.Always && !p.Written():
		return "always is for what the callee writes"
	case f.Remote.Manner == Posted && p.Written():
		return "a posted call answers nothing, so nothing can be written"
	case f.Remote.Back != "" && (p.Length.UpTo || p.Role == Makes):
		return "a function that the worker has by hand can neither make nor count"
	}
	return ""
}

// byRole checks what a role is for.
func (c *checker) byRole(_ Function, p Parameter) string {
	element, none := p.Element(), p.Length == Length{}
	switch p.Role {
	case Makes:
		if !c.isHandle(element) || !none {
			return fmt.Sprintf("%q: what is made is one handle", p)
		}
		if c.handles[element].Own {
			return fmt.Sprintf("%q: the client cannot number what has the driver's value; say out", p)
		}
	case Text:
		return textFault(p)
	case Image:
		if element != "void" || !none {
			return fmt.Sprintf("%q: an image is a void pointer without a length", p)
		}
	case Address:
		if !none {
			return fmt.Sprintf("%q: nobody follows an address, so it has no length", p)
		}
	case Count:
		if c.values[element] < 4 || element == "float" || !none {
			return fmt.Sprintf("%q: a count is one number of 4 or 8 bytes", p)
		}
	}
	return ""
}

func textFault(p Parameter) string {
	none := p.Length == Length{}
	switch {
	case p.Element() != "char":
		return fmt.Sprintf("%q: text is of char", p)
	case p.Const() != none:
		return fmt.Sprintf("%q: text that is read has no length but its end; text that is written has room", p)
	case p.Length.UpTo || p.Length.Bytes || p.Length.Versioned:
		return fmt.Sprintf("%q: room for text is a number or a parameter", p)
	}
	return ""
}

// length checks what a length is for.
func (c *checker) length(_ Function, p Parameter) string {
	l := p.Length
	switch {
	case p.Element() == "void" && l == Length{} && slices.Contains([]Role{In, Out, InOut}, p.Role):
		return fmt.Sprintf("%q: nothing says how many bytes these are", p)
	case l.Versioned && (p.Role != InOut || !c.isStructure(p.Element())):
		return fmt.Sprintf("%q: what says its own size is a structure, read and written", p)
	case l.UpTo && p.Role != Out:
		return fmt.Sprintf("%q: upto is for arrays that the callee fills", p)
	case l.Number > ArrayBytes/c.elementBytes(p):
		return fmt.Sprintf("%q: these are more than %d bytes", p, ArrayBytes)
	case !c.isHandle(p.Element()):
		return ""
	case p.Role == InOut:
		return fmt.Sprintf("%q: a handle is either read or written", p)
	case l.Bytes || l.Number > 0 && p.Role != Out:
		return fmt.Sprintf("%q: handles are counted by a parameter", p)
	}
	return ""
}

// counted checks the parameter that says a length.
func (c *checker) counted(f Function, p Parameter) string {
	l := p.Length
	if l.Of == 0 {
		return ""
	}
	if l.Of > len(f.Parameters) {
		return fmt.Sprintf("%q: there is no a%d among %d parameters, the first of which is a0", p, l.Of-1, len(f.Parameters))
	}
	by := f.Parameters[l.Of-1]
	if l.UpTo && by.Role != Count {
		return fmt.Sprintf("%q: a%d is %q, no count", p, l.Of-1, by)
	}
	if !l.UpTo && (by.Pointer() || c.values[by.Type] < 4 || by.Type == "float") {
		return fmt.Sprintf("%q: a%d is %q, no number", p, l.Of-1, by)
	}
	return ""
}

// elementBytes is the size of what a parameter points to.
func (c *checker) elementBytes(p Parameter) int {
	if p.Length.Bytes || p.Element() == "void" {
		return 1
	}
	if s, ok := c.structures[p.Element()]; ok {
		return s.Size
	}
	if size, ok := c.values[p.Element()]; ok {
		return size
	}
	return 8
}

// fixedBytes is the most that a record of a call has, where every array is as long as its bound.
func (c *checker) fixedBytes(f Function) int {
	total := HeadBytes
	for _, p := range f.Parameters {
		total += 16
		if p.Pointer() && p.Role != Makes && p.Role != Count && p.Role != Image && p.Role != Address {
			total += c.mostBytes(p)
		}
	}
	return total
}

// mostBytes is the most that goes over the wire for what a parameter points to.
func (c *checker) mostBytes(p Parameter) int {
	switch {
	case p.Length.Of > 0 || p.Role == Text && p.Length.Number == 0:
		return ArrayBytes
	case p.Length.Number > 0:
		return p.Length.Number * c.elementBytes(p)
	}
	return c.elementBytes(p)
}
