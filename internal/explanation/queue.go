package explanation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// ErrNoQueue is returned for a queue that does not exist.
var ErrNoQueue = errors.New("no such queue")

// QueueExplanation is what there is to say about a queue.
type QueueExplanation struct {
	Queue
	// Path are the queues above it, the root first.
	Path       []string `json:"path,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	// Grace is how long its victims have to end, MinimumRunTime how long its pods run before they can be victims.
	Grace          Inherited `json:"grace"`
	MinimumRunTime Inherited `json:"minimumRunTime"`
	// Amounts say of each model and unit where the amounts come from.
	Amounts []AmountsOf `json:"amounts,omitempty"`
	// Parts are the queues right below it.
	Parts []Queue `json:"parts,omitempty"`
	// Line is who waits in the queue itself, in the order in which they are tried.
	Line []Waiter `json:"line,omitempty"`
	// Sleeping are its pods that are suspended for others.
	Sleeping []Sleeper `json:"sleeping,omitempty"`
	// Ending are its pods that end for others.
	Ending []EndingPod `json:"ending,omitempty"`
}

// Inherited is a time, and the queue that says so, empty for what holds where no queue says anything.
type Inherited struct {
	Time v1alpha1.Duration `json:"time"`
	From string            `json:"from,omitempty"`
}

// AmountsOf are the amounts of one model and unit.
type AmountsOf struct {
	Model string             `json:"model,omitempty"`
	Unit  v1alpha1.QueueUnit `json:"unit"`
	Lines []AmountLine       `json:"lines"`
}

// AmountLine is one amount, and where it comes from.
type AmountLine struct {
	What   string `json:"what"`
	Amount string `json:"amount"`
	From   string `json:"from,omitempty"`
}

// Waiter is a pod or a gang that waits.
type Waiter struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pods is how many pods of a gang wait, 0 of a single pod.
	Pods     int            `json:"pods,omitempty"`
	Quota    v1alpha1.Quota `json:"quota"`
	Priority int32          `json:"priority"`
	Since    time.Time      `json:"since"`
	// Reason is what the scheduler says on the pod.
	Reason string `json:"reason,omitempty"`
}

// EndingPod is one that ends for others.
type EndingPod struct {
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Until     time.Time `json:"until"`
	// Reason names for whom it ends, and the rule.
	Reason string `json:"reason,omitempty"`
}

// Queue explains a queue. Pods are read of one namespace, or of all where it is empty. The error is [ErrNoQueue] if there is none.
func (r Reader) Queue(ctx context.Context, name, namespace string) (*QueueExplanation, error) {
	known, _, err := r.listQueues(ctx)
	if err != nil {
		return nil, err
	}
	object, there := known[name]
	if !there {
		return nil, fmt.Errorf("find queue %s: %w", name, ErrNoQueue)
	}
	e := &QueueExplanation{Namespaces: object.Spec.Namespaces, Path: known.path(name)}
	for _, q := range known.tree() {
		if q.Name == name {
			e.Queue = q
		} else if q.Parent == name {
			e.Parts = append(e.Parts, q)
		}
	}
	e.Grace = known.inherited(e.Path, name, v1alpha1.DefaultGrace, func(s *v1alpha1.QueueSpec) *v1alpha1.Duration { return s.Grace })
	e.MinimumRunTime = known.inherited(e.Path, name, 0, func(s *v1alpha1.QueueSpec) *v1alpha1.Duration { return s.MinimumRunTime })
	for _, u := range e.Resources {
		e.Amounts = append(e.Amounts, known.amounts(name, e.Path, u))
	}
	pods, err := r.queuePods(ctx, known.specs(), e, namespace)
	if err == nil {
		err = r.sleepers(ctx, e, namespace, pods)
	}
	return e, err
}

// path are the queues above one, the root first; of a cycle none.
func (q queueObjects) path(name string) (path []string) {
	if q.circular(name) {
		return nil
	}
	for at := q[name].Spec.Parent; at != "" && !slices.Contains(path, at); at = q[at].Spec.Parent {
		if _, there := q[at]; !there {
			break
		}
		path = slices.Insert(path, 0, at)
	}
	return path
}

// inherited is a time that a queue has, or the next one above that has it.
func (q queueObjects) inherited(path []string, name string, otherwise time.Duration, of func(*v1alpha1.QueueSpec) *v1alpha1.Duration) Inherited {
	for _, at := range slices.Backward(append(slices.Clone(path), name)) {
		object := q[at]
		if d := of(&object.Spec); d != nil {
			return Inherited{*d, at}
		}
	}
	return Inherited{Time: v1alpha1.Duration(otherwise)}
}

// specs are the queues that were read.
func (q queueObjects) specs() (specs []queue.Spec) {
	for name, object := range q {
		if object.fault == "" {
			specs = append(specs, queue.Spec{Name: name, QueueSpec: object.Spec})
		}
	}
	return specs
}

// share is what a queue writes of a model and unit.
func (q queueObjects) share(name string, u v1alpha1.QueueUse) v1alpha1.QueueShare {
	for _, s := range q[name].Spec.Resources {
		if s.Model == u.Model && s.UnitOrDefault() == u.Unit {
			return s
		}
	}
	return v1alpha1.QueueShare{}
}

// amounts says where the amounts of a model and unit come from.
func (q queueObjects) amounts(name string, path []string, u v1alpha1.QueueUse) AmountsOf {
	a := AmountsOf{Model: u.Model, Unit: u.Unit}
	line := func(what string, n int64, from string) {
		a.Lines = append(a.Lines, AmountLine{what, u.Unit.Format(n), from})
	}
	written, _ := q.share(name, u).Guaranteed.In(u.Unit) // one that is wrong is a condition, and guarantees nothing
	from := "as written"
	switch {
	case written == 0:
		from = "none is written"
	case u.Guaranteed < written:
		from = fmt.Sprintf("of %s that are written, there is no more", u.Unit.Format(written))
	}
	line("guaranteed", u.Guaranteed, from)
	line("entitled", u.Entitled, entitled(u))
	line("used", u.Used, within(u))
	line("borrowed", u.Borrowed, q.others(name, u, u.Borrowed, "lent by", "of what no sibling is guaranteed", func(o v1alpha1.QueueUse) int64 { return o.Lent }))
	line("lent", u.Lent, q.others(name, u, u.Lent, "to", "", func(o v1alpha1.QueueUse) int64 { return o.Borrowed }))
	line("demand", u.Demand, "what its pods hold or ask for")
	for _, at := range slices.Backward(append(slices.Clone(path), name)) {
		if limit := q.share(at, u).Limit; !limit.IsZero() {
			most, _ := limit.In(u.Unit) // as above
			line("limit", most, "of queue "+at)
		}
	}
	return a
}

// entitled says of what an entitlement is made.
func entitled(u v1alpha1.QueueUse) string {
	own := min(u.Guaranteed, u.Entitled)
	var text string
	switch more := u.Entitled - own; {
	case u.Entitled == 0:
		text = "nothing"
	case own == 0:
		text = "all of it of what others leave idle"
	case more > 0:
		text = fmt.Sprintf("%s guaranteed, and %s of what others leave idle", u.Unit.Format(own), u.Unit.Format(more))
	default:
		text = "guaranteed"
	}
	switch {
	case u.Demand > u.Entitled:
		text += fmt.Sprintf("; %s more are asked for", u.Unit.Format(u.Demand-u.Entitled))
	case u.Entitled < u.Guaranteed:
		text += "; no more is asked for"
	}
	return text
}

func within(u v1alpha1.QueueUse) string {
	switch {
	case u.Used > u.Entitled:
		return fmt.Sprintf("%s more than it is entitled to: pods may end for others", u.Unit.Format(u.Used-u.Entitled))
	case u.Used < u.Entitled:
		return fmt.Sprintf("%s less than it is entitled to", u.Unit.Format(u.Entitled-u.Used))
	}
	return "all that it is entitled to"
}

// others names the siblings that lend or borrow.
func (q queueObjects) others(name string, u v1alpha1.QueueUse, amount int64, how, nobody string, of func(v1alpha1.QueueUse) int64) string {
	if amount == 0 {
		return ""
	}
	var texts []string
	for _, other := range slices.Sorted(maps.Keys(q)) {
		if other == name || q[other].Spec.Parent != q[name].Spec.Parent {
			continue
		}
		for _, o := range q[other].Status.Resources {
			if o.Model == u.Model && o.Unit == u.Unit && of(o) > 0 {
				texts = append(texts, fmt.Sprintf("%s (%s)", other, u.Unit.Format(of(o))))
			}
		}
	}
	if len(texts) == 0 {
		return nobody
	}
	return how + " " + strings.Join(texts, ", ")
}
