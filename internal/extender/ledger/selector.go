package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/selection"
)

const (
	// mostSelectors bounds the expressions whose answers are remembered.
	mostSelectors = 256
	// mostEqual bounds what is remembered of values that an expression reads.
	mostEqual = 4096
	// mostNamed bounds the GPUs that a request can name or leave out one by one.
	mostNamed = 512
	// mostCost bounds what the selectors of one pod cost, in CEL's units: nobody is answered meanwhile. A comparison costs about
	// ten, and one evaluation a million at most.
	mostCost = 1_000_000
)

// errDear says that selectors cost too much.
var errDear = fmt.Errorf("%w: its selectors take too long to evaluate for all GPUs that there are: compare less, or what many GPUs have in common", ErrPod)

// selectors are the expressions that were asked for lately.
type selectors struct {
	ctx   context.Context
	cache *dracel.Cache
	by    map[string]*selector
	// spent is what evaluations have cost for the pod that is asked about.
	spent uint64
}

// selector is an expression with what it says of GPUs.
type selector struct {
	program dracel.CompilationResult
	reading selection.Reading
	// equal is what it says of GPUs of a variety for which it reads the same.
	equal map[values]bool
}

type values struct {
	variety *variety
	read    string
}

func (s *selectors) init(ctx context.Context) {
	s.ctx = ctx
	s.cache = dracel.NewCache(mostSelectors, dracel.Features{EnableConsumableCapacity: true})
	s.by = map[string]*selector{}
}

// of reads an expression. The error says why it cannot be.
func (s *selectors) of(text string) (*selector, error) {
	if one := s.by[text]; one != nil {
		return one, nil
	}
	one := &selector{program: s.cache.GetOrCompile(text), equal: map[values]bool{}}
	if one.program.Error != nil {
		return nil, fmt.Errorf("%w: selector %q: %s", ErrPod, text, oneLine(one.program.Error.Error()))
	}
	one.reading = selection.Read(one.program, text)
	if len(s.by) >= mostSelectors {
		clear(s.by)
	}
	s.by[text] = one
	return one, nil
}

// dear reports whether nothing more is evaluated for a pod.
func (s *selectors) dear() bool { return s.spent > mostCost }

// says evaluates an expression. What cannot be evaluated of a GPU does not select it.
func (s *selectors) says(one *selector, d *resourcev1.Device) bool {
	if s.dear() {
		return false
	}
	found, details, err := one.program.DeviceMatches(s.ctx, dracel.Device{
		Driver: v1alpha1.Driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
	})
	if cost := details.ActualCost(); cost != nil {
		s.spent += *cost
	}
	return err == nil && found
}

// selects reports what an expression says of a variety whose GPUs it cannot tell apart.
func (s *selectors) selects(one *selector, v *variety) bool {
	yes, known := v.answers[one]
	if !known {
		if len(v.answers) >= 2*mostSelectors {
			clear(v.answers)
		}
		if s.dear() {
			return false
		}
		yes = s.says(one, v.sample)
		v.answers[one] = yes
	}
	return yes
}

// selectsGPU reports what an expression says of a GPU.
func (s *selectors) selectsGPU(one *selector, v *variety, g *v1alpha1.NodeGPU) bool {
	switch {
	case !one.reading.Varies():
		return s.selects(one, v)
	case one.reading.Pin.Value != "" && one.reading.Pin.Name == v1alpha1.Driver+"/"+v1alpha1.AttributeUUID && one.reading.Pin.Value != g.UUID:
		return false
	case one.reading.Opaque:
		return s.says(one, device(g))
	}
	id := values{variety: v, read: single(g, one.reading.Single)}
	yes, known := one.equal[id]
	if !known {
		if s.dear() {
			return false
		}
		if len(one.equal) >= mostEqual {
			clear(one.equal)
		}
		yes = s.says(one, device(g))
		one.equal[id] = yes
	}
	return yes
}

// serving is which GPUs satisfy expressions: those of classes, and where an expression tells GPUs of one class apart, those
// that are named, or all but those that are to be avoided.
type serving struct {
	classes      alloc.Classes
	among, avoid alloc.Names
	// varies tells that it depends on each GPU and not on the varieties alone.
	varies bool
}

// serving evaluates expressions. The error is [ErrPod].
func (l *Ledger) serving(expressions []string) (s serving, err error) {
	if len(expressions) == 0 {
		return s, nil
	}
	var all []*selector
	for _, text := range expressions {
		one, err := l.selectors.of(text)
		if err != nil {
			return s, err
		}
		all = append(all, one)
		s.varies = s.varies || one.reading.Varies()
	}
	var numbers []uint16
	for _, v := range l.varieties.byNumber {
		if v != nil && v.number != 0 && !slices.ContainsFunc(all, func(one *selector) bool {
			return !one.reading.Varies() && !l.selectors.selects(one, v)
		}) {
			numbers = append(numbers, v.number)
		}
	}
	s.classes = alloc.ClassesOf(numbers...)
	if s.varies {
		err = l.name(&s, all)
	}
	if l.selectors.dear() {
		err = errDear
	}
	return s, err
}

// name finds the GPUs of the classes that expressions let one by one.
func (l *Ledger) name(s *serving, all []*selector) error {
	var among, avoid []string
	for _, n := range l.nodes {
		for i := range n.gpus {
			g, v := &n.gpus[i], n.varieties[i]
			if !s.classes.Has(v.number) {
				continue
			}
			if slices.ContainsFunc(all, func(one *selector) bool { return !l.selectors.selectsGPU(one, v, g) }) {
				avoid = append(avoid, g.UUID)
			} else {
				among = append(among, g.UUID)
			}
		}
	}
	switch {
	case len(among) == 0:
		s.classes = alloc.ClassesOf()
	case len(avoid) == 0:
	case len(avoid) <= len(among) && len(avoid) <= mostNamed:
		s.avoid = names(avoid)
	case len(among) <= mostNamed:
		s.among = names(among)
	default:
		return fmt.Errorf("%w: its selectors tell single GPUs apart, and let %d of %d: select by what many GPUs have in common, or so that they let or leave out at most %d",
			ErrPod, len(among), len(among)+len(avoid), mostNamed)
	}
	return nil
}

func names(uuids []string) alloc.Names {
	slices.Sort(uuids)
	return alloc.Names(strings.Join(uuids, "|"))
}
