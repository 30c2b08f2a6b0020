package ledger

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/selection"
)

// sorts numbers what there is of devices and GPUs.
type sorts struct {
	varieties map[string]*variety
	classes   map[string]*gpuClass
	// byNumber has nil where a number is free. The first stands for GPUs beyond the last number, which are not served.
	byNumber []*gpuClass
	// devices has the devices by their numbers.
	devices []*device
	vacant  []int
	// pinned has the numbers of the devices with a value.
	pinned map[selection.Pin][]int
	// models has what is wrong with sets of MIG profiles, see model.
	models map[string]error
	// classesChanged and devicesChanged count what Serving's answers depend on.
	classesChanged, devicesChanged int
}

// variety is all devices that are alike but for the attributes in single.
type variety struct {
	text string
	// profile is that of MIG instances.
	profile string
	// remote tells that nodes reach the devices through the network. The allocator gives none of them: it puts a pod where its
	// GPUs are.
	remote bool
	uses   int
	sample *resourcev1.Device
	// answers are what expressions say of it that read nothing else.
	answers map[*selector]bool
}

// gpuClass is all GPUs whose devices are of the same varieties.
type gpuClass struct {
	number    uint16
	id        string
	varieties []*variety
	uses      int
}

func (s *sorts) init() {
	s.varieties, s.classes, s.byNumber = map[string]*variety{}, map[string]*gpuClass{}, []*gpuClass{{}}
	s.models, s.pinned = map[string]error{}, map[selection.Pin][]int{}
}

// number gives numbers to the devices and classes to the GPUs of a pool that replaces another. Either may be nil.
func (l *Ledger) number(before, after *published) {
	s := &l.sorts
	kept := map[*device]bool{}
	if after != nil {
		for _, d := range after.devices {
			if before != nil {
				if old := before.byName[d.spec.Name]; old != nil && old.same(d) {
					d.number, d.variety = old.number, old.variety
					s.devices[d.number], kept[old] = d, true
					continue
				}
			}
			d.variety = s.varietyOf(d)
			d.variety.uses++
			s.add(d)
		}
		for _, g := range after.gpus {
			s.classify(g)
		}
	}
	if before == nil {
		return
	}
	for _, g := range before.gpus {
		s.leave(g)
	}
	for _, d := range before.devices {
		if kept[d] {
			continue
		}
		if d.variety.uses--; d.variety.uses == 0 {
			delete(s.varieties, d.variety.text)
		}
		l.selectors.forget(d.number)
		s.remove(d)
	}
}

// add numbers a device.
func (s *sorts) add(d *device) {
	s.devicesChanged++
	if n := len(s.vacant); n > 0 {
		d.number, s.vacant = s.vacant[n-1], s.vacant[:n-1]
		s.devices[d.number] = d
	} else {
		d.number = len(s.devices)
		s.devices = append(s.devices, d)
	}
	for _, p := range d.pins() {
		s.pinned[p] = append(s.pinned[p], d.number)
	}
}

// remove takes a device's number from it.
func (s *sorts) remove(d *device) {
	s.devicesChanged++
	s.devices[d.number] = nil
	s.vacant = append(s.vacant, d.number)
	for _, p := range d.pins() {
		left := slices.DeleteFunc(s.pinned[p], func(number int) bool { return number == d.number })
		if s.pinned[p] = left; len(left) == 0 {
			delete(s.pinned, p)
		}
	}
}

func (s *sorts) varietyOf(d *device) *variety {
	text := d.profile + " " + describe(d.spec)
	if d.pool.remote {
		text = v1alpha1.FormRemote + text
	}
	v := s.varieties[text]
	if v == nil {
		v = &variety{text: text, profile: d.profile, remote: d.pool.remote, sample: d.spec, answers: map[*selector]bool{}}
		s.varieties[text] = v
	}
	return v
}

// describe is equal for devices of one variety.
func describe(spec *resourcev1.Device) string {
	var text strings.Builder
	fmt.Fprint(&text, spec.AllowMultipleAllocations != nil && *spec.AllowMultipleAllocations)
	for _, name := range slices.Sorted(maps.Keys(spec.Attributes)) {
		if a := spec.Attributes[name]; !selection.IsSingle(name) {
			fmt.Fprintf(&text, "\n%q", name)
			switch {
			case a.StringValue != nil:
				fmt.Fprintf(&text, " %q", *a.StringValue)
			case a.VersionValue != nil:
				fmt.Fprintf(&text, " v%q", *a.VersionValue)
			case a.BoolValue != nil:
				fmt.Fprintf(&text, " %t", *a.BoolValue)
			case a.IntValue != nil:
				fmt.Fprintf(&text, " %d", *a.IntValue)
			default:
				fmt.Fprintf(&text, " %v %v %q %q", a.IntValues, a.BoolValues, a.StringValues, a.VersionValues)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Capacity)) {
		c := spec.Capacity[name]
		fmt.Fprintf(&text, "\n%q=%s", name, c.Value.String())
		if p := c.RequestPolicy; p != nil {
			fmt.Fprintf(&text, " %v %v", p.Default, p.ValidValues)
			if p.ValidRange != nil {
				fmt.Fprintf(&text, " %v %v %v", p.ValidRange.Min, p.ValidRange.Max, p.ValidRange.Step)
			}
		}
	}
	return text.String()
}

// classify finds the class of a GPU, or makes it.
func (s *sorts) classify(g *gpu) {
	var texts []string
	by := map[string]*variety{}
	for _, d := range g.devices {
		if by[d.variety.text] == nil {
			by[d.variety.text] = d.variety
			texts = append(texts, d.variety.text)
		}
	}
	slices.Sort(texts)
	id := strings.Join(texts, "\n\n")
	c := s.classes[id]
	if c == nil {
		at := slices.Index(s.byNumber, nil)
		switch {
		case at >= 0:
		case len(s.byNumber) <= math.MaxUint16:
			at = len(s.byNumber)
			s.byNumber = append(s.byNumber, nil)
		default:
			g.idle.Fault = "the cluster has more kinds of GPUs than Divvy can tell apart"
			return
		}
		c = &gpuClass{number: uint16(at), id: id}
		for _, text := range texts {
			c.varieties = append(c.varieties, by[text])
		}
		s.byNumber[at], s.classes[id] = c, c
		s.classesChanged++
	}
	c.uses++
	g.class, g.idle.Class = c, c.number
}

// leave takes a GPU from its class.
func (s *sorts) leave(g *gpu) {
	if g.class == nil {
		return
	}
	if g.class.uses--; g.class.uses == 0 {
		delete(s.classes, g.class.id)
		s.byNumber[g.class.number] = nil
		s.classesChanged++
	}
}
