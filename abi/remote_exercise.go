package abi

import (
	"fmt"
	"slices"
	"strings"
)

// exercises is a C file for tests: a driver that answers by what it was asked, and calls of each function with drawn
// parameters, so that a call through client and worker can be held against the same call made directly.
func (r remoteLibrary) exercises() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s#include \"remote/generated/%s_decode.h\"\n#include \"remote/generated/%s_stubs.h\"\n#include \"remote/test/exercise.h\"\n", r.banner(), r.lower(), r.lower())
	for _, c := range r.calls {
		r.mock(&b, c)
		if c.Remote.Back != "" {
			r.back(&b, c)
		}
		if c.exercised() {
			r.exercise(&b, c)
		}
	}
	fmt.Fprintf(&b, "\nconst struct remote_%s_driver %s_mock = {\n", r.lower(), r.lower())
	for _, c := range r.calls {
		fmt.Fprintf(&b, "    .%s = mock_%s,\n", c.Name, c.Name)
	}
	fmt.Fprintf(&b, "};\n\nconst struct exercise_entry %s_exercises[] = {\n", r.lower())
	for _, c := range r.calls {
		if c.exercised() {
			fmt.Fprintf(&b, "    {\"%s\", exercise_%s},\n", c.Name, c.Name)
		}
	}
	fmt.Fprintf(&b, "    {NULL, NULL},\n};\n")
	return b.String()
}

// exercised says whether a test can call a function: not where the worker's own function would have to write.
func (c call) exercised() bool {
	return c.Remote.Back == "" || !slices.ContainsFunc(c.Parameters, Parameter.Written)
}

// back is the worker's own function, which asks the driver of the test or, where something is written, does nothing.
func (r remoteLibrary) back(b *strings.Builder, c call) {
	fmt.Fprintf(b, "\nint32_t remote_back_%s(%s) {\n    (void)d;\n", c.Name, c.backPrototype())
	if !c.exercised() {
		for i, p := range c.Parameters {
			if !p.Written() {
				fmt.Fprintf(b, "    (void)a%d;\n", i)
			}
		}
		b.WriteString("    return REMOTE_ANSWERS_LATER;\n}\n")
		return
	}
	fmt.Fprintf(b, "    return (int32_t)d->%s->%s(%s);\n}\n", r.lower(), c.Name, c.passed())
}

// passed is the list of arguments a0, a1, ...
func (c call) passed() string {
	list := make([]string, len(c.Parameters))
	for i := range c.Parameters {
		list[i] = fmt.Sprintf("a%d", i)
	}
	return strings.Join(list, ", ")
}

// mock is a function of the test's driver.
func (r remoteLibrary) mock(b *strings.Builder, c call) {
	fmt.Fprintf(b, "\nstatic %s mock_%s(%s) {\n    struct mock m = mock_begin(%s);\n", c.Returns, c.Name, c.prototype(), number(c.Name))
	for i, p := range c.Parameters {
		r.mockReads(b, c, i, p)
	}
	fmt.Fprintf(b, "    const int32_t result = mock_result(&m);\n")
	for i, p := range c.Parameters {
		if p.Role == Count {
			fmt.Fprintf(b, "    const uint64_t n%d = mock_next(&m) %% ((room%d & 0xffffff) + 3);\n    if (a%d) {\n        *a%d = (%s)n%d;\n    }\n", i, i, i, i, p.Element(), i)
		}
	}
	for i, p := range c.Parameters {
		if p.Written() && p.Role != Count {
			r.mockWrites(b, c, i, p)
		}
	}
	fmt.Fprintf(b, "    return (%s)result;\n}\n", c.Returns)
}

// mockReads notes what the driver was given.
func (r remoteLibrary) mockReads(b *strings.Builder, c call, i int, p Parameter) {
	switch {
	case p.Type == "float":
		fmt.Fprintf(b, "    mock_float(&m, a%d);\n", i)
	case !p.Pointer() || p.Role == Address:
		fmt.Fprintf(b, "    mock_value(&m, (uint64_t)a%d);\n", i)
	case p.Role == Text && p.Const():
		fmt.Fprintf(b, "    mock_text(&m, a%d);\n", i)
	case p.Role == Image:
		fmt.Fprintf(b, "    mock_bytes(&m, a%d, a%d ? remote_image_size(a%d) : 0);\n", i, i, i)
	case p.Length.Versioned:
		fmt.Fprintf(b, "    mock_bytes(&m, a%d, a%d ? mock_version(a%d) : 0);\n", i, i, i)
	case p.Role == Count:
		fmt.Fprintf(b, "    const uint64_t room%d = a%d ? (uint64_t)*a%d : 0;\n    mock_value(&m, room%d);\n", i, i, i, i)
	case p.Written() && p.Role != InOut:
		fmt.Fprintf(b, "    mock_value(&m, a%d != NULL);\n", i)
	default:
		fmt.Fprintf(b, "    mock_bytes(&m, a%d, %s * %s);\n", i, c.length(p, "remote_length_less"), r.size(p))
	}
}

// mockWrites fills what the driver writes.
func (r remoteLibrary) mockWrites(b *strings.Builder, c call, i int, p Parameter) {
	length := c.length(p, "remote_length_less")
	if p.Length.UpTo {
		by := p.Length.Of - 1
		length = fmt.Sprintf("(n%d < room%d ? n%d : room%d)", by, by, by, by)
	}
	condition := fmt.Sprintf("a%d && result == 0", i)
	if p.Always {
		condition = fmt.Sprintf("a%d", i)
	}
	fmt.Fprintf(b, "    if (%s) {\n", condition)
	switch {
	case p.Role == Text:
		fmt.Fprintf(b, "        mock_write_text(&m, a%d, %s);\n", i, length)
	case r.kinds[p.Element()]:
		fmt.Fprintf(b, "        mock_write_handles(&m, %s, a%d, %s);\n", kind(p.Element()), i, length)
	case p.Length.Versioned:
		fmt.Fprintf(b, "        mock_write(&m, (unsigned char *)(void *)a%d + 4, mock_version(a%d) - 4);\n", i, i)
	default:
		fmt.Fprintf(b, "        mock_write(&m, a%d, %s * %s);\n", i, length, r.size(p))
		r.fields(b, c, i, p, func(h Hold, at string) string {
			if h.Kind == Nothing {
				return fmt.Sprintf("mock_write_nothing(%s, %d);", at, h.At)
			}
			return fmt.Sprintf("mock_write_handles(&m, %s, %s + %d, 1);", kind(h.Kind), at, h.At)
		}, func(h Hold, at string) string { return fmt.Sprintf("mock_write_tag(&m, %s, %d);", at, h.WhenAt) })
	}
	b.WriteString("    }\n")
}

// fields writes what is to be done for each field that a structure holds, after what is to be done for each tag.
func (r remoteLibrary) fields(b *strings.Builder, c call, i int, p Parameter, field, tag func(h Hold, at string) string) {
	holds := r.types.holds(p.Element())
	if len(holds) == 0 {
		return
	}
	at := fmt.Sprintf("((unsigned char *)(uintptr_t)a%d + i * %s)", i, r.size(p))
	fmt.Fprintf(b, "        for (uint64_t i = 0; i < %s; i++) {\n", c.length(p, "remote_length_less"))
	tags := map[int]bool{}
	for _, h := range holds {
		if h.When && !tags[h.WhenAt] && tag != nil {
			fmt.Fprintf(b, "            %s\n", tag(h, at))
			tags[h.WhenAt] = true
		}
	}
	for _, h := range holds {
		what := field(h, at)
		if h.When {
			what = fmt.Sprintf("if (remote_field_is(%s, %d, %d)) {\n                %s\n            }", at, h.WhenAt, h.WhenIs, what)
		}
		fmt.Fprintf(b, "            %s\n", what)
	}
	b.WriteString("        }\n")
}

// exercise calls a function with drawn parameters.
func (r remoteLibrary) exercise(b *strings.Builder, c call) {
	fmt.Fprintf(b, "\nstatic void exercise_%s(struct exercise *e) {\n    (void)e;\n", c.Name)
	for i, p := range c.Parameters {
		if !p.Pointer() {
			r.drawValue(b, c, i, p)
		}
	}
	for i, p := range c.Parameters {
		if p.Role == Count {
			fmt.Fprintf(b, "    const uint64_t room%d = exercise_length(e);\n    %s count%d = (%s)room%d;\n    %s *a%d = exercise_chance(e) ? NULL : &count%d;\n",
				i, p.Element(), i, p.Element(), i, p.Element(), i, i)
		}
	}
	for i, p := range c.Parameters {
		if p.Pointer() && p.Role != Count {
			r.drawPointer(b, c, i, p)
		}
	}
	fmt.Fprintf(b, "    exercise_result(e, (int32_t)(e->remote ? %s(%s) : loopback.%s->%s(%s)));\n", c.stubName(), c.passed(), r.lower(), c.Name, c.passed())
	for i, p := range c.Parameters {
		r.see(b, c, i, p)
	}
	b.WriteString("    exercise_end(e);\n}\n")
}

func (r remoteLibrary) drawValue(b *strings.Builder, c call, i int, p Parameter) {
	counts := slices.ContainsFunc(c.Parameters, func(a Parameter) bool { return a.Length.Of == i+1 })
	what := "exercise_value(e)"
	switch {
	case r.kinds[p.Type]:
		what = fmt.Sprintf("exercise_handle(e, %s)", kind(p.Type))
	case p.Type == "CUdeviceptr":
		what = "exercise_address(e)"
	case p.Type == "float":
		fmt.Fprintf(b, "    float a%d = (float)(exercise_next(e) %% 1000);\n", i)
		return
	case counts && signed(p.Type):
		fmt.Fprintf(b, "    int a%d = exercise_chance(e) ? -1 : (int)exercise_length(e);\n", i)
		return
	case counts:
		what = "exercise_length(e)"
	}
	fmt.Fprintf(b, "    %s a%d = (%s)%s;\n", p.Type, i, p.Type, what)
}

func (r remoteLibrary) drawPointer(b *strings.Builder, c call, i int, p Parameter) {
	element, length := p.Element(), r.drawnLength(c, p)
	switch {
	case p.Role == Address:
		fmt.Fprintf(b, "    void *a%d = (void *)(uintptr_t)exercise_address(e);\n", i)
	case p.Role == Image:
		fmt.Fprintf(b, "    void *a%d = exercise_image(e);\n", i)
	case p.Role == Text && p.Const():
		fmt.Fprintf(b, "    char *a%d = exercise_text(e);\n", i)
	case p.Length.Versioned:
		fmt.Fprintf(b, "    %s *a%d = exercise_versioned(e, %s);\n", element, i, r.size(p))
	case p.Role == In && r.kinds[element]:
		fmt.Fprintf(b, "    %s *a%d = exercise_handles(e, %s, %s);\n", element, i, kind(element), length)
	case p.Role == In || p.Role == InOut:
		r.drawArray(b, c, i, p)
	default:
		fmt.Fprintf(b, "    %s *a%d = exercise_room(e, %s, %s);\n", element, i, length, r.size(p))
	}
}

// drawnLength is how many elements a drawn parameter points to.
func (r remoteLibrary) drawnLength(c call, p Parameter) string {
	if p.Length.UpTo {
		return fmt.Sprintf("(a%d ? room%d : 0)", p.Length.Of-1, p.Length.Of-1)
	}
	return c.length(p, "remote_length_less")
}

// drawArray draws memory that is read.
func (r remoteLibrary) drawArray(b *strings.Builder, c call, i int, p Parameter) {
	element, length := p.Element(), r.drawnLength(c, p)
	fmt.Fprintf(b, "    %s *a%d = exercise_array(e, %s, %s);\n", element, i, length, r.size(p))
	if _, ok := r.types.structures[element]; ok {
		fmt.Fprintf(b, "    exercise_form(e, \"%s\", a%d, %s, %s);\n", element, i, length, r.size(p))
	}
	if len(r.types.holds(element)) > 0 {
		fmt.Fprintf(b, "    if (a%d) {\n", i)
		r.fields(b, c, i, p, func(h Hold, at string) string {
			if h.Kind == Nothing || h.OnlyOut {
				return fmt.Sprintf("exercise_put_nothing(e, %s, %d);", at, h.At)
			}
			return fmt.Sprintf("exercise_put_handle(e, %s, %d, %s);", at, h.At, kind(h.Kind))
		}, func(h Hold, at string) string { return fmt.Sprintf("exercise_put_tag(e, %s, %d);", at, h.WhenAt) })
		b.WriteString("    }\n")
	}
	if p.Role == In {
		fmt.Fprintf(b, "    exercise_keep(e, a%d, %s * %s);\n", i, length, r.size(p))
	}
}

// see adds what was written to what is compared.
func (r remoteLibrary) see(b *strings.Builder, c call, i int, p Parameter) {
	length := r.drawnLength(c, p)
	switch {
	case !p.Written():
		return
	case p.Role == Count:
		fmt.Fprintf(b, "    exercise_see(e, &count%d, sizeof count%d);\n", i, i)
		return
	case r.kinds[p.Element()]:
		fmt.Fprintf(b, "    exercise_see_handles(e, %s, a%d, %s);\n", kind(p.Element()), i, length)
		return
	}
	if len(r.types.holds(p.Element())) > 0 {
		fmt.Fprintf(b, "    if (a%d) {\n", i)
		r.fields(b, c, i, p, func(h Hold, at string) string {
			if h.Kind == Nothing {
				return fmt.Sprintf("exercise_forget_field(%s, %d);", at, h.At)
			}
			return fmt.Sprintf("exercise_see_field(e, %s, %s, %d);", kind(h.Kind), at, h.At)
		}, nil)
		b.WriteString("    }\n")
	}
	if p.Length.Versioned {
		// An answer that lies may have changed the size.
		fmt.Fprintf(b, "    exercise_see(e, a%d, a%d && mock_version(a%d) <= %s ? mock_version(a%d) : 0);\n", i, i, i, r.size(p), i)
		return
	}
	see := "exercise_see"
	if p.Element() == "CUdeviceptr" {
		see = "exercise_see_addresses"
	}
	fmt.Fprintf(b, "    %s(e, a%d, %s * %s);\n", see, i, length, r.size(p))
}
