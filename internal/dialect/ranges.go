package dialect

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Range is what an item of a LimitRange says of one resource that an enabled dialect takes away from pods.
type Range struct {
	owner string // the LimitRange's name
	name  corev1.ResourceName
	// ofPods is true of an item that bounds pods; others bound each container.
	ofPods bool
	// text is of the most, as the LimitRange writes it; "" where it names none.
	text    string
	most    uint64
	measure Measure
	// defaults is true of an item that gives the resource to containers which do not name it.
	defaults bool
	// broken names a rule of the item that no translated pod can keep; "" where there is none.
	broken string
}

// Ranges returns what a LimitRange says of resources that enabled dialects take away from pods. Kubernetes looks at
// pods after the translation, where it finds nothing of them.
func (t *Translator) Ranges(limitRange *corev1.LimitRange) []Range {
	var all []Range
	for i := range limitRange.Spec.Limits {
		item := &limitRange.Spec.Limits[i]
		if item.Type != corev1.LimitTypeContainer && item.Type != corev1.LimitTypePod {
			continue
		}
		names := make(map[corev1.ResourceName]bool)
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			for name := range list {
				names[name] = true
			}
		}
		for _, name := range sortedKeys(names) {
			if t.owns(string(name)) {
				all = append(all, t.rangeOf(limitRange.Name, item, name))
			}
		}
	}
	return all
}

func (t *Translator) owns(resource string) bool {
	return slices.ContainsFunc(t.dialects, func(d Dialect) bool { return d.Owns().ownsResource(resource) })
}

func (t *Translator) rangeOf(owner string, item *corev1.LimitRangeItem, name corev1.ResourceName) Range {
	r := Range{owner: owner, name: name, ofPods: item.Type == corev1.LimitTypePod}
	given, asked := item.Default[name], item.DefaultRequest[name]
	r.defaults = !given.IsZero() || !asked.IsZero()
	least := item.Min[name]
	_, ratio := item.MaxLimitRequestRatio[name]
	switch {
	case ratio:
		r.broken = "maxLimitRequestRatio"
	case least.Sign() > 0:
		r.broken = "min"
	}
	if quantity, ok := item.Max[name]; ok {
		measure, counted := t.measureOf(name)
		if most, bounds := atMost(quantity); counted && bounds {
			r.text, r.most, r.measure = quantity.String(), most, measure
		}
	}
	return r
}

// measureOf returns what a LimitRange's resource counts. LimitRanges write names without a prefix.
func (t *Translator) measureOf(name corev1.ResourceName) (Measure, bool) {
	for _, held := range own {
		if held.name == corev1.DefaultResourceRequestsPrefix+name {
			return held.measure, true
		}
	}
	return t.measure(string(name))
}

// atMost returns the largest whole number that a bound allows, 0 for a negative one. It is false of a bound that is
// larger than anything that is counted.
func atMost(bound resource.Quantity) (most uint64, bounds bool) {
	near := bound.AsApproximateFloat64()
	switch {
	case near >= 1<<62:
		return 0, false
	case near <= 0:
		return 0, true
	}
	most = uint64(bound.ScaledValue(0))
	if exact := resource.NewQuantity(int64(most), resource.DecimalSI); exact.Cmp(bound) > 0 {
		most-- // half a GPU is none
	}
	return most, true
}

// CompareRanges orders ranges by the names of their LimitRanges and keeps the order within one.
func CompareRanges(a, b Range) int { return cmp.Compare(a.owner, b.owner) }

// checkRanges refuses a pod whose requests exceed what the LimitRanges of its namespace allow, or that Kubernetes would
// refuse for one of them whatever it asks.
func (i Inventory) checkRanges(pod *corev1.Pod, requests []Request) error {
	bounded := false
	for k := range i.Ranges {
		r := &i.Ranges[k]
		if r.broken != "" {
			return refuse("LimitRange %q has a %s of %s, and Kubernetes looks for it after the translation, which leaves 0: take it out of the LimitRange", r.owner, r.broken, r.name)
		}
		bounded = bounded || r.text != ""
	}
	if !bounded {
		return nil
	}
	uses := make([]Use, len(requests))
	for k := range requests {
		spec, err := claimSpec(requests[k], i, requests[k].Container.of(pod).Name)
		if err != nil {
			return err
		}
		uses[k] = UseOf(&spec, nil, i.Counting)
	}
	whole := useOfPod(pod, requests, uses)
	for k := range i.Ranges {
		r := &i.Ranges[k]
		if r.text == "" {
			continue
		}
		if r.ofPods {
			if err := r.check("the pod", whole); err != nil {
				return err
			}
			continue
		}
		for n := range requests {
			if err := r.check("container "+requests[n].Container.of(pod).Name, uses[n]); err != nil {
				return err
			}
		}
	}
	return nil
}

// useOfPod sums as Kubernetes does for pods: containers and sidecars run beside each other, and other init containers
// one after the other beside the sidecars before them. Requests are in the order of their containers.
func useOfPod(pod *corev1.Pod, requests []Request, uses []Use) Use {
	var beside, sidecars, before Use
	for i := range requests {
		switch ref := requests[i].Container; {
		case ref.sidecar(pod):
			beside, sidecars = beside.Plus(uses[i]), sidecars.Plus(uses[i])
			before = before.Larger(sidecars)
		case ref.Init:
			before = before.Larger(sidecars.Plus(uses[i]))
		default:
			beside = beside.Plus(uses[i])
		}
	}
	return beside.Larger(before)
}

func (r *Range) check(who string, use Use) error {
	asked, unknown := r.measure.amount(use)
	switch {
	case unknown:
		return refuse("LimitRange %q limits %s: give the request of %s an amount of memory or a number of GPUs", r.owner, r.name, who)
	case asked > r.most:
		return refuse("LimitRange %q allows %s of %s, and %s asks for %s", r.owner, r.text, r.name, who, r.measure.write(asked))
	}
	return nil
}

// names reports whether a LimitRange names a resource. What a translation takes away of it stays in the pod as 0:
// LimitRanges with a default would otherwise add it again, and those with a max refuse the pod for want of it.
func (i Inventory) names(resource string) bool {
	return slices.ContainsFunc(i.Ranges, func(r Range) bool { return string(r.name) == resource })
}

// defaulted says what to do about a default of a LimitRange that has a container ask in one of two dialects; "" if no
// default does.
func (i Inventory) defaulted(container *corev1.Container, one, other Names) string {
	for k := range i.Ranges {
		r := &i.Ranges[k]
		_, given := container.Resources.Limits[r.name]
		if name := string(r.name); r.defaults && given && (one.ownsResource(name) || other.ownsResource(name)) {
			return " (LimitRange \"" + r.owner + "\" adds " + name + " where it is left out: write 0 of it)"
		}
	}
	return ""
}
