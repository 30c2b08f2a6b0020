package controller

import (
	"slices"

	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// mostSelectors bounds the expressions whose answers are remembered.
const mostSelectors = 256

// selector is an expression with what it says of devices, by their numbers: it is evaluated once for each device, and
// anew only when the device is published otherwise.
type selector struct {
	expression string
	answers    []answer
}

type answer uint8

const (
	unasked answer = iota
	selects
	rejects
)

// celCache is shared by all clusters, because compiled expressions do not change.
func celCache() *dracel.Cache {
	return dracel.NewCache(mostSelectors, dracel.Features{EnableConsumableCapacity: true})
}

func (c *cluster) selector(expression string) *selector {
	if s := c.selectors[expression]; s != nil {
		return s
	}
	if len(c.selectors) >= mostSelectors {
		clear(c.selectors)
	}
	s := &selector{expression: expression}
	c.selectors[expression] = s
	return s
}

// selected reports whether the device satisfies an expression; one that does not compile selects nothing.
func (c *cluster) selected(d *device, s *selector) bool {
	if d.number < len(s.answers) && s.answers[d.number] != unasked {
		return s.answers[d.number] == selects
	}
	c.evaluated++
	ok := false
	if program := c.cel.GetOrCompile(s.expression); program.Error == nil {
		found, _, err := program.DeviceMatches(c.ctx, dracel.Device{
			Driver: v1alpha1.Driver, AllowMultipleAllocations: d.spec.AllowMultipleAllocations,
			Attributes: d.spec.Attributes, Capacity: d.spec.Capacity,
		})
		ok = err == nil && found
	}
	if c.ctx.Err() != nil {
		return ok // of a look that ends, which nobody tells
	}
	if missing := c.numbers - len(s.answers); missing > 0 {
		s.answers = append(s.answers, make([]answer, missing)...)
	}
	s.answers[d.number] = rejects
	if ok {
		s.answers[d.number] = selects
	}
	return ok
}

func (c *cluster) selectedBy(d *device, all []*selector) bool {
	return !slices.ContainsFunc(all, func(s *selector) bool { return !c.selected(d, s) })
}

// takeNumber numbers a device.
func (c *cluster) takeNumber() int {
	if n := len(c.vacant); n > 0 {
		number := c.vacant[n-1]
		c.vacant = c.vacant[:n-1]
		return number
	}
	c.numbers++
	return c.numbers - 1
}

// giveNumber forgets what is remembered of a device.
func (c *cluster) giveNumber(number int) {
	for _, s := range c.selectors {
		if number < len(s.answers) {
			s.answers[number] = unasked
		}
	}
	c.vacant = append(c.vacant, number)
}
