package dialect

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30
)

// Names are what a dialect reads. Two dialects that read the same name cannot be turned on together.
type Names struct {
	// Resources are names of limits; one that ends in '*' stands for all that begin so. They leave the containers
	// whose request is translated.
	Resources []string
	// Annotations make a request by themselves; they leave the pod when it is translated. One that ends in '*' stands for
	// all that begin so, and is only ever refused.
	Annotations []string
	// Schedulers are those that know the dialect; a translated pod that names one is given to another.
	Schedulers []string
	// QueueLabels and QueueAnnotations name a pod's queue there, the first that names one that is there. They stay in the pod.
	QueueLabels, QueueAnnotations []string
}

// Dialect is one way to write requests for GPUs.
type Dialect interface {
	// Name is the one that enables it.
	Name() string
	// Owns returns the names that the dialect reads.
	Owns() Names
	// Counts says of each of these resources that is an amount what a quota of it counts.
	Counts() map[string]Measure
	// Match reports whether the pod asks in this dialect.
	Match(pod *corev1.Pod) bool
	// Translate returns what the pod's containers ask, in their order, or an error that wraps ErrRefused.
	Translate(pod *corev1.Pod) ([]Request, error)
}

// quoted is a dialect in which pods say how they stand in their queues.
type quoted interface {
	// quota is "" where the pod does not say it, or Divvy has nothing like it.
	quota(pod *corev1.Pod) v1alpha1.Quota
}

func (n Names) ownsResource(name string) bool { return isOne(name, n.Resources) }

// isOne reports whether a name is one of these, of which those that end in '*' stand for all that begin so.
func isOne(name string, owned []string) bool {
	return slices.ContainsFunc(owned, func(owned string) bool {
		prefix, open := strings.CutSuffix(owned, "*")
		return owned == name || open && strings.HasPrefix(name, prefix)
	})
}

// askedBy reports whether a container asks, in limits or requests, for other than zero of an owned resource.
func (n Names) askedBy(container *corev1.Container) bool {
	for _, list := range []corev1.ResourceList{container.Resources.Limits, container.Resources.Requests} {
		for name, quantity := range list {
			if n.ownsResource(string(name)) && !quantity.IsZero() {
				return true
			}
		}
	}
	return false
}

// askedByPod reports whether any container of the pod asks for an owned resource, or the pod has an owned annotation.
func (n Names) askedByPod(pod *corev1.Pod) bool {
	for name := range pod.Annotations {
		if isOne(name, n.Annotations) {
			return true
		}
	}
	return slices.ContainsFunc(containersOf(pod), func(p ContainerRef) bool { return n.askedBy(p.of(pod)) })
}

// inContainers is the part of a dialect whose requests are limits of containers.
type inContainers struct {
	name   string
	names  Names
	counts map[string]Measure
	// request reads one container that names any of the resources with other than zero.
	request func(pod *corev1.Pod, asked *limits) Request
	// stands is quota, nil where no pod says it.
	stands func(pod *corev1.Pod) v1alpha1.Quota
}

func (d inContainers) quota(pod *corev1.Pod) v1alpha1.Quota {
	if d.stands == nil {
		return ""
	}
	return d.stands(pod)
}

func (d inContainers) Name() string               { return d.name }
func (d inContainers) Owns() Names                { return d.names }
func (d inContainers) Counts() map[string]Measure { return d.counts }
func (d inContainers) Match(pod *corev1.Pod) bool { return d.names.askedByPod(pod) }

func (d inContainers) Translate(pod *corev1.Pod) ([]Request, error) {
	var requests []Request
	for _, ref := range containersOf(pod) {
		container := ref.of(pod)
		if !d.names.askedBy(container) {
			continue
		}
		asked := &limits{container: container}
		request := d.request(pod, asked)
		if asked.err != nil {
			return nil, asked.err
		}
		request.Container = ref
		requests = append(requests, request)
	}
	return requests, nil
}

// limits reads the quantities of one container; the first fault stays in err, and what follows reads as zero.
type limits struct {
	container *corev1.Container
	err       error
}

func (l *limits) refuse(format string, args ...any) {
	if l.err == nil {
		l.err = refuse("container %q: "+format, append([]any{l.container.Name}, args...)...)
	}
}

// number returns a whole number from 0 to below 1<<50, so that multiplying it by a unit does not overflow. Given is
// false where the container does not name the resource.
func (l *limits) number(name string) (n uint64, given bool) {
	limit, inLimits := l.container.Resources.Limits[corev1.ResourceName(name)]
	request, inRequests := l.container.Resources.Requests[corev1.ResourceName(name)]
	if !inLimits && !inRequests {
		return 0, false
	}
	if !inLimits {
		limit = request
	}
	value, ok := WholeNumber(limit)
	if !ok || value < 0 || value >= 1<<50 {
		l.refuse("%s: %s is not a whole number from 0 to what a GPU can have", name, limit.String())
		return 0, true
	}
	if other, ok := WholeNumber(request); inRequests && (!ok || other != value) {
		l.refuse("%s is %s in requests and %s in limits: write the same in both, or limits alone", name, request.String(), limit.String())
		return 0, true
	}
	return uint64(value), true
}

// positive is number, and refuses zero: what zero means differs from system to system, and might be everything.
func (l *limits) positive(name string) (n uint64, given bool) {
	n, given = l.number(name)
	if given && n == 0 {
		l.refuse("%s is 0: leave it out, or give a number above 0", name)
	}
	return n, given
}

// percent returns a whole percentage, 1 to 100.
func (l *limits) percent(name string) (n uint64, given bool) {
	n, given = l.positive(name)
	if n > 100 {
		l.refuse("%s: %d percent is more than one GPU: give 1 to 100", name, n)
	}
	return n, given
}

// memory returns what is asked in units of so many bytes or in percent of a GPU, and refuses both at once; given is
// false where neither is.
func (l *limits) memory(inUnits, inPercent string, unit uint64) (amount v1alpha1.Memory, given bool) {
	units, counted := l.positive(inUnits)
	percent, divided := l.percent(inPercent)
	switch {
	case counted && divided:
		l.refuse("%s and %s exclude each other", inUnits, inPercent)
	case counted:
		amount = unitsOf(l, inUnits, units, unit)
	case divided:
		amount = v1alpha1.PartOf(max(percent, 1), 100)
	}
	return amount, counted || divided
}

// count returns a number of GPUs, or 1 where it is left out.
func (l *limits) count(name string) int {
	n, given := l.positive(name)
	switch {
	case !given:
		return 1
	case n > MaxGPUs:
		l.refuse("%s: %d GPUs are more than the %d that one container can have", name, n, MaxGPUs)
	}
	return int(min(n, MaxGPUs))
}

// unitsOf returns n units of size bytes each.
func unitsOf(asked *limits, name string, n, size uint64) v1alpha1.Memory {
	if n > 1<<50/size {
		asked.refuse("%s: %d is more memory than any GPU has", name, n)
		return v1alpha1.Bytes(size)
	}
	return v1alpha1.Bytes(max(n, 1) * size)
}

// WholeNumber returns the value of a quantity that is a whole number below 1<<62, or false. A quantity with a large
// exponent is short to write, but takes seconds to expand or compare, so it is refused first.
func WholeNumber(q resource.Quantity) (int64, bool) {
	if near := q.AsApproximateFloat64(); !(near > -(1<<62) && near < 1<<62) {
		return 0, false
	}
	n := q.Value() // rounds up, so compare
	return n, q.Cmp(*resource.NewQuantity(n, resource.DecimalSI)) == 0
}
