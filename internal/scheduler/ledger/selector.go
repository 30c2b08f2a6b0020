package ledger

import (
	"context"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/selection"
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
	// reading is what it reads that differs among devices of one variety.
	reading selection.Reading
	// answers has what it says then of each device, by number, and equal what it says of devices of a variety for which
	// it reads the same.
	answers []answer
	equal   map[values]bool
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
	one := &selector{text: text, program: s.cache.GetOrCompile(text), equal: map[values]bool{}}
	if one.program.Error == nil {
		one.reading = selection.Read(one.program, one.text)
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
	if !one.reading.Varies() {
		return s.selectsVariety(one, d.variety)
	}
	if d.number >= len(one.answers) {
		one.answers = append(one.answers, make([]answer, d.number+1-len(one.answers))...)
	}
	if one.answers[d.number] == unknown {
		one.answers[d.number] = rejects
		if s.saysAlike(one, d) {
			one.answers[d.number] = selects
		}
	}
	return one.answers[d.number] == selects
}

// mostEqual bounds what is remembered of values that an expression reads.
const mostEqual = 4096

// saysAlike evaluates an expression once for all devices of which it reads the same.
func (s *selectors) saysAlike(one *selector, d *device) bool {
	if one.reading.Opaque {
		return s.says(one, d.spec)
	}
	id := values{variety: d.variety, read: d.values(one.reading.Single)}
	yes, known := one.equal[id]
	if !known {
		if len(one.equal) >= mostEqual {
			clear(one.equal)
		}
		yes = s.says(one, d.spec)
		one.equal[id] = yes
	}
	return yes
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
		answer.single = answer.single || one.reading.Varies()
	}
	if len(l.selectors.served) >= mostSelectors {
		clear(l.selectors.served)
	}
	l.selectors.served[id] = answer
	var numbers []uint16
	for _, c := range l.sorts.byNumber {
		if c != nil && every(c.varieties, profile, func(v *variety) string { return v.profile }, func(v *variety) bool { return !v.remote && l.may(all, v) }) {
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
	return !slices.ContainsFunc(all, func(one *selector) bool { return !one.reading.Varies() && !l.selectors.selectsVariety(one, v) })
}

// single looks at every device of these classes. The names are empty where all GPUs of the classes that are left serve.
func (l *Ledger) single(profile string, all []*selector, among []uint16) (classes []uint16, names alloc.Names) {
	has := map[uint16]bool{}
	for _, number := range among {
		has[number] = true
	}
	found, none := map[uint16]int{}, true
	var uuids []string
	for _, g := range l.candidates(all) {
		if g.class == nil || !has[g.class.number] {
			continue
		}
		if every(g.devices, profile, func(d *device) string { return d.profile }, func(d *device) bool { return l.allSelect(all, d) }) {
			found[g.class.number]++
			uuids = append(uuids, g.uuid)
			none = false
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

// candidates are the GPUs that expressions can select: those of the devices that an expression names, or all.
func (l *Ledger) candidates(all []*selector) (gpus []*gpu) {
	for _, one := range all {
		if one.reading.Pin.Value == "" {
			continue
		}
		for _, number := range l.sorts.pinned[one.reading.Pin] {
			if g := l.sorts.devices[number].gpu; g != nil && !slices.Contains(gpus, g) {
				gpus = append(gpus, g)
			}
		}
		return gpus
	}
	for _, name := range slices.Sorted(maps.Keys(l.pools)) {
		gpus = append(gpus, l.pools[name].gpus...)
	}
	return gpus
}

func (l *Ledger) allSelect(all []*selector, d *device) bool {
	return !slices.ContainsFunc(all, func(one *selector) bool { return !l.selectors.selects(one, d) })
}
