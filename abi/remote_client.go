package abi

import (
	"fmt"
	"strings"
)

// Stubs is the C file of the client's functions.
func (r remoteLibrary) stubs() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s#include \"remote/generated/%s_stubs.h\"\n\n#include \"remote/call.h\"\n", r.banner(), r.lower())
	for _, s := range r.d.Structures {
		r.learn(&b, s)
	}
	for _, c := range r.calls {
		r.stub(&b, c)
	}
	b.WriteString("\n/* What the client refuses. */\n")
	for _, f := range r.d.Functions {
		if f.Remote.Manner == Refused {
			r.refusal(&b, f)
		}
	}
	return b.String()
}

// stubsHeader declares what functions by hand stand around.
func (r remoteLibrary) stubsHeader() string {
	var b strings.Builder
	guard := "DIVVY_REMOTE_" + r.Prefix + "_STUBS_H"
	fmt.Fprintf(&b, "%s#ifndef %s\n#define %s\n\n#include \"abi/generated/%s_functions.h\"\n\n", r.banner(), guard, guard, r.lower())
	b.WriteString("/* The exported functions can have other names, in a test. */\n#ifndef REMOTE_STUB\n#define REMOTE_STUB(name) name\n#endif\n\n")
	b.WriteString("/* Behind these stand functions that are written by hand. */\n")
	for _, f := range r.d.Functions {
		if f.Remote.Front != "" {
			fmt.Fprintf(&b, "%s remote_call_%s(%s);\n", f.Returns, f.Name, f.prototype())
		}
	}
	b.WriteString("\n#ifdef REMOTE_STUBS_RENAMED\n")
	for _, f := range r.d.Functions {
		if f.Remote.Front == "" && (f.Remote.Generated() || f.Remote.Manner == Refused) {
			fmt.Fprintf(&b, "%s REMOTE_STUB(%s)(%s);\n", f.Returns, f.Name, f.prototype())
		}
	}
	b.WriteString("#endif\n\n#endif\n")
	return b.String()
}

// byHand lists what somebody has to write: whole functions, and what stands around generated ones.
func (r remoteLibrary) byHand() string {
	var b strings.Builder
	b.WriteString(r.banner())
	for _, f := range r.d.Functions {
		switch f.Remote.Manner {
		case Hand, Local:
			fmt.Fprintf(&b, "%s_BY_HAND(%s, %s, %s)\n", r.Prefix, f.Name, f.Remote.Manner, f.Remote.Reason)
		}
		if f.Remote.Front != "" {
			fmt.Fprintf(&b, "%s_BY_HAND(%s, front, %s)\n", r.Prefix, f.Name, f.Remote.Front)
		}
		if f.Remote.Back != "" {
			fmt.Fprintf(&b, "%s_BY_HAND(%s, back, %s)\n", r.Prefix, f.Name, f.Remote.Back)
		}
	}
	return b.String()
}

func (f Function) stubName() string {
	if f.Remote.Front != "" {
		return "remote_call_" + f.Name
	}
	return "REMOTE_STUB(" + f.Name + ")"
}

func (r remoteLibrary) refusal(b *strings.Builder, f Function) {
	fmt.Fprintf(b, "%s %s(%s) {\n", f.Returns, f.stubName(), f.prototype())
	for i := range f.Takes {
		fmt.Fprintf(b, "    (void)a%d;\n", i)
	}
	fmt.Fprintf(b, "    return %s;\n}\n", r.types.reasons[f.Remote.Reason].Result)
}

// learn is the function that notes the handles in a structure.
func (r remoteLibrary) learn(b *strings.Builder, s Structure) {
	if !r.learns(s.Name) {
		return
	}
	fmt.Fprintf(b, "\nstatic void learn_%s(const %s *s) {\n", s.Name, s.Name)
	for _, h := range r.types.structures[s.Name].holds {
		if h.Kind == Nothing {
			continue
		}
		indent := "    "
		if h.When {
			fmt.Fprintf(b, "    if (remote_word_is(s, %d, %d)) {\n", h.WhenAt, h.WhenIs)
			indent = "        "
		}
		fmt.Fprintf(b, "%sremote_learn_field(s, %d, %s);\n", indent, h.At, kind(h.Kind))
		if h.When {
			b.WriteString("    }\n")
		}
	}
	b.WriteString("}\n")
}

// learns says whether some call writes handles in structures of this type.
func (r remoteLibrary) learns(name string) bool {
	holds := false
	for _, h := range r.types.holds(name) {
		holds = holds || h.Kind != Nothing
	}
	return holds && r.has(name, func(_ call, p Parameter) bool { return p.Written() })
}

// holds are the handles in structures of this type, none for another.
func (c checker) holds(name string) []Hold {
	if s, ok := c.structures[name]; ok {
		return s.holds
	}
	return nil
}

func (r remoteLibrary) stub(b *strings.Builder, c call) {
	fmt.Fprintf(b, "\n%s %s(%s) {\n    struct remote_call c;\n", c.Returns, c.stubName(), c.prototype())
	if c.Remote.Manner == Waiting {
		b.WriteString("    struct remote_reply r;\n")
	}
	fmt.Fprintf(b, "\n    remote_begin(&c, %s, %d);\n", number(c.Name), c.words)
	for i, p := range c.Parameters {
		if c.roomFor(i) {
			fmt.Fprintf(b, "    a%d = a%d > (%s)REMOTE_ARRAY_BYTES ? (%s)REMOTE_ARRAY_BYTES : a%d;\n", i, i, p.Type, p.Type, i)
		}
	}
	for i, p := range c.Parameters {
		r.send(b, c, i, p)
	}
	if c.Remote.Manner == Posted {
		r.posted(b, c)
		return
	}
	var reads strings.Builder
	for i, p := range c.Parameters {
		r.receive(&reads, c, i, p)
	}
	if reads.Len() == 0 {
		b.WriteString("    remote_ask(&c, &r);\n")
	} else {
		fmt.Fprintf(b, "    if (remote_ask(&c, &r)) {\n%s    }\n", reads.String())
	}
	for i, p := range c.Parameters {
		if p.Role == Makes {
			fmt.Fprintf(b, "    remote_get_made(&c, &r, %d, %d, %s, a%d);\n", i, c.word[i], kind(p.Element()), i)
		}
	}
	fmt.Fprintf(b, "    return (%s)remote_end(&c, &r);\n}\n", c.Returns)
}

// posted sends the record of a call that does not wait, and forgets what it ends.
func (r remoteLibrary) posted(b *strings.Builder, c call) {
	ends := ""
	for i, p := range c.Parameters {
		if p.Role == Ends {
			ends += fmt.Sprintf("        remote_get_ended(NULL, %s, c.words[%d]);\n", kind(p.Type), c.word[i])
		}
	}
	if ends == "" {
		fmt.Fprintf(b, "    return (%s)remote_post(&c);\n}\n", c.Returns)
		return
	}
	fmt.Fprintf(b, "    %s result = (%s)remote_post(&c);\n    if (!result) {\n%s    }\n    return result;\n}\n", c.Returns, c.Returns, ends)
}

// send writes a parameter to the record.
func (r remoteLibrary) send(b *strings.Builder, c call, i int, p Parameter) {
	w := c.word[i]
	if !p.Pointer() {
		r.sendValue(b, c, i, p)
		return
	}
	switch p.Role {
	case Makes:
		fmt.Fprintf(b, "    remote_make(&c, %d, %d, %s, a%d);\n", i, w, kind(p.Element()), i)
	case Address:
		fmt.Fprintf(b, "    c.words[%d] = (uintptr_t)a%d;\n", w, i)
	case Image:
		fmt.Fprintf(b, "    remote_image(&c, %d, %d, a%d);\n", i, w, i)
	case Count:
		r.sendCount(b, c, i, w)
	case In, InOut:
		r.sendArray(b, c, i, p)
	default:
		if p.Role == Text && p.Const() {
			fmt.Fprintf(b, "    remote_text(&c, %d, %d, a%d);\n", i, w, i)
			return
		}
		r.sendRoom(b, c, i, p)
	}
}

// sendArray sends what the callee reads.
func (r remoteLibrary) sendArray(b *strings.Builder, c call, i int, p Parameter) {
	length := c.length(p, "remote_less")
	switch {
	case p.Length.Versioned:
		fmt.Fprintf(b, "    remote_versioned(&c, %d, %d, a%d, %s);\n", i, c.word[i], i, r.size(p))
	case r.kinds[p.Element()]:
		fmt.Fprintf(b, "    remote_handles(&c, %d, %s, a%d, %s);\n", i, kind(p.Element()), i, length)
	default:
		fmt.Fprintf(b, "    remote_array(&c, %d, a%d, %s, %s);\n", i, i, length, r.size(p))
	}
}

// sendRoom says that there is room for what the callee writes.
func (r remoteLibrary) sendRoom(b *strings.Builder, c call, i int, p Parameter) {
	none := Length{}
	if p.Length.UpTo || p.Length == none {
		fmt.Fprintf(b, "    remote_given(&c, %d, a%d);\n", i, i)
		return
	}
	fmt.Fprintf(b, "    remote_room(&c, %d, a%d, %s, %s);\n", i, i, c.length(p, "remote_less"), r.size(p))
}

func (r remoteLibrary) sendValue(b *strings.Builder, c call, i int, p Parameter) {
	switch {
	case r.kinds[p.Type]:
		fmt.Fprintf(b, "    remote_use(&c, %d, %s, (uint64_t)a%d);\n", c.word[i], kind(p.Type), i)
	case p.Type == "float":
		fmt.Fprintf(b, "    c.words[%d] = remote_float_word(a%d);\n", c.word[i], i)
	case signed(p.Type):
		fmt.Fprintf(b, "    c.words[%d] = (uint64_t)(int64_t)a%d;\n", c.word[i], i)
	default:
		fmt.Fprintf(b, "    c.words[%d] = (uint64_t)a%d;\n", c.word[i], i)
	}
}

// sendCount writes the room for arrays, no more than an answer can carry of the largest elements.
func (r remoteLibrary) sendCount(b *strings.Builder, c call, i, w int) {
	largest, any := 0, ""
	for j, p := range c.Parameters {
		if p.Length.UpTo && p.Length.Of == i+1 {
			largest = max(largest, r.types.elementBytes(p))
			if any != "" {
				any += " || "
			}
			any += fmt.Sprintf("a%d", j)
		}
	}
	fmt.Fprintf(b, "    remote_count(&c, %d, %d, a%d, a%d ? (uint64_t)*a%d : 0, %s ? %d : 0);\n", i, w, i, i, i, any, largest)
}

// receive reads what a call wrote to a parameter.
func (r remoteLibrary) receive(b *strings.Builder, c call, i int, p Parameter) {
	always := boolean(p.Always || p.Role == Count)
	element := p.Element()
	switch {
	case p.Role == Ends:
		fmt.Fprintf(b, "        remote_get_ended(&r, %s, c.words[%d]);\n", kind(p.Type), c.word[i])
	case !p.Written() || p.Role == Makes:
		return
	case p.Role == Count:
		fmt.Fprintf(b, "        remote_get_count(&c, &r, %d, %d, a%d, sizeof *a%d);\n", i, c.word[i], i, i)
	case p.Role == Text:
		fmt.Fprintf(b, "        remote_get_some(&c, &r, %d, a%d, %s, %s);\n", i, i, c.length(p, ""), always)
	case p.Length.UpTo:
		by := c.word[p.Length.Of-1]
		if r.kinds[element] {
			fmt.Fprintf(b, "        remote_get_handles(&c, &r, %d, %s, a%d, c.words[%d], %s);\n", i, kind(element), i, by, always)
		} else {
			fmt.Fprintf(b, "        remote_get_some(&c, &r, %d, a%d, c.words[%d] * %s, %s);\n", i, i, by, r.size(p), always)
		}
	case p.Length.Versioned:
		fmt.Fprintf(b, "        remote_get(&c, &r, %d, a%d, c.words[%d], %s);\n", i, i, c.word[i], always)
	case r.kinds[element] && p.Length.Many():
		fmt.Fprintf(b, "        remote_get_handles(&c, &r, %d, %s, a%d, %s, %s);\n", i, kind(element), i, c.length(p, ""), always)
	case r.kinds[element]:
		fmt.Fprintf(b, "        remote_get_handle(&c, &r, %d, %s, a%d, %s);\n", i, kind(element), i, always)
	default:
		fmt.Fprintf(b, "        remote_get(&c, &r, %d, a%d, %s * %s, %s);\n", i, i, c.length(p, "remote_less"), r.size(p), always)
		if r.learns(element) {
			fmt.Fprintf(b, "        if (a%d && (r.head.given >> %d & 1)) {\n            learn_%s(a%d);\n        }\n", i, i, element, i)
		}
	}
}
