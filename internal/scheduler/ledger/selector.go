package ledger

import (
	"context"
	"maps"
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	resourcev1 "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// mostSelectors bounds the expressions whose answers are remembered, and the sets of them.
const mostSelectors = 512

// selectors are the expressions that were asked for lately.
type selectors struct {
	ctx       context.Context
	cache     *dracel.Cache
	by        map[string]*selector
	served    map[string]*served
	evaluated int
}

// selector is an expression with what it says of devices.
type selector struct {
	text    string
	program dracel.CompilationResult
	// single tells that the expression reads what differs among devices of one variety.
	single bool
	// answers has what it says then of each device, by number.
	answers []answer
}

type answer uint8

const (
	unknown answer = iota
	selects
	rejects
)

// served is an answer of Serving, and of what it is true.
type served struct {
	classes alloc.Classes
	among   alloc.Names
	// any tells that it is some GPU at all, and single that it depends on each of them.
	any, single bool
	of          [2]int
}

func (s *selectors) init(ctx context.Context) {
	s.ctx = ctx
	s.cache = dracel.NewCache(mostSelectors, dracel.Features{EnableConsumableCapacity: true})
	s.by, s.served = map[string]*selector{}, map[string]*served{}
}

// forget drops what is remembered of a device.
func (s *selectors) forget(number int) {
	for _, one := range s.by {
		if number < len(one.answers) {
			one.answers[number] = unknown
		}
	}
}

func (s *selectors) of(text string) *selector {
	if one := s.by[text]; one != nil {
		return one
	}
	if len(s.by) >= mostSelectors {
		clear(s.by)
		clear(s.served)
	}
	one := &selector{text: text, program: s.cache.GetOrCompile(text)}
	if one.program.Error == nil {
		one.single = one.readsSingle()
	}
	s.by[text] = one
	return one
}

// says evaluates an expression. What cannot be evaluated of a device does not select it.
func (s *selectors) says(one *selector, spec *resourcev1.Device) bool {
	if one.program.Error != nil {
		return false
	}
	s.evaluated++
	found, _, err := one.program.DeviceMatches(s.ctx, dracel.Device{
		Driver: v1alpha1.Driver, AllowMultipleAllocations: spec.AllowMultipleAllocations,
		Attributes: spec.Attributes, Capacity: spec.Capacity,
	})
	return err == nil && found
}

// selects reports what an expression says of a device.
func (s *selectors) selects(one *selector, d *device) bool {
	if !one.single {
		return s.selectsVariety(one, d.variety)
	}
	if d.number >= len(one.answers) {
		one.answers = append(one.answers, make([]answer, d.number+1-len(one.answers))...)
	}
	if one.answers[d.number] == unknown {
		one.answers[d.number] = rejects
		if s.says(one, d.spec) {
			one.answers[d.number] = selects
		}
	}
	return one.answers[d.number] == selects
}

func (s *selectors) selectsVariety(one *selector, v *variety) bool {
	yes, known := v.answers[one]
	if !known {
		if len(v.answers) >= 2*mostSelectors {
			clear(v.answers)
		}
		yes = s.says(one, v.sample)
		v.answers[one] = yes
	}
	return yes
}

// Serving returns which GPUs have devices, other than MIG instances, that satisfy all of these CEL expressions: the classes
// of such GPUs and, where an expression reads what differs from GPU to GPU, their UUIDs. An expression that does not
// compile, or fails for a device, serves none.
func (l *Ledger) Serving(expressions []string) (classes alloc.Classes, among alloc.Names) {
	classes, among, _ = l.serving("", expressions)
	return classes, among
}

// serving is Serving for MIG instances of a profile, and for no instances where there is none.
func (l *Ledger) serving(profile string, expressions []string) (classes alloc.Classes, among alloc.Names, any bool) {
	id := profile + "\x00" + strings.Join(expressions, "\x00")
	now := [2]int{l.sorts.classesChanged, l.sorts.devicesChanged}
	if before := l.selectors.served[id]; before != nil && before.of[0] == now[0] && (!before.single || before.of == now) {
		return before.classes, before.among, before.any
	}
	var all []*selector
	answer := &served{of: now}
	for _, text := range expressions {
		one := l.selectors.of(text)
		all = append(all, one)
		answer.single = answer.single || one.single
	}
	if len(l.selectors.served) >= mostSelectors {
		clear(l.selectors.served)
	}
	l.selectors.served[id] = answer
	var numbers []uint16
	for _, c := range l.sorts.byNumber {
		if c != nil && every(c.varieties, profile, func(v *variety) string { return v.profile }, func(v *variety) bool { return l.may(all, v) }) {
			numbers = append(numbers, c.number)
		}
	}
	if answer.single {
		numbers, answer.among = l.single(profile, all, numbers)
	}
	answer.classes, answer.any = alloc.ClassesOf(numbers...), len(numbers) > 0
	return answer.classes, answer.among, answer.any
}

// every reports whether all of a profile, and at least one, satisfy a condition; without a profile one of those without is
// enough.
func every[T any](all []T, profile string, profileOf func(T) string, satisfies func(T) bool) bool {
	some := false
	for _, one := range all {
		if profileOf(one) != profile {
			continue
		}
		switch yes := satisfies(one); {
		case yes && profile == "":
			return true
		case !yes && profile != "":
			return false
		case yes:
			some = true
		}
	}
	return some
}

// may reports whether devices of a variety can satisfy the expressions, as far as that does not differ among them.
func (l *Ledger) may(all []*selector, v *variety) bool {
	return !slices.ContainsFunc(all, func(one *selector) bool { return !one.single && !l.selectors.selectsVariety(one, v) })
}

// single looks at every device of these classes. The names are empty where all GPUs of the classes that are left serve.
func (l *Ledger) single(profile string, all []*selector, among []uint16) (classes []uint16, names alloc.Names) {
	has := map[uint16]bool{}
	for _, number := range among {
		has[number] = true
	}
	found, none := map[uint16]int{}, true
	var uuids []string
	for _, name := range slices.Sorted(maps.Keys(l.pools)) {
		for _, g := range l.pools[name].gpus {
			if g.class == nil || !has[g.class.number] {
				continue
			}
			if every(g.devices, profile, func(d *device) string { return d.profile }, func(d *device) bool { return l.allSelect(all, d) }) {
				found[g.class.number]++
				uuids = append(uuids, g.uuid)
				none = false
			}
		}
	}
	full := !none
	for _, number := range among {
		if found[number] > 0 {
			classes = append(classes, number)
			full = full && found[number] == l.sorts.byNumber[number].uses
		}
	}
	if full || none {
		return classes, ""
	}
	return classes, alloc.Names(strings.Join(uuids, "|"))
}

func (l *Ledger) allSelect(all []*selector, d *device) bool {
	return !slices.ContainsFunc(all, func(one *selector) bool { return !l.selectors.selects(one, d) })
}

// readsSingle reports whether an expression reads an attribute in single, or something in a way of which that cannot be
// told, such as all attributes of a domain.
func (one *selector) readsSingle() bool {
	parsed, issues := one.program.Environment.Parse(one.text)
	if issues.Err() != nil {
		return true
	}
	return readsSingle(parsed.NativeRep().Expr())
}

func readsSingle(e celast.Expr) bool {
	if path, ok := pathOf(e); ok {
		switch {
		case len(path) == 1 && (path[0] == "driver" || path[0] == "allowMultipleAllocations"):
			return false
		case len(path) == 3 && path[0] == "capacity":
			return false
		case len(path) == 3 && path[0] == "attributes":
			return single[resourcev1.QualifiedName(path[1]+"/"+path[2])]
		}
		return true
	}
	return slices.ContainsFunc(partsOf(e), readsSingle)
}

// pathOf returns the fixed names by which an expression goes from the device on.
func pathOf(e celast.Expr) (path []string, ok bool) {
	switch e.Kind() {
	case celast.IdentKind:
		return nil, e.AsIdent() == "device"
	case celast.SelectKind:
		path, ok = pathOf(e.AsSelect().Operand())
		return append(path, e.AsSelect().FieldName()), ok
	case celast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Index || len(call.Args()) != 2 || call.Args()[1].Kind() != celast.LiteralKind {
			return nil, false
		}
		name, text := call.Args()[1].AsLiteral().(types.String)
		path, ok = pathOf(call.Args()[0])
		return append(path, string(name)), ok && text
	}
	return nil, false
}

// partsOf are the expressions of which one is made.
func partsOf(e celast.Expr) (parts []celast.Expr) {
	switch e.Kind() {
	case celast.SelectKind:
		parts = append(parts, e.AsSelect().Operand())
	case celast.CallKind:
		if e.AsCall().IsMemberFunction() {
			parts = append(parts, e.AsCall().Target())
		}
		parts = append(parts, e.AsCall().Args()...)
	case celast.ListKind:
		parts = append(parts, e.AsList().Elements()...)
	case celast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case celast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			parts = append(parts, field.AsStructField().Value())
		}
	case celast.ComprehensionKind:
		c := e.AsComprehension()
		parts = append(parts, c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result())
	}
	return parts
}
