package abi

import (
	"fmt"
	"strings"
)

// driver is the C header of the functions that decoders call.
func (r remoteLibrary) decodeHeader() string {
	var b strings.Builder
	guard := "DIVVY_REMOTE_" + r.Prefix + "_DECODE_H"
	fmt.Fprintf(&b, "%s#ifndef %s\n#define %s\n\n#include \"abi/generated/%s_functions.h\"\n#include \"remote/take.h\"\n\n", r.banner(), guard, guard, r.lower())
	fmt.Fprintf(&b, "/* The driver's functions, NULL where it lacks one: what decoders call, and what is called by hand. */\nstruct remote_%s_driver {\n", r.lower())
	for _, f := range r.driver {
		fmt.Fprintf(&b, "    __typeof__(%s) *%s;\n", f.Name, f.Name)
	}
	fmt.Fprintf(&b, "};\n\n/* Fills the table by looking every name up. */\nvoid remote_%s_driver_find(struct remote_%s_driver *driver, void *(*find)(const char *name));\n", r.lower(), r.lower())
	b.WriteString("\n/* What the worker does by itself. Each answers as the driver would, or REMOTE_ANSWERS_LATER. */\n")
	for _, c := range r.calls {
		if c.Remote.Back != "" {
			fmt.Fprintf(&b, "int32_t remote_back_%s(%s);\n", c.Name, c.backPrototype())
		}
	}
	b.WriteString("\n#endif\n")
	return b.String()
}

// backPrototype has what the driver's function reads, after the decoder.
func (c call) backPrototype() string {
	list := []string{"struct remote_decoder *d"}
	for i, p := range c.Parameters {
		if !p.Written() {
			list = append(list, declare(p.Type, fmt.Sprintf("a%d", i)))
		}
	}
	return strings.Join(list, ", ")
}

// decoders is the C file of the worker's decoders.
func (r remoteLibrary) decoders() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s#include \"remote/generated/%s_decode.h\"\n\n#include \"remote/generated/decode.h\"\n\n", r.banner(), r.lower())
	r.assertions(&b)
	for _, s := range r.d.Structures {
		r.translations(&b, s)
	}
	for _, c := range r.calls {
		r.decoder(&b, c)
	}
	fmt.Fprintf(&b, "\nvoid remote_%s_driver_find(struct remote_%s_driver *driver, void *(*find)(const char *name)) {\n", r.lower(), r.lower())
	b.WriteString("    /* dlsym answers with an object's address, which POSIX lets stand for a function. */\n    void *at;\n\n")
	for _, f := range r.driver {
		fmt.Fprintf(&b, "    at = find(\"%s\");\n    __builtin_memcpy(&driver->%s, &at, sizeof at);\n", f.Name, f.Name)
	}
	b.WriteString("}\n\n")
	fmt.Fprintf(&b, "static remote_decode_one *const decoders[] = {\n")
	for _, c := range r.calls {
		fmt.Fprintf(&b, "    [%s - %d] = decode_%s,\n", number(c.Name), r.first(), c.Name)
	}
	fmt.Fprintf(&b, "};\n\nremote_decode_one *remote_%s_decoder(uint16_t call) {\n", r.lower())
	fmt.Fprintf(&b, "    size_t at = (size_t)call - %d;\n\n    return at < sizeof decoders / sizeof *decoders ? decoders[at] : NULL;\n}\n", r.first())
	return b.String()
}

// assertions hold the description's sizes to the declared types.
func (r remoteLibrary) assertions(b *strings.Builder) {
	for _, v := range r.d.Values {
		for _, t := range v.Types {
			fmt.Fprintf(b, "_Static_assert(sizeof(%s) == %d, \"%s\");\n", t, v.Size, t)
		}
	}
	for _, h := range r.d.Handles {
		fmt.Fprintf(b, "_Static_assert(sizeof(%s) == 8, \"%s\");\n", h.Name, h.Name)
	}
	for _, s := range r.d.Structures {
		if s.Unseen {
			continue
		}
		relation := "=="
		if r.versioned(s.Name) {
			relation = "<="
		}
		fmt.Fprintf(b, "_Static_assert(sizeof(%s) %s %d, \"%s\");\n", s.Name, relation, s.Size, s.Name)
		for _, h := range r.types.holds(s.Name) {
			fmt.Fprintf(b, "_Static_assert(offsetof(%s, %s) == %d, \"%s.%s\");\n", s.Name, h.Field, h.At, s.Name, h.Field)
		}
	}
}

// versioned says whether structures of this type say their own size.
func (r remoteLibrary) versioned(name string) bool {
	return r.has(name, func(_ call, p Parameter) bool { return p.Length.Versioned })
}

// translations are the functions that turn numbers in a structure into handles, and back.
func (r remoteLibrary) translations(b *strings.Builder, s Structure) {
	holds := r.types.holds(s.Name)
	if len(holds) == 0 {
		return
	}
	if r.has(s.Name, func(_ call, p Parameter) bool { return p.Role == In || p.Role == InOut }) {
		translation(b, "in", s.Name, holds, func(h Hold) string {
			if h.Kind == Nothing || h.OnlyOut {
				return fmt.Sprintf("remote_in_nothing(s, %d);", h.At)
			}
			return fmt.Sprintf("remote_in_field(d, s, %d, %s);", h.At, kind(h.Kind))
		})
	}
	if r.has(s.Name, func(c call, p Parameter) bool { return p.Written() && c.Remote.Back == "" }) {
		translation(b, "out", s.Name, holds, func(h Hold) string {
			if h.Kind == Nothing {
				return fmt.Sprintf("remote_in_nothing(s, %d);", h.At)
			}
			return fmt.Sprintf("remote_out_field(d, s, %d, %s);", h.At, kind(h.Kind))
		})
	}
}

func translation(b *strings.Builder, way, name string, holds []Hold, what func(Hold) string) {
	fmt.Fprintf(b, "\nstatic void %s_%s(struct remote_decoder *d, void *s) {\n    (void)d;\n", way, name)
	for _, h := range holds {
		held(b, h, what(h))
	}
	b.WriteString("}\n")
}

// has says whether some generated call has a parameter with elements of a type of which something is so.
func (r remoteLibrary) has(element string, is func(call, Parameter) bool) bool {
	for _, c := range r.calls {
		for _, p := range c.Parameters {
			if p.Element() == element && is(c, p) {
				return true
			}
		}
	}
	return false
}

func held(b *strings.Builder, h Hold, what string) {
	if h.When {
		fmt.Fprintf(b, "    if (remote_field_is(s, %d, %d)) {\n        %s\n    }\n", h.WhenAt, h.WhenIs, what)
		return
	}
	fmt.Fprintf(b, "    %s\n", what)
}

func (r remoteLibrary) decoder(b *strings.Builder, c call) {
	if c.Remote.Back != "" {
		r.backless(b, c)
	}
	fmt.Fprintf(b, "\nstatic enum remote_outcome decode_%s(struct remote_decoder *d) {\n", c.Name)
	fmt.Fprintf(b, "    if (!remote_words(d, %d)) {\n        return REMOTE_GARBLED;\n    }\n", c.words)
	for i, p := range c.Parameters {
		if !p.Pointer() {
			fmt.Fprintf(b, "    %s a%d = %s;\n", p.Type, i, r.fromWord(c, i, p))
		}
		if p.Role == Count {
			fmt.Fprintf(b, "    %s a%d = (%s)d->words[%d];\n    const uint64_t room%d = a%d;\n", p.Element(), i, p.Element(), c.word[i], i, i)
		}
	}
	for i, p := range c.Parameters {
		if p.Pointer() && (!p.Written() || p.Role == InOut) {
			r.take(b, c, i, p)
		}
	}
	if c.Remote.Back == "" {
		for i, p := range c.Parameters {
			if p.Written() && p.Role != InOut && p.Role != Count {
				r.makeRoom(b, c, i, p)
			}
		}
	}
	c.judgeNumbers(b)
	fmt.Fprintf(b, "    if (!remote_taken(d, d->%s->%s != NULL)) {\n        return remote_not_called(d);\n    }\n", r.lower(), c.Name)
	r.make(b, c)
	b.WriteString("}\n")
}

// judgeNumbers judges the numbers of what the call makes, before it is made.
func (c call) judgeNumbers(b *strings.Builder) {
	for i, p := range c.Parameters {
		if p.Role == Makes {
			fmt.Fprintf(b, "    remote_make_number(d, %d, %d, %s);\n", i, c.word[i], kind(p.Element()))
		}
	}
}

// backless is what a decoder calls where the worker's own function is not linked.
func (r remoteLibrary) backless(b *strings.Builder, c call) {
	fmt.Fprintf(b, "\n__attribute__((weak)) int32_t remote_back_%s(%s) {\n    (void)d;\n", c.Name, c.backPrototype())
	for i, p := range c.Parameters {
		if !p.Written() {
			fmt.Fprintf(b, "    (void)a%d;\n", i)
		}
	}
	fmt.Fprintf(b, "    return %s_ERROR_NOT_SUPPORTED;\n}\n", r.Prefix)
}

// fromWord is a value as its word has it.
func (r remoteLibrary) fromWord(c call, i int, p Parameter) string {
	w := c.word[i]
	switch {
	case r.kinds[p.Type]:
		return fmt.Sprintf("(%s)remote_handle(d, %d, %s)", p.Type, w, kind(p.Type))
	case p.Type == "float":
		return fmt.Sprintf("remote_float(d->words[%d])", w)
	}
	return fmt.Sprintf("(%s)d->words[%d]", p.Type, w)
}

// take finds a parameter's memory in the record.
func (r remoteLibrary) take(b *strings.Builder, c call, i int, p Parameter) {
	element, w := p.Element(), c.word[i]
	length := c.length(p, "remote_length_less")
	switch {
	case p.Role == Address:
		fmt.Fprintf(b, "    %s = (void *)(uintptr_t)d->words[%d];\n", declare(p.Type, fmt.Sprintf("a%d", i)), w)
		return
	case p.Role == Image:
		fmt.Fprintf(b, "    const void *a%d = remote_in_image(d, %d, %d);\n", i, i, w)
		return
	case p.Role == Text:
		fmt.Fprintf(b, "    const char *a%d = remote_in_text(d, %d, %d);\n", i, i, w)
		return
	case p.Length.Versioned:
		fmt.Fprintf(b, "    %s *a%d = remote_in_versioned(d, %d, %d, %s);\n", element, i, i, w, r.size(p))
	case p.Role == InOut:
		fmt.Fprintf(b, "    %s *a%d = remote_in_out(d, %d, %s, %s);\n", element, i, i, length, r.size(p))
	case r.kinds[element]:
		fmt.Fprintf(b, "    %s *a%d = remote_in_handles(d, %d, %s, %s);\n", element, i, i, kind(element), length)
	default:
		fmt.Fprintf(b, "    %s *a%d = remote_in(d, %d, %s, %s);\n", element, i, i, length, r.size(p))
	}
	if len(r.types.holds(element)) > 0 {
		r.each(b, c, i, p, "in")
	}
}

// each calls a structure's translation for one structure or for an array of them.
func (r remoteLibrary) each(b *strings.Builder, c call, i int, p Parameter, way string) {
	if p.Length.Of == 0 {
		fmt.Fprintf(b, "    if (a%d) {\n        %s_%s(d, a%d);\n    }\n", i, way, p.Element(), i)
		return
	}
	fmt.Fprintf(b, "    for (uint64_t i = 0; a%d && i < %s; i++) {\n        %s_%s(d, (unsigned char *)a%d + i * %s);\n    }\n",
		i, c.length(p, "remote_length_less"), way, p.Element(), i, r.size(p))
}

// makeRoom declares what the driver writes to.
func (r remoteLibrary) makeRoom(b *strings.Builder, c call, i int, p Parameter) {
	element := p.Element()
	length := c.length(p, "remote_length_less")
	if p.Length.UpTo {
		length = fmt.Sprintf("room%d", p.Length.Of-1)
	}
	switch {
	case r.kinds[element] && !p.Length.Many() && p.Always:
		fmt.Fprintf(b, "    %s a%d = (%s)REMOTE_UNTOUCHED;\n", element, i, element)
	case r.kinds[element] && !p.Length.Many():
		fmt.Fprintf(b, "    %s a%d = 0;\n", element, i)
	case r.kinds[element]:
		fmt.Fprintf(b, "    %s *a%d = remote_out_handles(d, %d, %s);\n", element, i, i, length)
	case p.Always || p.Length.UpTo:
		fmt.Fprintf(b, "    %s *a%d = remote_out_maybe(d, %d, %s, %s);\n", element, i, i, length, r.size(p))
	default:
		fmt.Fprintf(b, "    %s *a%d = remote_out(d, %d, %s, %s);\n", element, i, i, length, r.size(p))
	}
}

// make calls the driver and writes the answer.
func (r remoteLibrary) make(b *strings.Builder, c call) {
	if c.Remote.Back != "" {
		list := []string{"d"}
		for i, p := range c.Parameters {
			if !p.Written() {
				list = append(list, fmt.Sprintf("a%d", i))
			}
		}
		fmt.Fprintf(b, "    int32_t result = remote_back_%s(%s);\n", c.Name, strings.Join(list, ", "))
		b.WriteString("    if (result == REMOTE_ANSWERS_LATER) {\n        return REMOTE_LATER;\n    }\n")
		b.WriteString("    d->head.given = 0;\n    remote_answer(d, result);\n    return remote_finish(d);\n")
		return
	}
	list := make([]string, len(c.Parameters))
	for i, p := range c.Parameters {
		list[i] = fmt.Sprintf("a%d", i)
		if p.Role == Count || p.Written() && r.kinds[p.Element()] && !p.Length.Many() {
			list[i] = fmt.Sprintf("remote_is_given(d, %d) ? &a%d : NULL", i, i)
		}
	}
	fmt.Fprintf(b, "    %s result = d->%s->%s(%s);\n", c.Returns, r.lower(), c.Name, strings.Join(list, ", "))
	b.WriteString("    remote_answer(d, (int32_t)result);\n")
	for i, p := range c.Parameters {
		r.give(b, c, i, p)
	}
	b.WriteString("    return remote_finish(d);\n")
}

// give writes to the answer what the driver wrote to a parameter.
func (r remoteLibrary) give(b *strings.Builder, c call, i int, p Parameter) {
	always, element := boolean(p.Always || p.Role == Count), p.Element()
	switch {
	case p.Role == Ends:
		fmt.Fprintf(b, "    remote_give_ended(d, %d, %s);\n", c.word[i], kind(p.Type))
		return
	case !p.Written():
		return
	case p.Role == Makes:
		fmt.Fprintf(b, "    remote_give_made(d, %d, %d, %s, (uint64_t)a%d);\n", i, c.word[i], kind(element), i)
		return
	case p.Role == Count:
		fmt.Fprintf(b, "    remote_give_count(d, %d, a%d, true);\n", i, i)
		return
	case p.Role == Text:
		fmt.Fprintf(b, "    remote_give_text(d, %d, a%d, %s, %s);\n", i, i, c.length(p, ""), always)
		return
	case r.kinds[element] && !p.Length.Many():
		fmt.Fprintf(b, "    remote_give_handle(d, %d, %s, (uint64_t)a%d, %s);\n", i, kind(element), i, always)
		return
	case r.kinds[element]:
		length := c.length(p, "")
		if p.Length.UpTo {
			length = fmt.Sprintf("room%d", p.Length.Of-1)
		}
		fmt.Fprintf(b, "    remote_give_handles(d, %d, %s, a%d, %s, %s);\n", i, kind(element), i, length, always)
		return
	}
	if len(r.types.holds(element)) > 0 {
		r.each(b, c, i, p, "out")
	}
	switch {
	case p.Length.UpTo:
		by := p.Length.Of - 1
		fmt.Fprintf(b, "    remote_give_some(d, %d, a%d, a%d < room%d ? a%d : room%d, %s, %s);\n", i, i, by, by, by, by, r.size(p), always)
	case p.Length.Versioned:
		fmt.Fprintf(b, "    remote_give(d, %d, a%d, d->words[%d], %s);\n", i, i, c.word[i], always)
	default:
		fmt.Fprintf(b, "    remote_give(d, %d, a%d, %s * %s, %s);\n", i, i, c.length(p, "remote_length_less"), r.size(p), always)
	}
}
