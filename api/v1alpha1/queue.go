package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	kjson "sigs.k8s.io/json"
)

// KindQueue is the kind of a [Queue], and QueueResources the name under which the API server has queues.
const (
	KindQueue      = "Queue"
	QueueResources = "queues"
)

// Quota says on what a pod stands in its queue.
type Quota string

// The quotas.
const (
	// QuotaGuaranteed starts only within what is guaranteed, and is never ended for others.
	QuotaGuaranteed Quota = "guaranteed"
	// QuotaBorrowing may use more than is guaranteed, and gives way while its queue is above its entitlement.
	QuotaBorrowing Quota = "borrowing"
	// QuotaOpportunistic counts in no queue and gives way first.
	QuotaOpportunistic Quota = "opportunistic"
)

// ParseQuota reads a value of [QuotaLabel]; empty is [QuotaBorrowing]. Its errors wrap [ErrRequest].
func ParseQuota(s string) (Quota, error) {
	switch q := Quota(s); q {
	case "":
		return QuotaBorrowing, nil
	case QuotaGuaranteed, QuotaBorrowing, QuotaOpportunistic:
		return q, nil
	}
	return "", fmt.Errorf("%w: quota %q: choose guaranteed, borrowing or opportunistic", ErrRequest, s)
}

// QueueUnit is what an amount of a queue counts. Amounts are written as [Amount] says, and computed in whole numbers of the
// unit's smallest step.
type QueueUnit string

// The units.
const (
	// UnitGPUs counts thousandths of a GPU. A share takes the greater of its parts of the GPU's memory and time.
	UnitGPUs QueueUnit = "gpus"
	// UnitCores counts percent of a GPU's time.
	UnitCores QueueUnit = "cores"
	// UnitMemory counts MiB of GPU memory.
	UnitMemory QueueUnit = "memory"
)

// OtherNamespaces stands in [QueueSpec] for all namespaces that no queue lists.
const OtherNamespaces = "*"

// Bounds of a queue.
const (
	// MaxAmount bounds amounts, in what their unit counts, so that sums over all queues of a cluster are exact.
	MaxAmount = 1 << 40
	// MaxQueueWeight bounds weights.
	MaxQueueWeight = 1 << 30
	// MaxQueueResources and MaxQueueNamespaces bound the lists of a queue.
	MaxQueueResources  = 64
	MaxQueueNamespaces = 1024
	// MaxQueueTime bounds grace and minimum run time.
	MaxQueueTime = 7 * 24 * time.Hour
	// DefaultGrace is how long a victim has to end where its queue says nothing.
	DefaultGrace = 30 * time.Second
)

// QueueShare is what a queue has of one model of GPU in one unit.
type QueueShare struct {
	// Model is a name as in [GPUModels]; empty means GPUs of all models.
	Model string `json:"model,omitempty"`
	// Unit left out is gpus.
	Unit QueueUnit `json:"unit,omitempty"`
	// Guaranteed is what the queue gets whenever it asks; left out, nothing.
	Guaranteed Amount `json:"guaranteed,omitzero"`
	// Limit is the most that it uses; left out there is none.
	Limit Amount `json:"limit,omitzero"`
	// LendingLimit is how much of its idle guarantee others may use; left out, all of it.
	LendingLimit Amount `json:"lendingLimit,omitzero"`
	// Weight divides what is idle among queues that want more, 0 to [MaxQueueWeight]; left out it is what is guaranteed, in GPUs,
	// percent or GiB. Queues with weight 0 get what the others leave.
	Weight *int64 `json:"weight,omitempty"`
}

// QueueSpec is what an administrator says of a queue.
type QueueSpec struct {
	// Parent is a queue of which this one is a part; empty for a root.
	Parent string `json:"parent,omitempty"`
	// Resources has at most one entry for a model and unit. What it does not name is not limited by this queue.
	Resources []QueueShare `json:"resources,omitempty"`
	// Grace is how long victims of this queue have to end; left out it is the parent's, and at a root [DefaultGrace].
	Grace *Duration `json:"grace,omitempty"`
	// MinimumRunTime is how long a pod of this queue runs before it can be a victim; left out it is the parent's, at a
	// root 0.
	MinimumRunTime *Duration `json:"minimumRunTime,omitempty"`
	// Namespaces are those whose pods may use the queue, and use it where they name none. [OtherNamespaces] stands for all
	// that no queue lists.
	Namespaces []string `json:"namespaces,omitempty"`
}

// Queue is a holder of quota, as the API server has it. Of its metadata it has what Divvy reads.
type Queue struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Metadata   QueueMetadata `json:"metadata"`
	Spec       QueueSpec     `json:"spec"`
	Status     QueueStatus   `json:"status,omitzero"`
}

// QueueMetadata is a part of an object's metadata.
type QueueMetadata struct {
	Name            string `json:"name"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Generation      int64  `json:"generation,omitempty"`
}

// QueueStatus is what the scheduler tells of a queue.
type QueueStatus struct {
	ObservedGeneration int64            `json:"observedGeneration,omitempty"`
	Resources          []QueueUse       `json:"resources,omitempty"`
	Running            int              `json:"running,omitempty"`
	Waiting            int              `json:"waiting,omitempty"`
	Conditions         []QueueCondition `json:"conditions,omitempty"`
}

// QueueUse is where a queue stands in one model and unit, in what the unit counts. In JSON amounts are text, as
// [QueueUnit.Format] writes them.
type QueueUse struct {
	Model string
	Unit  QueueUnit
	// Guaranteed is what is guaranteed in effect: less than was written where there is less.
	Guaranteed, Entitled, Used, Lent, Borrowed, Demand int64
}

// QueueCondition has the fields of a condition of Kubernetes.
type QueueCondition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	LastTransitionTime string `json:"lastTransitionTime"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
}

// Duration is written as 30s or 1h30m.
type Duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("read a duration such as 30s: %w", err)
	}
	var err error
	*d, err = ParseDuration(s)
	return err
}

// ParseDuration reads a duration such as 30s or 10m.
func ParseDuration(s string) (Duration, error) {
	parsed, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("read a duration such as 30s: %w", err)
	}
	return Duration(parsed), nil
}

var validQueue = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

var validNamespace = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// ValidQueueName reports whether a queue can have a name: at most 63 lower-case letters, digits, '-' and '.', because pods
// name it in a label.
func ValidQueueName(name string) bool { return validQueue.MatchString(name) }

// Validate returns every fault of a queue that shows without the others, joined into one error that wraps [ErrRequest].
func (s *QueueSpec) Validate(name string) error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: queue %s: %s", ErrRequest, name, fmt.Sprintf(format, args...)))
	}
	if !ValidQueueName(name) {
		fault("a name has at most 63 lower-case letters, digits, '-' and '.'")
	}
	if s.Parent != "" && !ValidQueueName(s.Parent) {
		fault("parent %q is no name of a queue", s.Parent)
	}
	if len(s.Resources) > MaxQueueResources || len(s.Namespaces) > MaxQueueNamespaces {
		fault("%d resources and %d namespaces: give at most %d and %d", len(s.Resources), len(s.Namespaces), MaxQueueResources, MaxQueueNamespaces)
		return errors.Join(faults...)
	}
	type dimension struct {
		model string
		unit  QueueUnit
	}
	seen := map[dimension]bool{}
	for i := range s.Resources {
		r := &s.Resources[i]
		r.validate(func(format string, args ...any) {
			fault("resource %d: %s", i, fmt.Sprintf(format, args...))
		})
		d := dimension{r.Model, r.UnitOrDefault()}
		if seen[d] {
			fault("resource %d: %s of model %q is named twice", i, d.unit, d.model)
		}
		seen[d] = true
	}
	s.validateTimes(fault)
	for i, n := range s.Namespaces {
		if n != OtherNamespaces && !validNamespace.MatchString(n) {
			fault("namespace %q is no name of one: give a name, or %s for all that no queue lists", n, OtherNamespaces)
		} else if slices.Contains(s.Namespaces[:i], n) {
			fault("namespace %s is named twice", n)
		}
	}
	return errors.Join(faults...)
}

func (s *QueueSpec) validateTimes(fault func(format string, args ...any)) {
	for _, t := range []struct {
		what  string
		value *Duration
	}{{"grace", s.Grace}, {"minimumRunTime", s.MinimumRunTime}} {
		if d := t.value; d != nil && (*d < 0 || time.Duration(*d) > MaxQueueTime) {
			fault("%s %s: give 0s to %s", t.what, time.Duration(*d), MaxQueueTime)
		}
	}
}

// UnitOrDefault is the unit, gpus where it is left out.
func (r *QueueShare) UnitOrDefault() QueueUnit {
	if r.Unit == "" {
		return UnitGPUs
	}
	return r.Unit
}

func (r *QueueShare) validate(fault func(format string, args ...any)) {
	if r.Model != "" && !validModel(r.Model) {
		fault("model %q is no name of a model", r.Model)
	}
	if r.Weight != nil && (*r.Weight < 0 || *r.Weight > MaxQueueWeight) {
		fault("weight %d: give 0 to %d", *r.Weight, int64(MaxQueueWeight))
	}
	u := r.UnitOrDefault()
	if u != UnitGPUs && u != UnitCores && u != UnitMemory {
		fault("unit %q: choose gpus, cores or memory", u)
		return
	}
	good, amounts := true, [3]int64{}
	for i, a := range []struct {
		what    string
		written Amount
	}{{"guaranteed", r.Guaranteed}, {"limit", r.Limit}, {"lendingLimit", r.LendingLimit}} {
		var err error
		if amounts[i], err = a.written.In(u); err != nil {
			fault("%s %s: %v", a.what, a.written, err)
			good = false
		}
	}
	if good && !r.Limit.IsZero() && amounts[1] < amounts[0] {
		fault("limit %s is below guaranteed %s", r.Limit, r.Guaranteed)
	}
}

// DecodeQueue reads a queue as the API server gives it. Unknown fields of its specification are errors that wrap
// [ErrRequest]; metadata and status have fields that are not read. It does not validate.
func DecodeQueue(text []byte) (Queue, error) {
	var outer struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Metadata   json.RawMessage `json:"metadata"`
		Spec       QueueSpec       `json:"spec"`
		Status     json.RawMessage `json:"status"`
	}
	faults, err := kjson.UnmarshalStrict(text, &outer)
	q := Queue{APIVersion: outer.APIVersion, Kind: outer.Kind, Spec: outer.Spec}
	for _, part := range []struct {
		text []byte
		into any
	}{{outer.Metadata, &q.Metadata}, {outer.Status, &q.Status}} {
		if len(part.text) > 0 && err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(part.text, part.into)
		}
	}
	if err := errors.Join(append(faults, err)...); err != nil {
		return Queue{}, fmt.Errorf("%w: read the queue: %w", ErrRequest, err)
	}
	if q.APIVersion != APIVersion || q.Kind != KindQueue {
		return Queue{}, fmt.Errorf("%w: read the queue: it is %q %q, not %s %s", ErrRequest, q.APIVersion, q.Kind, APIVersion, KindQueue)
	}
	return q, nil
}

// DeepCopy copies a specification.
func (s *QueueSpec) DeepCopy() QueueSpec {
	out := *s
	out.Resources = slices.Clone(s.Resources)
	for i := range out.Resources {
		out.Resources[i].Weight = clone(out.Resources[i].Weight)
	}
	out.Grace, out.MinimumRunTime = clone(s.Grace), clone(s.MinimumRunTime)
	out.Namespaces = slices.Clone(s.Namespaces)
	return out
}

// DeepCopy copies a queue.
func (q *Queue) DeepCopy() Queue {
	out := *q
	out.Spec = q.Spec.DeepCopy()
	out.Status.Resources, out.Status.Conditions = slices.Clone(q.Status.Resources), slices.Clone(q.Status.Conditions)
	return out
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
